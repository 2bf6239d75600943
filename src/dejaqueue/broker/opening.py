"""Reading a partition: its snapshot, what was appended since, and a new epoch behind that.

Room: broker. Runs on the partition's worker; in a cluster beside it, several partitions at a time,
because a broker that takes over has to ask a server many times for each.
Holds: while a partition is being read its worker leaves it alone, so it is still touched by one
thread at a time; one that was closed meanwhile appends no epoch if that can be helped, and what was
opened is closed.
See: partition.py, `_load`; docs/guides/cluster.md.
"""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, NamedTuple

from dejaqueue.broker import entries
from dejaqueue.engine.commands import OpenEpoch
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.snapshot import restore
from dejaqueue.errors import Unavailable
from dejaqueue.journal.interface import Journal

if TYPE_CHECKING:
    from dejaqueue.broker.partition import Partition

OPENERS = 16
"""Partitions that are read at once: most of the time each waits for a server."""


class Opened(NamedTuple):
    """A partition as it was read.

    Attributes:
        tail: position of its last entry, which begins the epoch.
        read_from: position of the snapshot, 0 = there was none.
        duration_ms: how long that took.
    """

    engine: Engine
    journal: Journal
    tail: int
    epoch: int
    read_from: int
    duration_ms: int


def read_again(partition: Partition) -> Opened:
    """Read snapshot and journal. Raises Fenced, JournalDamaged, Unavailable."""
    began_us = partition.clock.now_us()
    journal = partition.open_journal()
    recorder = partition.recorder
    try:
        snapshot = journal.latest_snapshot()
        read_from = tail = 0
        engine = Engine(partition.number)
        if snapshot is not None:
            engine = restore(snapshot.meta, journal.read_snapshot_file)
            read_from = tail = snapshot.position
        if recorder is not None:
            recorder.loading(tail, on=partition.topic().history, at_ms=engine.now_ms)
            engine.note_changes(recorder.is_on)
        for position, _epoch, entry in journal.scan(tail):
            effects = engine.apply(entries.to_command(entry, position))
            if recorder is not None:
                recorder.replayed(position, entry, effects)
            tail = position
        journal.adopt(engine.live_locators())
        now_ms = max(partition.clock.utc_ms(), engine.now_ms)
        command = OpenEpoch(now_ms, engine.epoch + 1)
        entry = entries.to_entry(command)
        if partition.is_closed:
            raise Unavailable("the topic is closed", 1_000)
        tail = journal.append([entry], tail, command.epoch)
        effects = engine.apply(command)
        if recorder is not None:
            recorder.replayed(tail, entry, effects)
    except BaseException:
        journal.close()
        raise
    duration_ms = (partition.clock.now_us() - began_us) // 1_000
    return Opened(engine, journal, tail, command.epoch, read_from, duration_ms)


class Opening:
    """A partition that another thread reads; made and asked by its worker alone."""

    def __init__(self, partition: Partition, executor: Executor) -> None:
        self._is_gone = threading.Event()
        self._found: Future[Opened] = executor.submit(read_again, partition)
        self._found.add_done_callback(lambda _: partition.ring())

    @property
    def is_done(self) -> bool:
        """True if `result` does not wait."""
        return self._found.done()

    def result(self) -> Opened:
        """What was read. Raises as `read_again`."""
        return self._found.result()

    def let_go(self) -> None:
        """Nobody wants it any more: close what it opens, whenever that is."""
        self._found.cancel()
        self._found.add_done_callback(self._leave)

    def _leave(self, found: Future[Opened]) -> None:
        if not found.cancelled() and found.exception() is None:
            found.result().journal.close()
        self._is_gone.set()

    @property
    def is_gone(self) -> bool:
        """True if what was let go is closed."""
        return self._is_gone.is_set()
