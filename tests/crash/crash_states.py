"""`python -m tests.crash.crash_states --states 200000`: what `make crash-states` runs.

A small journal works: it appends, rolls, rests, takes snapshots, gives segments back, stores a
document, and opens after a crash. At each call that changes the disk, disks are made as a crash
may leave them (crash_disk.py), each different one is opened, and what is found is judged:

- every entry of an append that was answered is there, and no other but those of the append that
  was being made, byte for byte;
- the snapshot is the one that was stored last, or the one that was being stored, with all parts;
- so is a document;
- rows that nobody freed lie in a segment that is there;
- and the journal goes on.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from dejaqueue import limits
from dejaqueue.errors import DejaQError
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.interface import Entry, Journal, SnapshotFile
from dejaqueue.journal.memory import MemoryFileSystem, MemoryStore
from dejaqueue.journal.segments.recovery import segment_name
from dejaqueue.journal.segments.segment import HEAD_BYTES
from dejaqueue.testing.journal_conformance import make_ack, make_enqueue, values_of
from tests.crash.crash_disk import Fault, RecordingFiles, State
from tests.crash.disk_copies import log_of

SEGMENT_BYTES = 1 << 14
STEPS = 60
"""Of one life of a journal."""
LIVES = 3
RESTS = 0.9
"""Steps with a larger chance are followed by a rest: the tail is marked."""
DEEP_EVERY = 50
"""Of so many disks one is read row by row, too."""
FAULTS_SHOWN = 10


@dataclass
class Promise:
    """What must be found, and what may be.

    Attributes:
        tail: last position that was answered.
        entries: by position, those that were answered or tried, as bytes and as they are.
        snapshots: position and parts of the snapshot that is stored, and of one on its way; None
            = there may be none.
        documents: what the document may be.
        live: positions of entries with rows that are not freed.
    """

    tail: int = 0
    entries: dict[int, tuple[bytes, Entry]] = field(default_factory=dict)
    snapshots: list[tuple[int, dict[str, bytes]] | None] = field(default_factory=lambda: [None])
    documents: list[str | None] = field(default_factory=lambda: [None])
    live: set[int] = field(default_factory=set)


@dataclass
class Tally:
    """What was seen, over all.

    Attributes:
        states_max: that are wanted; after a fault, no more are.
    """

    states_max: int = 1 << 62
    states: int = 0
    instants: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether that is enough."""
        return bool(self.faults) or self.states >= self.states_max


class Life:
    """A journal at work on a disk, and a crash at each call."""

    def __init__(
        self,
        disk: MemoryFileSystem,
        promise: Promise,
        random: np.random.Generator,
        tally: Tally,
        fault: Fault | None = None,
    ) -> None:
        self.promise, self._random, self._tally = promise, random, tally
        self._waits_for_fault = fault is not None
        self._seen: set[int] = set()
        self._parts: dict[str, bytes] = {}
        self.left: list[State] = []
        """What the last crash may leave; what is promised is the same for all of them."""
        spares = bool(random.integers(2))
        self.files = RecordingFiles(disk, self.crash, spares=spares, fault=fault)
        self.name = ""

    def live(self, steps: int) -> None:
        """Open, and work for so many steps."""
        store, journal = self.open()
        for _ in range(steps):
            if self._tally.is_over:
                return
            self.step(store, journal)

    def open(self) -> tuple[MemoryStore, Journal]:
        """Open what is there; that is promised from now on."""
        store = MemoryStore(file_system=self.files, segment_bytes=SEGMENT_BYTES)
        journal = store.open("topic", 0)
        promise = self.promise
        promise.tail = journal.tail  # what is served is durable
        promise.entries = {p: one for p, one in promise.entries.items() if p <= journal.tail}
        promise.live = {position for position in promise.live if position <= journal.tail}
        self._parts = self._settled(journal)
        promise.documents = [store.load_document("keys")]
        live = sorted(promise.live)
        rows = [position << limits.ROW_BITS for position in live]
        journal.adopt(iter([np.array(rows, dtype=np.int64)]))
        return store, journal

    def step(self, store: MemoryStore, journal: Journal) -> None:
        """Do something."""
        chance = self._random.random()
        if chance < 0.06:
            self._snapshot(journal)
        elif chance < 0.10:
            self._document(store)
        elif chance < 0.2:
            self._free(journal)
        else:
            self._append(journal)
        if chance > RESTS:
            journal.prove()

    def _settled(self, journal: Journal) -> dict[str, bytes]:
        """The snapshot that was found is the one from now on; its parts."""
        found = journal.latest_snapshot()
        allowed = self.promise.snapshots
        self.promise.snapshots = [
            one
            for one in allowed
            if (one[0] if one else None) == (found.position if found else None)
        ][:1]
        one = self.promise.snapshots[0]
        return dict(one[1]) if one else {}

    def _append(self, journal: Journal) -> None:
        random, promise = self._random, self.promise
        count = int(random.integers(1, 4))
        entries = [self._entry() for _ in range(count)]
        chain = log_of(journal)._chain
        for place, entry in enumerate(entries, 1):
            position = promise.tail + place
            owner = (journal.number, position)  # alone in its log
            one = entry_format.encode(entry, position, 1, chain, promise.tail, owner)
            promise.entries[position] = b"".join(one.pieces), entry
            chain = one.checksum
        tail = journal.append(entries, promise.tail, 1)
        promise.live.update(
            promise.tail + place for place, one in enumerate(entries, 1) if one.texts
        )
        promise.tail = tail

    def _entry(self) -> Entry:
        random = self._random
        if random.random() < 0.3:
            return make_ack(int(random.integers(1, 9)))
        return make_enqueue(random, 1, int(random.choice([20, 500, 3_000])))

    def _snapshot(self, journal: Journal) -> None:
        random, promise = self._random, self.promise
        kept = dict(list(self._parts.items())[-1:])
        name = f"part-{promise.tail}-{random.integers(1 << 30)}"
        parts = kept | {name: random.bytes(int(random.integers(1, 2_000)))}
        promise.snapshots.append((promise.tail, parts))
        given = [SnapshotFile(one, None if one in kept else parts[one]) for one in parts]
        journal.put_snapshot(promise.tail, str(promise.tail), given)
        del promise.snapshots[:-1]
        self._parts = parts
        journal.truncate(promise.tail)

    def _document(self, store: MemoryStore) -> None:
        text = self._random.bytes(int(self._random.integers(1, 400))).hex()
        self.promise.documents.append(text)
        store.store_document("keys", text)
        del self.promise.documents[:-1]

    def _free(self, journal: Journal) -> None:
        """Mostly old rows, and some in the middle, so that segments there become empty, too."""
        live = sorted(self.promise.live)
        first, end = sorted(self._random.integers(0, len(live) + 1, 2).tolist())
        share = self._random.choice([0.95, 1.0])
        gone = [one for one in live[first:end] if self._random.random() < share]
        self.promise.live.difference_update(gone)
        journal.free(np.array([one << limits.ROW_BITS for one in gone], dtype=np.int64))

    # --- the crash -----------------------------------------------------------------------------

    def crash(self, call: str) -> None:
        """Try the disks that a crash at this instant may leave."""
        tally = self._tally
        if tally.is_over or (self._waits_for_fault and not self.files.has_failed):
            return
        tally.instants += 1
        tally.calls[call] += 1
        states = list(self.files.states(self._random))
        self.left = states
        promised = self.promise.tail, len(self.promise.snapshots), len(self.promise.documents)
        for state in states:
            mark = hash((state.mark(), *promised))
            if mark in self._seen:
                continue
            self._seen.add(mark)
            tally.states += 1
            disk = self.files.disk_of(state)
            fault = self._fault(disk, deep=tally.states % DEEP_EVERY == 0)
            if fault:
                place = f"{self.name}, at {call} (call {tally.instants}), {state.how}"
                tally.faults.append(f"{place}: {fault}")

    def any_left(self) -> MemoryFileSystem:
        """A disk that the last crash may have left."""
        return self.files.disk_of(self.left[int(self._random.integers(len(self.left)))])

    def _fault(self, disk: MemoryFileSystem, *, deep: bool) -> str:
        """What is wrong with what is found on a disk; "" = nothing."""
        try:
            store = MemoryStore(file_system=disk, segment_bytes=SEGMENT_BYTES)
            journal = store.open("topic", 0)
            wrong = self._wrong(store, journal, disk)
            return wrong or (self._wrong_rows(store, journal) if deep else "")
        except (DejaQError, OSError, AssertionError) as failure:
            return f"unrecoverable: {type(failure).__name__}: {failure}"

    def _wrong(self, store: MemoryStore, journal: Journal, disk: MemoryFileSystem) -> str:
        promise = self.promise
        if journal.tail < promise.tail:
            return f"lost: it ends at {journal.tail}, acknowledged were {promise.tail}"
        listed = log_of(journal).listed
        there: set[int] = set()
        for segment in listed.segments:
            positions = range(segment.first, segment.last + 1)
            if segment.count and segment.last not in promise.entries:
                return f"phantom: entry {segment.last} that nobody wrote"
            there.update(positions)
            written = b"".join(promise.entries[position][0] for position in positions)
            memory = disk._contents[segment.path].memory
            if memory is None or memory[HEAD_BYTES : HEAD_BYTES + len(written)] != written:
                return f"phantom: {segment_name(segment.first)} has other bytes"
        found = journal.latest_snapshot()
        snapshot = found.position if found else None
        if snapshot not in [one[0] if one else None for one in promise.snapshots]:
            return f"the snapshot is of {snapshot}"
        parts = (
            {name: bytes(journal.read_snapshot_file(name)) for name in found.files} if found else {}
        )
        if parts not in [one[1] if one else {} for one in promise.snapshots]:
            return "phantom: the snapshot has other parts"
        needed = promise.live | set(range((snapshot or 0) + 1, journal.tail + 1))
        if not needed <= there:
            return f"lost: entries {sorted(needed - there)[:5]} were given back"
        return "" if store.load_document("keys") in promise.documents else "another document"

    def _wrong_rows(self, store: MemoryStore, journal: Journal) -> str:
        """By way of the journal's own door: what is read, and whether it goes on."""
        promise, snapshot = self.promise, journal.latest_snapshot()
        for position, _, entry in journal.scan(snapshot.position if snapshot else 0):
            if values_of(entry) != values_of(promise.entries[position][1]):
                return f"phantom: entry {position} says something else"
        live = np.array([one << limits.ROW_BITS for one in sorted(promise.live)], dtype=np.int64)
        if len(journal.read(live)) != len(live):
            return "lost: rows are not there"
        tail = journal.append([make_ack(3)], journal.tail, 2)
        journal.close()
        return "" if store.open("topic", 0).tail == tail else "what was appended then is not there"


def run(seed: int, tally: Tally) -> None:
    """Some lives of one journal, each on what a crash of the one before left."""
    random = np.random.default_rng(seed)
    disk, promise = MemoryFileSystem(), Promise()
    for number in range(LIVES):
        life = Life(disk, promise, random, tally)
        life.name = f"seed {seed}, life {number + 1}"
        life.live(int(random.integers(STEPS // 4, STEPS)))
        if tally.is_over or not life.left:
            return
        disk = life.any_left()


def main() -> int:
    """Run seeds until there were so many states; 1 if any was wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--states", type=int, default=200_000)
    parser.add_argument("--first", type=int, default=1)
    options = parser.parse_args()
    tally, began, seed = Tally(options.states), time.monotonic(), options.first
    while not tally.is_over:
        run(seed, tally)
        seed += 1
    took, used = time.monotonic() - began, time.process_time()
    for fault in tally.faults[:FAULTS_SHOWN]:
        print(fault)
    calls = ", ".join(f"{name} {count:,}" for name, count in sorted(tally.calls.items()))
    print(f"crashes at {tally.instants:,} calls: {calls}")
    print(
        f"seeds {options.first} to {seed - 1}: {tally.states:,} crash states, "
        f"{len(tally.faults)} faults, in {took:.0f} s "
        f"({used:.0f} s of a core: {tally.states / used:,.0f}/s)"
    )
    return int(bool(tally.faults))


if __name__ == "__main__":
    sys.exit(main())
