"""What can be asked of a cron topic: put, list, pause, resume, drop, run now, preview.

Room: broker. Any thread; what touches a partition runs on its worker.
Holds: what is answered is durable; an entry is in one partition, also after partitions were added.
See: fire.py; broker/calls/calls.py, which calls `act`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.access.senders import NOBODY, Sender
from dejaqueue.broker.cron.fire import Firings, entry_of, sender_of, spec_of
from dejaqueue.broker.cron.firings import NEVER, Plan, due_ms, next_firing, wake_ms
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.entries import hash_column, text_column
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.engine.commands import Cancel, DropEntries, PutEntries
from dejaqueue.engine.schedule import Planned
from dejaqueue.errors import BadRequest
from dejaqueue.model import MessageState, TopicKind, pack_id
from dejaqueue.schema.cron import CronEntry, is_text

Answer = TypeVar("Answer")


def act(
    served: Callable[[str], ServedTopic],
    now_ms: int,
    name: str,
    body: dict[str, Any],
    sender: Sender = NOBODY,
) -> dict[str, Any]:
    """A call about cron, of the table in access/calls.py: JSON in, JSON out.

    Args:
        sender: who asks; messages of the entries it puts are its own.

    Raises:
        BadRequest, TopicUnknown, TryLater.
    """
    fields = dict(body)
    if name == "cron_next" and fields.get("entry") is not None:
        entry = _with_start(CronEntry.from_dict(_dict(fields.pop("entry"))).check(), now_ms)
        return {"firings": preview(entry, **_preview_fields(fields, now_ms))}
    topic_name = fields.pop("topic", None)
    if not isinstance(topic_name, str):
        raise BadRequest("topic", "the name of a topic", topic_name)
    calls = CronCalls(served(topic_name))
    match name:
        case "cron_put":
            given = _list(fields.pop("entries", None), "entries")
            made = [CronEntry.from_dict(_dict(values)) for values in given]
            entries = calls.put(made, sender.name)
        case "cron_list":
            after, limit = str(fields.pop("after", "")), fields.pop("limit", 1_000)
            entries = calls.page(after, _count("limit", limit, limits.CRON_CALL_ENTRIES_MAX))
        case "cron_get":
            entries = [calls.get(_name(fields))]
        case "cron_pause":
            entries = calls.pause(_names(fields), paused=bool(fields.pop("paused", True)))
        case "cron_drop":
            return _no_more(fields, {"dropped": calls.drop(_names(fields))})
        case "cron_run":
            return _no_more(fields, {"id": calls.run(_name(fields))})
        case _:
            entry = calls.get(_name(fields))
            return {"firings": preview(entry, **_preview_fields(fields, now_ms))}
    return _no_more(fields, {"entries": [entry.to_dict() for entry in entries]})


def preview(entry: CronEntry, *, after_ms: int, count: int) -> list[int]:
    """The next firings of an entry after an instant, jitter included. Raises BadRequest."""
    firings: list[int] = []
    firing_ms = next_firing(entry, after_ms)
    while firing_ms != NEVER and len(firings) < count:
        firings.append(due_ms(entry, firing_ms))
        firing_ms = next_firing(entry, firing_ms)
    return firings


class CronCalls:
    """The entries of a topic. Raises BadRequest if it is no cron topic."""

    def __init__(self, topic: ServedTopic) -> None:
        settings = topic.topic
        if settings.kind is not TopicKind.CRON:
            given = f"{settings.name} ({settings.kind})"
            raise BadRequest("topic", "a topic of kind cron", given)
        self._topic = topic

    def put(self, given: Sequence[CronEntry], sender: str = "") -> list[CronEntry]:
        """Make or change entries; what did not change of when an entry fires goes on as it was.

        All of a partition's entries are put at once. Raises BadRequest before any is.
        """
        if len(given) > limits.CRON_CALL_ENTRIES_MAX:
            limit = f"at most {limits.CRON_CALL_ENTRIES_MAX} entries in a call"
            raise BadRequest("entries", limit, len(given))
        checked = {entry.name: self._check(entry) for entry in given}
        entries: dict[str, CronEntry] = {}
        for partition, names in self._partitions_of(list(checked)).items():
            some = [checked[name] for name in names]

            def put(core: PartitionCore, some: list[CronEntry] = some) -> list[CronEntry]:
                return _put(core, some, sender)

            for entry in self._change(partition, put):
                entries[entry.name] = entry
        return [entries[entry.name] for entry in given]

    def page(self, after: str, limit: int) -> list[CronEntry]:
        """Up to `limit` entries by name, after the given one."""

        def look(core: PartitionCore) -> list[CronEntry]:
            by_name = core.engine.schedule.by_name
            names = sorted(name for name in by_name if name > after)[:limit]
            return [_shown(core, name) for name in names]

        entries = [entry for part in self._look_all(look) for entry in part]
        return sorted(entries, key=lambda entry: entry.name)[:limit]

    def get(self, name: str) -> CronEntry:
        """An entry. Raises BadRequest if there is none of that name."""
        [(partition, _)] = self._known([name]).items()
        return self._look(partition, lambda core: _shown(core, name))

    def pause(self, names: Sequence[str], *, paused: bool) -> list[CronEntry]:
        """Pause entries, or have them go on from now: what passed meanwhile was not missed."""
        entries: dict[str, CronEntry] = {}
        for partition, some in self._known(names).items():

            def change(core: PartitionCore, some: list[str] = some) -> list[CronEntry]:
                return _put(core, [replace(_shown(core, n), paused=paused) for n in some])

            for entry in self._change(partition, change):
                entries[entry.name] = entry
        return [entries[name] for name in names]

    def drop(self, names: Sequence[str]) -> int:
        """Delete entries; how many there were. Messages that are due stay."""
        count = 0
        for partition, some in self._partitions_of(names).items():

            def drop(core: PartitionCore, some: list[str] = some) -> int:
                return _drop(core, some)

            count += self._change(partition, drop)
        return count

    def run(self, name: str) -> int:
        """Fire an entry now, beside its schedule; the id of the message."""
        [(partition, _)] = self._known([name]).items()
        return self._change(partition, lambda core: _run(core, name))

    def _check(self, entry: CronEntry) -> CronEntry:
        checked = entry.check()
        if len(checked.payload) > self._topic.topic.max_payload_bytes:
            limit = f"at most {self._topic.topic.max_payload_bytes} bytes"
            raise BadRequest("entry.payload", limit, len(checked.payload))
        if next_firing(replace(checked, end_ms=0), checked.start_ms) == NEVER:
            raise BadRequest("entry.cron", "an expression that fires some time", checked.cron)
        return checked

    # --- partitions

    def _partitions_of(self, names: Sequence[str]) -> dict[int, list[str]]:
        """The partition of each name: where it is, or where it would be made."""
        count = self._topic.topic.partitions
        hashes = hash_column(text_column(pa.array(list(names), pa.utf8())))
        homes = self._topic.partitions.homes(hashes, count)
        at = dict(zip(names, homes.tolist(), strict=True))
        if count > 1:  # partitions may have been added since

            def look(core: PartitionCore) -> list[str]:
                return [name for name in at if name in core.engine.schedule.by_name]

            for partition, known in zip(
                self._topic.partitions.numbers, self._look_all(look), strict=False
            ):
                at.update(dict.fromkeys(known, partition))
        by_partition: dict[int, list[str]] = {}
        for name, partition in at.items():
            by_partition.setdefault(partition, []).append(name)
        return by_partition

    def _known(self, names: Sequence[str]) -> dict[int, list[str]]:
        """As `_partitions_of`. Raises BadRequest for the first name that is none of an entry."""
        by_partition = self._partitions_of(names)
        for partition, some in by_partition.items():

            def look(core: PartitionCore, some: list[str] = some) -> list[str]:
                return [name for name in some if name not in core.engine.schedule.by_name]

            for name in self._look(partition, look):
                topic = self._topic.topic.name
                raise BadRequest("entry.name", f"the name of an entry of topic {topic}", name)
        return by_partition

    def _look(self, partition: int, look: Callable[[PartitionCore], Answer]) -> Answer:
        return self._topic.look(partition, look).result()

    def _look_all(self, look: Callable[[PartitionCore], Answer]) -> list[Answer]:
        partitions = self._topic.partitions.numbers
        futures = [self._topic.look(partition, look) for partition in partitions]
        return [future.result() for future in futures]

    def _change(self, partition: int, change: Callable[[PartitionCore], Answer]) -> Answer:
        return self._topic.change(partition, change).result()


# --- on the partition's worker ------------------------------------------------------------------


def _shown(core: PartitionCore, name: str) -> CronEntry:
    """An entry as it is, for the asker."""
    planned = core.engine.schedule.by_name.get(name)
    if planned is None:
        raise BadRequest("entry.name", "the name of an entry", name)
    last = planned.last_sequence
    last_id = -1 if last < 0 else pack_id(core.number, last)
    return replace(entry_of(name, planned.spec), next_ms=planned.next_ms, last_id=last_id)


def _put(
    core: PartitionCore, given: Sequence[CronEntry], sender: str | None = None
) -> list[CronEntry]:
    """Make or change entries; `sender` None: they stay whose they are."""
    schedule = core.engine.schedule.by_name
    now_ms = core.now_ms()
    stale: list[int] = []
    rows = []
    for entry in given:
        planned = schedule.get(entry.name)
        known = None if planned is None else entry_of(entry.name, planned.spec)
        made = _with_start(entry, now_ms, known)
        whose = sender_of(planned.spec) if sender is None and planned is not None else sender or ""
        if planned is not None and known is not None and _fires_alike(made, known):
            rows.append((made.name, spec_of(made, whose), planned.next_ms, planned.wake_ms))
            continue
        if planned is not None:
            stale += _ahead(core, planned, now_ms)
        next_ms = NEVER if made.paused else next_firing(made, now_ms)
        rows.append((made.name, spec_of(made, whose), next_ms, wake_ms(made, next_ms)))
    if stale:
        core.apply(Cancel(now_ms, np.array(stale, dtype=np.int64)))
    core.apply(PutEntries(now_ms, tuple(rows)))
    return [_shown(core, entry.name) for entry in given]


def _with_start(entry: CronEntry, now_ms: int, known: CronEntry | None = None) -> CronEntry:
    """An interval needs an instant to be counted from: that of before, or now."""
    if not entry.every_ms or entry.start_ms:
        return entry
    if known is not None and known.every_ms == entry.every_ms:
        return replace(entry, start_ms=known.start_ms)
    return replace(entry, start_ms=now_ms)


def _fires_alike(entry: CronEntry, known: CronEntry) -> bool:
    """True if both fire at the same times."""
    names = ("cron", "every_ms", "zone", "start_ms", "end_ms", "jitter_ms", "misfire", "overlap")
    return all(getattr(entry, n) == getattr(known, n) for n in (*names, "paused"))


def _ahead(core: PartitionCore, planned: Planned, now_ms: int) -> list[int]:
    """The message that an entry made ahead of its time, if that has not come."""
    if planned.last_sequence < 0:
        return []
    sequences = np.array([planned.last_sequence], dtype=np.int64)
    [state] = core.engine.states(sequences)
    [due] = core.engine.dues(sequences)
    return sequences.tolist() if state == MessageState.SCHEDULED and due > now_ms else []


def _drop(core: PartitionCore, names: Sequence[str]) -> int:
    schedule = core.engine.schedule.by_name
    known = [name for name in names if name in schedule]
    now_ms = core.now_ms()
    stale = [s for name in known for s in _ahead(core, schedule[name], now_ms)]
    if stale:
        core.apply(Cancel(now_ms, np.array(stale, dtype=np.int64)))
    if known:
        core.apply(DropEntries(now_ms, tuple(known)))
    return len(known)


def _run(core: PartitionCore, name: str) -> int:
    planned = core.engine.schedule.by_name.get(name)
    if planned is None:
        raise BadRequest("entry.name", "the name of an entry", name)
    firings = Firings()
    entry = replace(entry_of(name, planned.spec), jitter_ms=0)
    plan = Plan((core.now_ms(),), planned.next_ms, planned.wake_ms)
    firings.add(entry, plan, sender_of(planned.spec))
    return pack_id(core.number, firings.apply(core))


# --- what comes as JSON -------------------------------------------------------------------------


def _no_more(fields: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    for name, value in fields.items():
        raise BadRequest(name, "a field of this call", value)
    return answer


def _dict(values: object) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise BadRequest("entry", "an object of fields", values)
    return values


def _list(values: object, name: str) -> list[Any]:
    if not isinstance(values, list):
        raise BadRequest(name, "a list", values)
    return values


def _name(fields: dict[str, Any]) -> str:
    name = fields.pop("name", None)
    if not isinstance(name, str) or not name or not is_text(name):
        raise BadRequest("name", "the name of an entry", name)
    return name


def _names(fields: dict[str, Any]) -> list[str]:
    names = _list(fields.pop("names", None), "names")
    if len(names) > limits.CRON_CALL_ENTRIES_MAX:
        raise BadRequest("names", f"at most {limits.CRON_CALL_ENTRIES_MAX} names", len(names))
    for name in names:
        if not isinstance(name, str) or not name or not is_text(name):
            raise BadRequest("names", "names of entries", name)
    return list(dict.fromkeys(names))


def _count(name: str, value: object, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= high:
        raise BadRequest(name, f"a whole number from 1 to {high}", value)
    return value


def _preview_fields(fields: dict[str, Any], now_ms: int) -> dict[str, int]:
    count = _count("count", fields.pop("count", 10), limits.CRON_PREVIEW_MAX)
    after_ms = fields.pop("after_ms", None)
    after_ms = now_ms if after_ms is None else after_ms
    _count("after_ms", after_ms + 1 if isinstance(after_ms, int) else after_ms,
           limits.INSTANT_MS_MAX)  # fmt: skip
    return _no_more(fields, {"after_ms": after_ms, "count": count})
