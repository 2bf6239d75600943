"""Topics that are read here while another broker serves them still, as they are to come here.

Room: broker. Any thread may ask and take; journals are read on threads of their own, a few at a
time, since this broker serves other topics meanwhile.
Holds: nothing is appended or given back; each reading is taken once, or let go of and closed; one
that nobody asks about any more is let go of after IDLE_SECONDS_MAX.
See: shard/reading.py; served_topic.py, which takes; cluster/next_owners.py, which has it asked for;
docs/adr/0103.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from functools import partial

from dejaqueue.broker.shard.listener import Listener
from dejaqueue.broker.shard.reading import StateReader
from dejaqueue.broker.topic.threads import Threads
from dejaqueue.clock import Clock
from dejaqueue.journal.interface import JournalStore
from dejaqueue.model import Topic
from dejaqueue.topic_names import parse_shard, topic_of

READERS = 8
"""Partitions that are read ahead at once."""
IDLE_SECONDS_MAX = 30.0
"""Whoever hands a topic over asks every few milliseconds until it is read."""

log = logging.getLogger("dejaqueue.broker")


class _Reading:
    """A partition that is read, and read on once more.

    Args:
        begun: where it is read.
    """

    def __init__(self, begun: Future[StateReader]) -> None:
        self._begun = begun
        self._read_on: Future[StateReader] | None = None

    @property
    def is_done(self) -> bool:
        """Whether nothing is being read, or is to be."""
        return (self._read_on or self._begun).done()

    def read_on(self, executor: Executor, *, replays: bool) -> None:
        """It is read: read what was appended since."""
        self._read_on = executor.submit(partial(_read_on, self._begun, replays=replays))

    def newest(self) -> Future[StateReader] | None:
        """What was read, or is being read; nothing more is begun. None: nothing was."""
        if self._read_on is not None and not self._read_on.cancel():
            return self._read_on
        return None if self._begun.cancel() else self._begun


@dataclass(slots=True)
class _Ahead:
    """What is read of a topic, or of a shard of one.

    Attributes:
        journals: what the topic is called in the store; no other topic ever has that name.
        replays: whether entries are applied; False = the snapshot is read, and no more.
        readings: by number of the partition.
        reads_on: the first partitions were read long before the last ones, so all are read on.
    """

    journals: str
    replays: bool
    asked_us: int
    readings: dict[int, _Reading] = field(default_factory=dict)
    reads_on: bool = False


class ReadingsAhead:
    """What is read ahead by one broker.

    Args:
        threads: where it is read.
        is_served: whether a topic, or a shard of one, is served here already.
    """

    def __init__(self, threads: Threads, clock: Clock, is_served: Callable[[str], bool]) -> None:
        self._executor = threads.executor("dejaq-ahead", READERS)
        self._clock, self._is_served = clock, is_served
        self._lock = threading.Lock()
        self._topics: dict[str, _Ahead] = {}
        self._leaving: dict[Future[StateReader], str] = {}
        """What was let go of and is not closed yet, as it is being read, with its topic."""
        self._closed = False

    def ask(self, name: str, topic: Topic, journals: str, store: JournalStore) -> bool:
        """Have a topic read, or a shard of one. Returns at once.

        Returns:
            Whether nothing more is to be waited for: it is read, or cannot be.
        """
        if not store.reads_ahead:
            return True
        with self._lock:
            known = self._topics.get(name)
            if self._closed or (known is None and self._is_served(name)):
                return True
            if known is None or known.journals != journals:
                self._forget(name)
                known = self._topics[name] = self._begun(name, topic, journals, store)
            known.asked_us = self._clock.now_us()
            is_read = all(one.is_done for one in known.readings.values())
            if is_read and not known.reads_on:
                known.reads_on, is_read = True, False
                for one in known.readings.values():
                    one.read_on(self._executor, replays=known.replays)
        if self._is_served(name):  # it came here meanwhile, and did not see this
            self.let_go(name)
        return is_read

    def _begun(self, name: str, topic: Topic, journals: str, store: JournalStore) -> _Ahead:
        shard = parse_shard(name)
        first, step = (0, 1) if shard is None else shard[1:]
        # Whoever records it is to hear of each entry: those are read when it is served.
        ahead = _Ahead(journals, not topic.history, self._clock.now_us())
        for number in range(first, topic.partitions, step):
            read = partial(_read, store, journals, number, replays=ahead.replays)
            ahead.readings[number] = _Reading(self._executor.submit(read))
        return ahead

    def take(self, name: str, journals: str, number: int) -> StateReader | None:
        """What was read of a partition, for whoever serves it from now on; waits for what is being
        read. None: nothing was, or it could not be."""
        with self._lock:
            known = self._topics.get(name)
            if known is None or known.journals != journals:
                return None
            reading = known.readings.pop(number, None)
            if not known.readings:
                del self._topics[name]
        newest = None if reading is None else reading.newest()
        if newest is None:
            return None
        try:
            return newest.result()
        except Exception as wrong:  # noqa: BLE001 - it is read anew, which says what is wrong
            log.info("%s, partition %d was not read ahead: %s", name, number, wrong)
            return None

    def let_go(self, name: str) -> None:
        """A topic, or a shard of one, does not come here: close what was read of it."""
        with self._lock:
            self._forget(name)

    def let_go_unless(self, is_there: Callable[[str], bool]) -> None:
        """Close what was read of topics that are not there any more."""
        for name in [name for name in list(self._topics) if not is_there(topic_of(name))]:
            self.let_go(name)

    def let_go_idle(self) -> None:
        """Close what nobody has asked about, or taken, for long."""
        idle_us = self._clock.now_us() - round(IDLE_SECONDS_MAX * 1e6)
        for name, known in list(self._topics.items()):
            if known.asked_us < idle_us:
                log.info("%s was read ahead, and does not come here", name)
                self.let_go(name)

    def has(self, name: str) -> bool:
        """Whether a journal of a topic, or of a shard of one, is open here to be read."""
        return name in self._topics or name in list(self._leaving.values())

    def close(self) -> None:
        """Close all of it. Twice is fine."""
        self._closed = True
        for name in list(self._topics):
            self.let_go(name)
        self._executor.shutdown()

    def _forget(self, name: str) -> None:
        known = self._topics.pop(name, None)
        for reading in () if known is None else known.readings.values():
            newest = reading.newest()
            if newest is not None:
                self._leaving[newest] = name
                newest.add_done_callback(self._close)

    def _close(self, reading: Future[StateReader]) -> None:
        if reading.exception() is None:
            reading.result().journal.close()
        del self._leaving[reading]


def _read(store: JournalStore, journals: str, number: int, *, replays: bool) -> StateReader:
    """Read a partition that another broker serves. Raises JournalDamaged, Unavailable."""
    journal = store.open_ahead(journals, number)
    try:
        reader = StateReader(number, journal)
        if replays:
            reader.read_on(Listener())
        return reader
    except BaseException:
        journal.close()
        raise


def _read_on(before: Future[StateReader], *, replays: bool) -> StateReader:
    """Read what was appended since. Raises as `_read`; closes it then."""
    reader = before.result()
    try:
        reader.follow()
        if replays:
            reader.read_on(Listener())
        return reader
    except BaseException:
        reader.journal.close()
        raise
