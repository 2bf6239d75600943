"""Firing: entries whose time comes become messages, many at once.

Room: broker. Runs on the partition's worker, in its step.
Holds: messages, and the entries' next times, are one command and one journal entry: a firing
happens with its message or not at all (rule 17). One command a step, however many entries fire.
See: firings.py for what fires; engine/schedule.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.cron.firings import Plan, due_ms, plan
from dejaqueue.broker.shard import entries
from dejaqueue.broker.shard.backlog import notes_sizes
from dejaqueue.broker.shard.chore import Chore, wake_us
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.commands import Enqueue, Firing, SubBatch
from dejaqueue.engine.dictionary import of_runs
from dejaqueue.engine.schedule import Planned
from dejaqueue.model import MessageState
from dejaqueue.schema.cron import HEADER_ENTRY, HEADER_FIRING, CronEntry, Overlap
from dejaqueue.schema.messages import DEFAULT_PRIORITY
from dejaqueue.schema.packing import RECORD, UNIT
from dejaqueue.schema.references import escaped, payload_sizes

FULL_RETRY_MS = 1_000
"""Entries wait so long for room on the disk before it is looked for again."""


@dataclass(slots=True)
class Firings:
    """The messages of one command, column by column, and what becomes of their entries."""

    dues_ms: list[int] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    priorities: list[int] = field(default_factory=list)
    senders: list[tuple[str, int]] = field(default_factory=list)
    fired: list[Firing] = field(default_factory=list)

    def add(self, entry: CronEntry, planned: Plan, sender: str) -> None:
        """The messages of an entry that this sender put, and when it fires next."""
        self.senders.append((sender, len(planned.firings)))
        for index, firing_ms in enumerate(planned.firings):
            self.dues_ms.append(due_ms(entry, firing_ms))
            self.payloads.append(escaped(entry.payload))
            turn = index - planned.firings.index(firing_ms) + 1
            self.headers.append(_headers(entry, firing_name(firing_ms, turn)))
            self.tags.append(UNIT.join(entry.tags))
            self.groups.append(entry.group)
            self.priorities.append(entry.priority)
        row = len(self.dues_ms) - 1 if planned.firings else -1
        self.fired.append(Firing(entry.name, planned.next_ms, planned.wake_ms, row))

    def apply(self, core: PartitionCore) -> int:
        """Bring them in; the sequence of the first."""
        rows = len(self.dues_ms)
        texts = {
            "group": _column(self.groups),
            "tags": _column(self.tags),
            "headers": _column(self.headers),
        }
        texts = {name: column for name, column in texts.items() if column is not None}
        is_plain = all(priority == DEFAULT_PRIORITY for priority in self.priorities)
        command = Enqueue(
            core.now_ms(),
            core.next_position(),
            np.array(self.dues_ms, dtype=np.int64),
            (SubBatch("", 0, rows),),
            payload_bytes=int(self._sizes().sum()),
            priorities=None if is_plain else np.array(self.priorities, dtype=np.uint16),
            groups=entries.words(texts.get("group")),
            tags=entries.words(texts.get("tags")),
            firings=tuple(self.fired),
            payload_sizes=self._sizes() if notes_sizes(core.topic()) else None,
            senders=of_runs(self.senders) if any(name for name, _ in self.senders) else None,
        )
        texts["payload"] = pa.array(self.payloads, pa.binary())
        columns = {name: entries.text_column(column) for name, column in texts.items()}
        entry = entries.enqueue_entry(command, columns, core.engine.next_sequence)
        return core.apply(command, entry).first_sequence

    def _sizes(self) -> npt.NDArray[np.uint32]:
        return payload_sizes(pa.array(self.payloads, pa.binary()))


class CronFiring(Chore):
    """Has the entries of one partition fire."""

    def step(self, core: PartitionCore) -> None:
        """Bring in what fires now."""
        if core.engine.schedule.by_name:
            fire(core)

    def next_us(self, core: PartitionCore) -> int | None:
        """When the next entry fires, clock µs; None = none does."""
        return wake_us(core, next_wake_ms(core))


def fire(core: PartitionCore) -> None:
    """Bring in what fires now, or is about to; some of it, if it is much."""
    schedule = core.engine.schedule
    now_ms = core.now_ms()
    names = schedule.due(now_ms, limits.CRON_STEP_ENTRIES_MAX)
    if not names or not core.has_room(len(names)):
        return
    firings = Firings()
    for name in names:
        planned = schedule.by_name[name]
        entry = entry_of(name, planned.spec)
        is_live = entry.overlap is Overlap.SKIP and is_last_live(core, planned)
        fires = plan(entry, planned.next_ms, now_ms, is_live=is_live)
        firings.add(entry, fires, sender_of(planned.spec))
        if len(firings.dues_ms) >= limits.CRON_STEP_ENTRIES_MAX:
            break
    firings.apply(core)


def next_wake_ms(core: PartitionCore) -> int | None:
    """When there is something to fire; None if there is nothing."""
    wake_ms = core.engine.schedule.next_wake_ms()
    if wake_ms is None or wake_ms > core.now_ms() or core.has_room(1):
        return wake_ms
    return core.now_ms() + FULL_RETRY_MS


def is_last_live(core: PartitionCore, planned: Planned) -> bool:
    """True if the last message of an entry is neither done nor dead."""
    if planned.last_sequence < 0:
        return False
    [state] = core.engine.states(np.array([planned.last_sequence], dtype=np.int64))
    return int(state) not in (MessageState.DONE, MessageState.DEAD)


@lru_cache(maxsize=1 << 17)
def entry_of(name: str, spec: str) -> CronEntry:
    """The entry of what the engine keeps of it, remembered."""
    kept = json.loads(spec)
    kept.pop(_SENDER, None)
    return CronEntry.from_dict({"name": name, **kept})


@lru_cache(maxsize=1 << 17)
def sender_of(spec: str) -> str:
    """Who put an entry, of what the engine keeps of it, remembered; "" = nobody."""
    return str(json.loads(spec).get(_SENDER, ""))


_DEFAULTS = CronEntry("").to_dict()
_KEPT_BESIDE = ("name", "next_ms", "last_id")


_SENDER = "sender"
"""What is kept beside an entry's own fields: it is none that a caller could give."""


def spec_of(entry: CronEntry, sender: str) -> str:
    """What the engine keeps of an entry: whatever is not as ever, and who put it."""
    values = entry.to_dict().items()
    kept = {n: v for n, v in values if n not in _KEPT_BESIDE and v != _DEFAULTS[n]}
    if sender:
        kept[_SENDER] = sender
    return json.dumps(kept, separators=(",", ":"))


def firing_name(firing_ms: int, turn: int = 1) -> str:
    """What names a firing of an entry, once and for all.

    Several local times that one clock change leaves out are made up for at one instant (rule 17),
    so from the second on the instant alone would name them alike.

    >>> firing_name(1774746000000), firing_name(1774746000000, 2)
    ('1774746000000', '1774746000000.2')
    """
    return str(firing_ms) if turn == 1 else f"{firing_ms}.{turn}"


def _headers(entry: CronEntry, name: str) -> str:
    own = [(HEADER_ENTRY, entry.name), (HEADER_FIRING, name)]
    return RECORD.join(name + UNIT + value for name, value in [*entry.headers.items(), *own])


def _column(texts: list[str]) -> pa.StringArray | None:
    return pa.array(texts, pa.utf8()) if any(texts) else None
