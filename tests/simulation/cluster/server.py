"""The server that keeps the records of a simulated cluster, and the lines to it.

Holds: an append is compared and made in one step, whenever it arrives, also long after whoever sent
it has given up on it or died (duties 3 to 5 of journal/records/interface.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from dejaqueue.errors import Fenced, ResourceExhausted, Unavailable
from dejaqueue.journal.records.interface import Bytes, RecordLog, RecordStore
from dejaqueue.journal.records.memory import MemoryRecords, MemoryRecordStore
from dejaqueue.testing.simulation.disk import Died
from dejaqueue.testing.simulation.threads import Gone
from dejaqueue.testing.simulation.world import Life, World

Answer = TypeVar("Answer")


class Server:
    """What outlives the brokers.

    Args:
        record_bytes_max: of one record; if that is little, appends of many rows are split.

    Attributes:
        is_down: it answers nobody.
        is_full: it has no room for more.
        hung: journals, by topic and partition, about which no call is answered until they are
            taken out of here.
        appends, lost, late: how many there were; how many had no answer; how many of these came in
            after their sender had given up on them.
    """

    def __init__(self, record_bytes_max: int) -> None:
        self.kept = MemoryRecordStore(record_bytes_max)
        self.is_down = False
        self.is_full = False
        self.hung: set[tuple[str, int]] = set()
        self.appends = self.lost = self.late = 0


class Line(RecordStore):
    """One broker's way to the server.

    Args:
        life: of the broker; what it asks after its end is not asked.
        trouble: the share of calls that get lost though nothing is cut.
        late_us_max: so late arrives at most what its sender has given up on.

    Attributes:
        is_cut: nothing gets through.
        dies_at: appends until the broker dies in one; None = never.
        sleeps_at: appends until the broker falls asleep when one was made, before it hears of that;
            None = never.
        falls_asleep: called then.
        shortens: asked at the next append of several records how many of them arrive, the answer
            being lost; None = nobody asks.
        takes_time: called on the way to an append, and on the way back.
        waits_while: called by whoever has to wait while something is true.
    """

    summary = "simulated"

    def __init__(
        self, world: World, life: Life, server: Server, trouble: float, late_us_max: int
    ) -> None:
        self.world, self.life, self.server = world, life, server
        self.record_bytes_max = server.kept.record_bytes_max
        self._trouble, self.late_us_max = trouble, late_us_max
        self.is_cut = False
        self.dies_at: int | None = None
        self.sleeps_at: int | None = None
        self.falls_asleep: Callable[[], None] = lambda: None
        self.shortens: Callable[[int], int] | None = None
        self.takes_time: Callable[[], None] = lambda: None
        self.waits_while: Callable[[Callable[[], bool]], None] = lambda is_so: None

    def heal(self) -> None:
        """Everything gets through, at once."""
        self.takes_time = lambda: None
        self.is_cut, self.dies_at, self._trouble = False, None, 0.0
        self.sleeps_at = self.shortens = None

    def is_lost(self) -> bool:
        """True if what is asked now gets no answer. Raises Gone."""
        if self.life.over:
            raise Gone
        if self.is_cut or self.server.is_down:
            return True
        return bool(self._trouble) and self.world.chance(self._trouble)

    def ask(self, call: Callable[[], Answer]) -> Answer:
        """Read something. Raises Unavailable."""
        if self.is_lost():
            raise Unavailable("the server does not answer", 100)
        return call()

    def tell(self, call: Callable[[], object]) -> None:
        """Change something; without an answer it may have been done, or may be later."""
        if not self.is_lost():
            call()
            return
        fate = self.world.random.random()
        if fate < 0.3:
            call()
        elif fate < 0.5:

            def late() -> None:
                call()

            self.world.after(self.world.between(1_000, self.late_us_max), late)
        raise Unavailable("the server does not answer", 100)

    def pass_hang(self, place: tuple[str, int]) -> None:
        """Return when the server answers about this journal."""
        if place in self.server.hung:
            self.waits_while(lambda: place in self.server.hung)

    def open(self, topic: str, partition: int) -> RecordLog:
        """See RecordStore.open."""
        place = (topic, partition)
        self.pass_hang(place)
        return _Log(self, place, self.ask(lambda: self.server.kept.open(topic, partition)))

    def drop(self, topic: str) -> None:
        """See RecordStore.drop."""
        self.tell(lambda: self.server.kept.drop(topic))

    def put_object(self, name: str, content: bytes | memoryview) -> None:
        """See RecordStore.put_object."""
        copy = bytes(content)
        if self.server.is_full:
            raise ResourceExhausted("the server is full", 100)
        self.tell(lambda: self.server.kept.put_object(name, copy))

    def get_object(self, name: str) -> bytes | None:
        """See RecordStore.get_object."""
        return self.ask(lambda: self.server.kept.get_object(name))

    def object_names(self, prefix: str) -> list[str]:
        """See RecordStore.object_names."""
        return self.ask(lambda: self.server.kept.object_names(prefix))

    def drop_objects(self, names: Sequence[str]) -> None:
        """See RecordStore.drop_objects."""
        self.tell(lambda: self.server.kept.drop_objects(names))

    def close(self) -> None:
        """Nothing to do."""


class _Log(RecordLog):
    def __init__(self, line: Line, place: tuple[str, int], kept: MemoryRecords) -> None:
        self._line, self._place, self._kept = line, place, kept

    def last(self) -> int:
        self._line.pass_hang(self._place)
        return self._line.ask(self._kept.last)

    def append(self, after: int, records: Sequence[Sequence[Bytes]]) -> None:
        line, server, world = self._line, self._line.server, self._line.world
        copies = [[b"".join(pieces)] for pieces in records]
        server.appends += 1
        if server.is_full and not line.is_cut:
            raise ResourceExhausted("the server is full", 100)
        if line.dies_at is not None:
            line.dies_at -= 1
            if line.dies_at <= 0:
                line.dies_at = None
                if world.chance(0.5):
                    self._arrive(after, copies)
                raise Died("append")
        line.pass_hang(self._place)
        line.takes_time()
        if line.shortens is not None and len(copies) > 1 and not line.is_cut:
            shorten, line.shortens = line.shortens, None
            with contextlib.suppress(Fenced):
                self._kept.append(after, copies[: shorten(len(copies))])
            raise Unavailable("the server does not answer", 100)
        if not line.is_lost():
            self._kept.append(after, copies)
            if line.sleeps_at is not None:
                line.sleeps_at -= 1
                if line.sleeps_at <= 0:
                    line.sleeps_at = None
                    line.falls_asleep()
            line.takes_time()
            return
        server.lost += 1
        fate = world.random.random()
        if fate < 0.3:
            self._arrive(after, copies)
        elif fate < 0.5:
            server.late += 1
            delay_us = world.between(1_000, line.late_us_max)
            world.after(delay_us, lambda: self._arrive(after, copies))
        raise Unavailable("the server does not answer", 100)

    def _arrive(self, after: int, copies: list[list[bytes]]) -> None:
        """What nobody hears of: all of it, or a part from the beginning, or nothing."""
        count = self._line.world.between(1, len(copies))
        with contextlib.suppress(Fenced):
            self._kept.append(after, copies[:count])

    def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        self._line.pass_hang(self._place)
        return self._line.ask(lambda: self._kept.read(first, end))

    def drop_before(self, number: int) -> None:
        self._line.pass_hang(self._place)
        self._line.tell(lambda: self._kept.drop_before(number))

    def byte_count(self) -> int:
        self._line.pass_hang(self._place)
        return self._line.ask(self._kept.byte_count)

    def close(self) -> None:
        self._line.pass_hang(self._place)
