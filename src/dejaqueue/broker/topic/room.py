"""Room on the disk: what nobody needs any more is given back, also where nobody asks.

A partition gives segments back when two snapshots cover them. One that is not used takes none by
itself, and one that is not even read cannot. So after a start those that take much room are read,
one after the other; and when a producer is refused because the disk is full, all are asked.

Room: broker. Rings partitions; what they then do is in maintenance.py.
Holds: one partition is read at a time, so that whoever asks for another one waits for one at most.
See: docs/guides/backpressure.md; tests/integration/test_room.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.clock import Clock
from dejaqueue.errors import DejaQError
from dejaqueue.journal.interface import JournalStore
from dejaqueue.model import Topic, TopicKind
from dejaqueue.subscriptions import has_ephemeral

OPEN_BYTES = 2 << 20
"""A partition whose journal takes less on the disk is left alone until it is used."""
ASK_US = 1_000_000
"""While producers are refused, the others are asked this often."""


class Room:
    """Of all topics of a broker.

    Args:
        topics: those that are served now.
        serve: begins to serve one, by name.

    Attributes:
        wanted_count: how often room was wanted.
    """

    def __init__(
        self,
        topics: Callable[[], Iterable[ServedTopic]],
        serve: Callable[[str], ServedTopic],
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._serve = serve
        self._clock = clock
        self._asked_us: int | None = None
        self._open_bytes = OPEN_BYTES
        self._unread: deque[tuple[str, int]] = deque()
        self._taken_bytes: Callable[[str, int], int] = lambda _topic, _partition: 0
        self.wanted_count = 0

    def begin(
        self, store: JournalStore, topics: Iterable[Topic], *, reads_all: bool = False
    ) -> None:
        """After a start: wake what has something to do though nobody asks.

        Args:
            topics: of a broker that is alone, those that were ever used.
            reads_all: what takes little room, too: until a partition was read nobody knows what of
                it is done.
        """
        store.ask = self._asked
        if reads_all:
            self._open_bytes = -1 if store.is_remote else 0  # a server tells nobody what it takes
        self._taken_bytes = store.taken_bytes
        for topic in topics:
            if topic.kind is TopicKind.CRON:
                self._serve(topic.name).ring_all()  # its entries fire
                continue
            if has_ephemeral(topic.subscriptions):
                self._serve(topic.name)  # it looks whether anybody comes
            for number in range(topic.partitions):
                if store.taken_bytes(topic.name, number) > self._open_bytes:
                    self._unread.append((topic.name, number))
        self._read_next()

    def _asked(self, wanted: list[tuple[str, int]]) -> None:
        """Partitions keep room of a log that they share with others: have them look."""
        topics: dict[str, list[ServedTopic]] = {}
        for one in self._topics():  # shards of a topic have their journals under one name
            topics.setdefault(one.journals, []).append(one)
        for journals, number in wanted:
            try:
                # Nobody may have used it since the start. Of a broker that is alone, journals are
                # called what the topic is.
                found = topics.get(journals) or [self._serve(journals)]
            except DejaQError:  # it was deleted meanwhile, or the broker is stopping
                continue
            for topic in found:
                if number in topic.partitions.numbers:
                    topic.partitions[number].ring()

    def _read_next(self) -> None:
        while self._unread:
            name, number = self._unread.popleft()
            # Once one partition of a shard is read, it is known which of the others take much.
            if self._taken_bytes(name, number) <= self._open_bytes:
                continue
            try:
                reading = self._serve(name).look(number, lambda _: None)
            except DejaQError:  # it was deleted meanwhile, or the broker is stopping
                continue
            reading.add_done_callback(self._was_read)
            return

    def _was_read(self, _: Future[None]) -> None:
        self._read_next()  # whatever came of it: the partition has said so in the log

    def want(self) -> None:
        """The disk is full, and a producer was refused. On any worker; does not block."""
        now_us = self._clock.now_us()
        if self._asked_us is not None and 0 <= now_us - self._asked_us < ASK_US:
            return
        self._asked_us = now_us
        self.wanted_count += 1
        for topic in self._topics():
            for partition in topic.partitions:
                if partition.loaded:
                    partition.ring()
