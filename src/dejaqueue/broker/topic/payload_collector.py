"""The payload collector: deletes from the payload store what nothing needs any more.

What is done in a partition is told at once, and goes in batches a little later. What is left, by a
crash or by whoever ended messages that were never delivered, is found by comparing: what is stored
for a topic, for longer than anybody takes to write its message down, with what its live rows refer
to. What a deleted topic had, goes.

Room: broker. On a thread of its own, while there is a payload store; rows are read on the workers,
a few at a time.
Holds: nothing is deleted that a message refers to which is not done everywhere, or is retained, or
dead; if anything cannot be read, nothing of that topic is deleted by comparing.
See: broker/payloads/payloads.py; docs/adr/0068.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np

from dejaqueue import limits
from dejaqueue.broker.payloads.cold_objects import is_cold_name
from dejaqueue.broker.payloads.payloads import (
    NO_STORE,
    STALE_MS,
    UPLOAD_MS,
    UPLOADS,
    EndedPayload,
    Payloads,
)
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.clock import Wake
from dejaqueue.engine.arrays import Int64s
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.payloads.payload_store import PayloadStore
from dejaqueue.schema.cold_references import cold_rows
from dejaqueue.schema.references import Reference, decode, marked_rows

log = logging.getLogger("dejaqueue.broker")

ORPHAN_MS: Final = 86_400_000
"""What no message refers to is deleted when it is so old: one may be about to."""
COLLECT_MS: Final = 3_600_000
"""So often what is stored is compared with what is live."""
FIRST_MS: Final = 60_000
RETRY_MS: Final = 5_000
DELETED_AT_ONCE: Final = 500
LOOK_SECONDS: Final = 60.0
LOOK_BYTES: Final = 4 << 20
"""Payloads that a worker reads in one look, about."""
LOOK_ROWS_MAX: Final = 4_096
_POSITION_MAX: Final = (1 << (63 - limits.ROW_BITS)) - 2
_NONE: Final = np.zeros(0, dtype=np.int64)
_ENDED: Final = "ended"
_STREAMED: Final = "+"
"""Ends the name of a note, where the payload's name ends with a slash."""

FindOwner = Callable[[str], ServedTopic | bool]
"""Who has payloads of this owner: a topic that is served here; False = nobody any more; True =
somebody else, or that is not known."""


class PayloadCollector:
    """Deletes payloads.

    Args:
        find_owner: raises DejaQError: it is not known now.
    """

    def __init__(self, payloads: Payloads, find_owner: FindOwner) -> None:
        self._payloads, self._find_owner = payloads, find_owner
        self._clock = payloads.clock
        self._wake = Wake()
        self._is_stopping = self._is_wanted = False
        payloads.on_doomed = self._wake.ring

    def run(self) -> None:
        """Delete until `stop`."""
        next_us = self._clock.now_us() + FIRST_MS * 1_000
        pause_us = 0
        while True:
            wake_us = next_us
            if self._payloads.doomed:
                left_ms = self._payloads.doomed[0].ended_ms + STALE_MS - self._clock.utc_ms()
                wake_us = min(wake_us, self._clock.now_us() + max(left_ms, 0) * 1_000 + pause_us)
            self._clock.wait_until(wake_us, self._wake)
            if self._is_stopping:
                return
            pause_us = 0
            if self._payloads.is_kept:
                pause_us = RETRY_MS * 1_000
                next_us = max(next_us, self._clock.now_us() + pause_us)
                continue
            try:
                self.delete_doomed()
                if self._is_wanted or self._clock.now_us() >= next_us:
                    self._is_wanted = False
                    next_us = self._clock.now_us() + COLLECT_MS * 1_000
                    self.collect()
            except DejaQError as failure:
                pause_us = RETRY_MS * 1_000
                log.warning("payloads that nothing needs stay for now: %s", failure)
            except Exception:  # our bug: what can be deleted is, the next time
                pause_us = RETRY_MS * 1_000
                log.exception("payloads that nothing needs stay for now")

    def stop(self) -> None:
        """Delete nothing any more. Any thread; twice is fine."""
        self._is_stopping = True
        self._wake.ring()

    def look_soon(self) -> None:
        """Compare now: a topic was deleted. Any thread."""
        self._is_wanted = True
        self._wake.ring()

    # --- what is told ---------------------------------------------------------------------------

    def delete_doomed(self, stale_ms: int = STALE_MS) -> None:
        """Delete what ended so long ago, or note when it did if it is kept for backups. Raises
        Unavailable: what is left is deleted later."""
        store, doomed = self._store, self._payloads.doomed
        until_ms = self._clock.utc_ms() - stale_ms
        while doomed and doomed[0].ended_ms <= until_ms:
            some: list[EndedPayload] = []
            while doomed and doomed[0].ended_ms <= until_ms and len(some) < DELETED_AT_ONCE:
                some.append(doomed.popleft())
            try:
                self._end(store, some)
            except DejaQError:
                doomed.extendleft(reversed(some))
                raise

    def erase(self, names: Sequence[str]) -> None:
        """Delete payloads now, whatever they are kept for. Any thread. Raises Unavailable."""
        if self._payloads.store is None:
            raise Unavailable(NO_STORE, 1_000)
        self._payloads.waited(self._delete, self._store, list(names))

    def _end(self, store: PayloadStore, some: list[EndedPayload]) -> None:
        gone = [one.name for one in some]
        if self._payloads.settings.payloads.keep_ms:
            # What no message has was never in a backup.
            gone = [name for name in gone if self._payloads.is_upload(name)]
            for one in some:
                if one.name not in gone:
                    store.mark(self._note(one))
        self._delete(store, gone)

    def _delete(self, store: PayloadStore, names: list[str], notes: Sequence[str] = ()) -> None:
        """Delete payloads, of those that are streamed all parts, and then what was noted."""
        objects: list[str] = []
        for name in names:
            # The list goes first: a payload without one is none.
            is_streamed = name.endswith("/")
            parts = [one.name for one in store.objects(name)] if is_streamed else [name]
            objects += sorted(parts, reverse=True)
        store.delete([*objects, *notes])
        self._payloads.deleted(len(names))

    def _note(self, one: EndedPayload) -> str:
        """The name of what says when a payload ended."""
        own, _, name = one.name.partition("/")
        if name.endswith("/"):
            name = f"{name.removesuffix('/')}{_STREAMED}"
        return f"{own}/{_ENDED}/{one.ended_ms}/{name}"

    @property
    def _store(self) -> PayloadStore:
        assert self._payloads.store is not None, "there is a payload store"
        return self._payloads.store

    # --- what is compared -----------------------------------------------------------------------

    def collect(self, orphan_ms: int = ORPHAN_MS) -> None:
        """Compare what is stored with what is live; delete what was kept for long enough.

        Raises:
            Unavailable.
        """
        for own in self._payloads.ids:
            self._collect_of(own, orphan_ms)

    def _collect_of(self, own: str, orphan_ms: int) -> None:
        """The same for what is stored under one id."""
        store, payloads, now_ms = self._store, self._payloads, self._clock.utc_ms()
        kept_until_ms = now_ms - payloads.settings.payloads.keep_ms
        stored: dict[str, dict[str, int]] = defaultdict(dict)
        ended: set[str] = {one.name for one in payloads.doomed}
        gone: list[str] = []
        notes: list[str] = []
        for one in store.objects(f"{own}/"):
            owner, _, rest = one.name.removeprefix(f"{own}/").partition("/")
            if owner != _ENDED:
                whole, slash, _ = rest.partition("/")
                name = f"{own}/{owner}/{whole}{slash}"
                # A streamed payload is as young as its youngest part: more may be coming.
                stored[owner][name] = max(one.stored_ms, stored[owner].get(name, 0))
                continue
            ended_ms, _, of = rest.partition("/")
            if of.endswith(_STREAMED):
                of = f"{of.removesuffix(_STREAMED)}/"
            name = f"{own}/{of}"
            ended.add(name)
            if int(ended_ms) <= kept_until_ms:
                gone.append(name)
                notes.append(one.name)
        self._delete(store, gone, notes)
        for owner, names in stored.items():
            new = {name: stored_ms for name, stored_ms in names.items() if name not in ended}
            age_ms = min(orphan_ms, UPLOAD_MS) if owner == UPLOADS else orphan_ms
            old = {name for name, stored_ms in new.items() if stored_ms < now_ms - age_ms}
            if owner == UPLOADS:
                payloads.doom(sorted(old))
            elif new:
                self._compare(owner, new, old)

    def _compare(self, owner: str, stored: dict[str, int], old: set[str]) -> None:
        try:
            topic = self._find_owner(owner)
            if topic is True:
                return
            if topic is False:
                self._payloads.doom(list(stored))
                return
            if any(map(is_cold_name, stored)):
                for number in filter(topic.has_journal, topic.partitions.numbers):
                    topic.look(number, _want_cold).result(LOOK_SECONDS)
            if old:
                orphans = unreferenced(topic, old)
                if orphans:
                    log.info("%d payloads of %s belong to no message", len(orphans), owner)
                self._payloads.doom(sorted(orphans))
        except DejaQError as failure:
            log.warning("payloads of %s stay as they are for now: %s", owner, failure)


def unreferenced(topic: ServedTopic, names: set[str]) -> set[str]:
    """Those of these payloads that no live row of a topic refers to.

    Raises:
        DejaQError: not all rows could be read. TimeoutError.
    """
    left = set(names)
    for number in filter(topic.has_journal, topic.partitions.numbers):
        left -= topic.look(number, _cold_names).result(LOOK_SECONDS)
    for number in topic.partitions.numbers if left else ():
        if not topic.has_journal(number):
            continue
        live = topic.look(number, _live_rows).result(LOOK_SECONDS)
        step = _step(topic)
        for first in range(0, live.size, step):
            rows = live[first : first + step]
            left -= topic.look(number, partial(_names_of, rows)).result(LOOK_SECONDS)
            if not left:
                return left
    return left


def _step(topic: ServedTopic) -> int:
    """Rows whose payloads a worker may read at once."""
    assert topic.payloads is not None, "it has payloads there"
    most = max(topic.payloads.inline_bytes_max, 256)
    return max(16, min(LOOK_ROWS_MAX, LOOK_BYTES // most))


def _live_rows(core: PartitionCore) -> Int64s:
    """Every message that is stored still: in any view, staged, dead, or retained."""
    return core.views.live_in(0, _POSITION_MAX, 1 << 62)


def _want_cold(core: PartitionCore) -> None:
    """There are cold payloads of the topic: have this partition know its own."""
    core.cold.is_wanted = True
    core.ring()


def _cold_names(core: PartitionCore) -> set[str]:
    """Objects that are known to have payloads of this partition."""
    return set(core.cold.objects)


def _names_of(sequences: Int64s, core: PartitionCore) -> set[str]:
    """The payloads that these messages refer to, those that are not done meanwhile."""
    locators = core.views.locators(sequences)
    locators = locators[locators >= 0]
    if not locators.size:
        return set()
    column = core.stored.read(np.sort(locators), ("payload",)).column(0)
    core.stored.forget()
    cold = cold_rows(column)
    others = np.setdiff1d(marked_rows(column), np.concatenate([_NONE, *(one.rows for one in cold)]))
    found = (decode(column[row].as_py()) for row in others.tolist())
    names = {one.name for one in found if isinstance(one, Reference)}
    return names.union(one.whole.name for one in cold)
