"""The cut: for one moment no partition applies anything, and where each of them stands is noted.

Room: broker. Called on a thread of its own; workers wait in it for as long as it takes to read a
number for each partition, in a cluster until every broker has stopped its own.
Holds: what is durable in one partition at the cut was caused by nothing that is not durable there
in the others, since no worker applied anything between the first number and the last; what was
acknowledged before is in the cut; until `let_go`, journals give nothing of it back.
See: copying.py, which copies up to the cut; part.py, a broker's part of a cluster's cut;
docs/adr/0047-backups-are-pieces-and-a-manifest.md, 0075.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol, TypeVar

from dejaqueue.broker.partition.worker import PartitionWorker
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.catalogue.state import CatalogueState
from dejaqueue.clock import Clock, Wake
from dejaqueue.errors import Elsewhere, TopicUnknown, Unavailable
from dejaqueue.journal.interface import Journal
from dejaqueue.model import Topic

ANSWER_SECONDS_MAX: Final = 60.0
"""A partition that takes longer to be read than this fails the backup; it can be taken again."""
PAUSE_SECONDS_MAX: Final = 10.0
"""Workers wait for each other at the cut for so long at most, then it is tried again."""
TRIES: Final = 5
T = TypeVar("T")
_LOOK_US: Final = 2_000


class CutPort(Protocol):
    """A broker, as a cut sees it; what the members do is said in broker.py."""

    clock: Clock

    @property
    def workers(self) -> tuple[PartitionWorker, ...]: ...  # noqa: D102
    def runtime(self, name: str) -> ServedTopic: ...  # noqa: D102
    def runtimes(self) -> list[ServedTopic]: ...  # noqa: D102
    def serves(self, name: str) -> bool: ...  # noqa: D102
    def served_names(self, topic: Topic) -> tuple[str, ...]: ...  # noqa: D102
    def catalogue_state(self) -> CatalogueState: ...  # noqa: D102


class HeldPartition(NamedTuple):
    """A partition at the cut.

    Attributes:
        journal: it, open; what is in it up to `position` stays there.
        position: of the last entry that is in the cut.
    """

    served: ServedTopic
    core: PartitionCore
    journal: Journal
    position: int

    def reached(self) -> None:
        """A backup has it: entries up to here need not be kept for one any more."""
        self.core.floor.reach(self.position)
        self.core.ring()

    @property
    def place(self) -> str:
        """For people and errors."""
        return f"{self.served.topic.name}/{self.core.number}"


class Cut(NamedTuple):
    """All partitions of a broker, at one moment.

    Attributes:
        at_ms: when that was, UTC; no entry of it is of a later time.
        pause_us: how long workers waited for it.
        catalogue: what there was.
    """

    at_ms: int
    pause_us: int
    partitions: tuple[HeldPartition, ...]
    catalogue: CatalogueState


class BrokerCut(NamedTuple):
    """Where the partitions of a broker stand while its workers are stopped.

    Attributes:
        now_ms: the latest time of an entry in them, and at least that of the clock.
    """

    partitions: tuple[HeldPartition, ...]
    now_ms: int


class Holding:
    """What of a broker keeps its journals as they are, for a backup.

    Attributes:
        names: topics, or shards of them, that were used, and are served here.
    """

    def __init__(self, broker: CutPort) -> None:
        self._broker = broker
        self._known: dict[PartitionCore, ServedTopic] = {}
        self.names: set[str] = set()

    def follow(self) -> None:
        """Hold what is not held yet, and return when no snapshot of it is on its way.

        Topics that were used before are served from now on, as by anybody who looks at them.

        Raises:
            JournalDamaged: a partition cannot be read. Unavailable: it cannot be read now.
        """
        broker = self._broker
        rows = broker.catalogue_state().rows.values()
        for topic in [row.topic for row in rows if row.is_used]:
            for name in broker.served_names(topic):
                if name not in self.names and broker.serves(name):
                    self._serve_and_hold(name)
        for core, served in _loaded(broker).items():
            if core not in self._known:  # it came into use meanwhile
                answer = served.look(core.number, _held)
                self._known[_answered(answer, served.served_as)] = served
                self.names.add(served.served_as)
        self._wait_for_snapshots()

    def _serve_and_hold(self, name: str) -> None:
        try:
            served = self._broker.runtime(name)
        except (TopicUnknown, Elsewhere):
            return  # it was deleted a moment ago, or went to another broker
        numbers = [one for one in served.partitions.numbers if served.has_journal(one)]
        for answer in [served.look(number, _held) for number in numbers]:
            self._known[_answered(answer, name)] = served
        self.names.add(name)

    def _wait_for_snapshots(self) -> None:
        """Return when no snapshot is on its way: none is begun of what is held."""
        clock, wake = self._broker.clock, Wake()
        until_us = clock.now_us() + round(ANSWER_SECONDS_MAX * 1_000_000)
        for core, served in self._known.items():
            while served.partitions[core.number].maintenance.busy:
                if clock.now_us() > until_us:
                    name = f"{served.topic.name}/{core.number}"
                    raise Unavailable(f"backup: a snapshot of {name} takes too long", 1_000)
                core.ring()
                clock.wait_until(clock.now_us() + _LOOK_US, wake)

    def noted(self) -> BrokerCut | None:
        """Where all stand, while the workers are stopped; None = one came into use that is not
        held."""
        # The committers go on: what lands now, or later, was applied before, and caused by nothing
        # that is answered from here on.
        found = tuple(
            HeldPartition(served, core, core.journal, core.position)
            for core, served in self._known.items()
        )
        now_ms = max([core.views.now_ms for core in self._known], default=0)
        if any(core not in self._known for core in _loaded(self._broker)):
            return None
        return BrokerCut(found, max(now_ms, self._broker.clock.utc_ms()))

    def let_go(self) -> None:
        """Give back again what is not needed."""
        for core in self._known:
            core.let_go()


class Pause:
    """The workers of a broker, stopped between two steps until `end`, but not for ever."""

    def __init__(self, broker: CutPort) -> None:
        self._broker, self._go = broker, threading.Event()
        arrived = threading.Semaphore(0)

        def wait() -> None:
            arrived.release()
            self._go.wait(PAUSE_SECONDS_MAX)

        self._arrived = arrived
        self._began_us = broker.clock.now_us()
        for worker in broker.workers:
            worker.call(wait)

    def has_come(self, seconds_max: float) -> bool:
        """Whether all have stopped, waited for so long at most."""
        return all(self._arrived.acquire(timeout=seconds_max) for _ in self._broker.workers)

    def end(self) -> int | None:
        """Have them go on; how long they waited, in µs; None = so long that some have gone on by
        themselves, so that nothing that was seen meanwhile is of one moment."""
        self._go.set()
        pause_us = self._broker.clock.now_us() - self._began_us
        return None if pause_us > PAUSE_SECONDS_MAX * 1_000_000 else pause_us


def serve_used(broker: CutPort) -> None:
    """Return when every partition that was ever used here was read: all its logs are open then.

    Raises:
        JournalDamaged: a partition cannot be read. Unavailable: it cannot be read now.
    """
    rows = broker.catalogue_state().rows.values()
    for topic in [row.topic for row in rows if row.is_used]:
        for name in broker.served_names(topic):
            try:
                served = broker.runtime(name)
            except (TopicUnknown, Elsewhere):
                continue  # it was deleted a moment ago
            numbers = [one for one in served.partitions.numbers if served.has_journal(one)]
            for answer in [served.look(number, lambda core: core.number) for number in numbers]:
                _answered(answer, name)


def _answered(answer: Future[T], name: str) -> T:
    """What a partition of a topic answers. Raises Unavailable: nothing, for long; as the answer."""
    try:
        return answer.result(ANSWER_SECONDS_MAX)
    except TimeoutError:
        raise Unavailable(f"topic {name} is not read yet", 1_000) from None


@contextmanager
def held_cut(broker: CutPort, note: Callable[[], None] = lambda: None) -> Iterator[Cut]:
    """A cut of a broker that is alone, whose partitions keep what is in their journals until the
    block ends.

    Args:
        note: called before the workers stop, when all logs are open that have anything; again
            where that has to be done again.

    Raises:
        JournalDamaged: a partition cannot be read. Unavailable: it cannot be read now, or a worker
            hangs.
    """
    holding = Holding(broker)
    try:
        for _ in range(TRIES):
            holding.follow()
            note()
            cut = _cut(broker, holding)
            if cut is not None:
                yield cut
                return
        raise Unavailable("backup: partitions keep coming, or a worker hangs; take it again", 1_000)
    finally:
        holding.let_go()


def _cut(broker: CutPort, holding: Holding) -> Cut | None:
    """Where all partitions stand while no worker does anything; None = one did not stop in time, or
    a partition came into use that is not held."""
    pause, noted = Pause(broker), None
    try:
        if pause.has_come(PAUSE_SECONDS_MAX / 2):
            noted = holding.noted()
            catalogue = broker.catalogue_state()
    finally:
        pause_us = pause.end()
    if noted is None or pause_us is None:
        return None
    return Cut(noted.now_ms, pause_us, noted.partitions, catalogue)


def _held(core: PartitionCore) -> PartitionCore:
    core.hold()
    return core


def _loaded(broker: CutPort) -> dict[PartitionCore, ServedTopic]:
    return {
        partition.core: served
        for served in broker.runtimes()
        for partition in served.partitions
        if partition.loaded
    }
