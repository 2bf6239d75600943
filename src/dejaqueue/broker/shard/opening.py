"""Reading a partition: its snapshot, what was appended since, and a new epoch behind that.

Room: broker. Runs on the partition's worker; in a cluster beside it, several partitions at a time,
because a broker that takes over has to ask a server many times for each. What was read ahead of a
planned hand-over is gone on with (reading.py).
Holds: while a partition is being read its worker leaves it alone, so it is still touched by one
thread at a time; one that was closed meanwhile appends no epoch if that can be helped, and what was
opened is closed.
See: partition.py, `_load`; docs/guides/cluster.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import NamedTuple

from dejaqueue.broker.shard import entries
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.listener import Listener
from dejaqueue.broker.shard.ownership import LoneOwnership, Ownership
from dejaqueue.broker.shard.reading import StateReader
from dejaqueue.engine.commands import OpenEpoch
from dejaqueue.engine.views import PartitionViews
from dejaqueue.errors import Unavailable
from dejaqueue.journal.appending import append_together
from dejaqueue.journal.interface import Append, Entry, Journal

OPENERS = 16
"""Partitions that are read at once: most of the time each waits for a server."""


class JournalDoor:
    """How a partition gets at its journal.

    Attributes:
        ownership: whether it may.
        listener: hears what is read, and later what is appended.
        executor: where the journal is read, beside the worker; None = by the worker.
        comes_back: a journal that cannot be read is tried again though nobody asks: its server
            may be back, or this broker its owner again.
        stands_by: whether an archive is followed: then no epoch is begun.
        check_there: called when an epoch was begun, which keeps others out: raises if what is being
            read is not to be served any more.
        used_as: name and number of the topic, if it may have to be noted that it is used.
        take_ahead: what was read of it while another broker served it, whose journal is the
            caller's from then on; None = nothing was.
        is_closed: nobody wants what is being read any more.
    """

    def __init__(
        self,
        open_journal: Callable[[], Journal],
        *,
        ownership: Ownership | None = None,
        listener: Listener | None = None,
        executor: Executor | None = None,
        comes_back: bool = False,
        check_there: Callable[[], None] = lambda: None,
        stands_by: Callable[[], bool] = lambda: False,
        used_as: tuple[str, int] | None = None,
    ) -> None:
        self.open_journal = open_journal
        self.take_ahead: Callable[[], StateReader | None] = lambda: None
        self.stands_by = stands_by
        self.ownership: Ownership = LoneOwnership() if ownership is None else ownership
        self.listener = Listener() if listener is None else listener
        self.executor = executor
        self.comes_back = comes_back
        self.check_there = check_there
        self.used_as = used_as
        self.is_closed = False


class Opened(NamedTuple):
    """A partition as it was read.

    Attributes:
        tail: position of its last entry, which begins the epoch unless it `follows`.
        read_from: position of the snapshot, 0 = there was none.
        duration_ms: how long that took.
        follows: as PartitionCore has it.
        ahead: up to this position it had been read before.
    """

    views: PartitionViews
    journal: Journal
    tail: int
    epoch: int
    read_from: int
    duration_ms: int
    follows: bool = False
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class _Reading:
    """A partition that was read, before its epoch begins.

    Attributes:
        command, entry: what begins the epoch.
    """

    core: PartitionCore
    door: JournalDoor
    reader: StateReader
    command: OpenEpoch
    entry: Entry
    began_us: int

    def opened(self, tail: int) -> Opened:
        """Behind its epoch, whose entry has this position. Raises Unavailable; closes it then."""
        reader = self.reader
        try:
            self.door.check_there()
            effects = reader.views.apply(self.command)
            self.door.listener.replayed(tail, self.entry, effects)
        except BaseException:
            reader.journal.close()
            raise
        took_ms = (self.core.clock.now_us() - self.began_us) // 1_000
        return _opened(reader, tail, self.command.epoch, took_ms)


def _opened(
    reader: StateReader, tail: int, epoch: int, took_ms: int, *, follows: bool = False
) -> Opened:
    read = reader.read_from, took_ms, follows, reader.ahead
    return Opened(reader.views, reader.journal, tail, epoch, *read)


def read_again(core: PartitionCore, door: JournalDoor) -> Opened:
    """Read snapshot and journal. Raises Fenced, JournalDamaged, Unavailable.

    Of the core only what does not change is used: this may run beside its worker.
    """
    reading = _read(core, door)
    if isinstance(reading, Opened):
        return reading
    reader = reading.reader
    try:
        tail = reader.journal.append([reading.entry], reader.tail, reading.command.epoch)
    except BaseException:
        reader.journal.close()
        raise
    return reading.opened(tail)


def read_together(doors: Sequence[tuple[PartitionCore, JournalDoor]]) -> list[Future[Opened]]:
    """As `read_again` for several, whose epochs share syncs. What each raises is in its future."""
    found: list[Future[Opened]] = []
    readings: list[tuple[_Reading, Append, Future[Opened]]] = []
    for core, door in doors:
        future: Future[Opened] = Future()
        found.append(future)
        try:
            one = _read(core, door)
        except Exception as wrong:  # noqa: BLE001 - whoever asks for the result gets it
            future.set_exception(wrong)
            continue
        if isinstance(one, Opened):
            future.set_result(one)
            continue
        append = Append(one.reader.journal, [one.entry], one.reader.tail, one.command.epoch)
        readings.append((one, append, future))
    append_together([append for _, append, _ in readings])
    for one, append, future in readings:
        try:
            if append.error is not None:
                one.reader.journal.close()
                raise append.error
            future.set_result(one.opened(append.tail))
        except Exception as wrong:  # noqa: BLE001 - whoever asks for the result gets it
            future.set_exception(wrong)
    return found


def _read(core: PartitionCore, door: JournalDoor) -> _Reading | Opened:
    """Read snapshot and journal, and say how the epoch begins; a standby begins none."""
    began_us = core.clock.now_us()
    reader = _reader(core, door)
    journal, views = reader.journal, reader.views
    try:
        door.listener.reading(core.topic(), views.unnamed, reader.tail)
        reader.read_on(door.listener)
        journal.adopt(views.live_locators())
        if door.stands_by():
            took_ms = (core.clock.now_us() - began_us) // 1_000
            return _opened(reader, reader.tail, views.unnamed.epoch, took_ms, follows=True)
        now_ms = max(core.clock.utc_ms(), views.now_ms)
        command = OpenEpoch(now_ms, views.unnamed.epoch + 1)
        entry = entries.to_entry(command)
        # An epoch fences whoever serves the partition by now, so none is begun for nobody.
        if door.is_closed:
            raise Unavailable("the topic is closed", 1_000)
    except BaseException:
        journal.close()
        raise
    return _Reading(core, door, reader, command, entry, began_us)


def _reader(core: PartitionCore, door: JournalDoor) -> StateReader:
    """What knows of all entries, and has read some: those of the snapshot, or what was read ahead.

    Raises:
        JournalDamaged, Unavailable.
    """
    ahead = door.take_ahead()
    if ahead is not None:
        try:
            if ahead.take_over():
                if core.topic().history and ahead.tail != ahead.read_from:
                    ahead.restart()  # who records it is to hear of each entry
                return ahead
        except BaseException:
            ahead.journal.close()
            raise
        ahead.journal.close()
    journal = door.open_journal()
    try:
        return StateReader(core.number, journal)
    except BaseException:
        journal.close()
        raise


class Opening:
    """A partition that another thread reads, or that was read with others; made and asked by its
    worker alone."""

    def __init__(self, opened: Future[Opened]) -> None:
        self._is_gone = threading.Event()
        self._opened = opened

    @classmethod
    def begin(cls, core: PartitionCore, door: JournalDoor, executor: Executor) -> Opening:
        """Have another thread read it; the partition is rung when that is done."""
        opened = executor.submit(read_again, core, door)
        opened.add_done_callback(lambda _: core.ring())
        return cls(opened)

    @property
    def is_done(self) -> bool:
        """True if `result` does not wait."""
        return self._opened.done()

    def result(self) -> Opened:
        """What was read. Raises as `read_again`."""
        return self._opened.result()

    def let_go(self) -> None:
        """Nobody wants it any more: close what it opens, whenever that is."""
        self._opened.cancel()
        self._opened.add_done_callback(self._leave)

    def _leave(self, opened: Future[Opened]) -> None:
        if not opened.cancelled() and opened.exception() is None:
            opened.result().journal.close()
        self._is_gone.set()

    @property
    def is_gone(self) -> bool:
        """True if what was let go is closed."""
        return self._is_gone.is_set()
