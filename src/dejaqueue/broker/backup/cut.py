"""The cut: for one moment no partition applies anything, and where each of them stands is noted.

Room: broker. Called on a thread of its own; workers wait in it for as long as it takes to read a
number for each partition.
Holds: what is durable in one partition at the cut was caused by nothing that is not durable there
in the others, since no worker applied anything between the first number and the last; what was
acknowledged before is in the cut; until `let_go`, journals give nothing of it back.
See: copying.py, which copies up to the cut; docs/adr/0047-backups-are-pieces-and-a-manifest.md.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

from dejaqueue.broker.partition.worker import PartitionWorker
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.lone_catalogue import LoneCatalogue
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.catalogue.state import CatalogueState
from dejaqueue.clock import Clock, Wake
from dejaqueue.errors import Elsewhere, Refused, TopicUnknown, Unavailable
from dejaqueue.journal.interface import Journal
from dejaqueue.model import Topic

ANSWER_SECONDS_MAX: Final = 60.0
"""A partition that takes longer to be read than this fails the backup; it can be taken again."""
PAUSE_SECONDS_MAX: Final = 10.0
"""Workers wait for each other at the cut for so long at most, then it is tried again."""
TRIES: Final = 5
_LOOK_US: Final = 2_000


class CutPort(Protocol):
    """A broker, as a cut sees it; what the members do is said in broker.py."""

    clock: Clock
    alone: LoneCatalogue | None

    @property
    def workers(self) -> tuple[PartitionWorker, ...]: ...  # noqa: D102
    def runtime(self, name: str) -> ServedTopic: ...  # noqa: D102
    def runtimes(self) -> list[ServedTopic]: ...  # noqa: D102


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


@contextmanager
def held_cut(broker: CutPort) -> Iterator[Cut]:
    """A cut, whose partitions keep what is in their journals until the block ends.

    Topics that were used before are served from now on, as by anybody who looks at them.

    Raises:
        Refused: a broker of a cluster. JournalDamaged: a partition cannot be read. Unavailable: it
            cannot be read now, or a worker hangs.
    """
    known: dict[PartitionCore, ServedTopic] = {}
    try:
        for topic in _catalogue(broker).used():
            _serve_and_hold(broker, topic, known)
        for _ in range(TRIES):
            for core, served in _loaded(broker).items():
                if core not in known:  # it came into use meanwhile
                    known[served.look(core.number, _held).result(ANSWER_SECONDS_MAX)] = served
            _wait_for_snapshots(broker, known)
            cut = _cut(broker, known)
            if cut is not None:
                yield cut
                return
        raise Unavailable("backup: partitions keep coming, or a worker hangs; take it again", 1_000)
    finally:
        for core in known:
            core.let_go()


def _catalogue(broker: CutPort) -> LoneCatalogue:
    if broker.alone is None:
        raise Refused("a broker of a cluster takes no backups yet")
    return broker.alone


def _serve_and_hold(broker: CutPort, topic: Topic, known: dict[PartitionCore, ServedTopic]) -> None:
    try:
        served = broker.runtime(topic.name)
    except (TopicUnknown, Elsewhere):
        return  # it was deleted a moment ago
    numbers = [one for one in served.partitions.numbers if served.has_journal(one)]
    for answer in [served.look(number, _held) for number in numbers]:
        known[answer.result(ANSWER_SECONDS_MAX)] = served


def _held(core: PartitionCore) -> PartitionCore:
    core.hold()
    return core


def _wait_for_snapshots(broker: CutPort, known: dict[PartitionCore, ServedTopic]) -> None:
    """Return when no snapshot is on its way: none is begun of what is held."""
    clock, wake = broker.clock, Wake()
    until_us = clock.now_us() + round(ANSWER_SECONDS_MAX * 1_000_000)
    for core, served in known.items():
        while served.partitions[core.number].maintenance.busy:
            if clock.now_us() > until_us:
                name = f"{served.topic.name}/{core.number}"
                raise Unavailable(f"backup: a snapshot of {name} takes too long", 1_000)
            core.ring()
            clock.wait_until(clock.now_us() + _LOOK_US, wake)


def _cut(broker: CutPort, known: dict[PartitionCore, ServedTopic]) -> Cut | None:
    """Where all partitions stand while no worker does anything; None = one did not stop in time, or
    a partition came into use that is not held."""
    go, arrived = threading.Event(), threading.Semaphore(0)

    def wait() -> None:
        arrived.release()
        go.wait(PAUSE_SECONDS_MAX)

    began_us = broker.clock.now_us()
    try:
        for worker in broker.workers:
            worker.call(wait)
        if not all(arrived.acquire(timeout=PAUSE_SECONDS_MAX / 2) for _ in broker.workers):
            return None
        # The committers go on: what lands now, or later, was applied before, and caused by nothing
        # that is answered from here on.
        found = tuple(
            HeldPartition(served, core, core.journal, core.position)
            for core, served in known.items()
        )
        now_ms = max([core.views.now_ms for core in known], default=0)
        catalogue = _catalogue(broker).state()
        is_complete = all(core in known for core in _loaded(broker))
    finally:
        go.set()
    pause_us = broker.clock.now_us() - began_us
    if not is_complete or pause_us > PAUSE_SECONDS_MAX * 1_000_000:
        return None
    return Cut(max(now_ms, broker.clock.utc_ms()), pause_us, found, catalogue)


def _loaded(broker: CutPort) -> dict[PartitionCore, ServedTopic]:
    return {
        partition.core: served
        for served in broker.runtimes()
        for partition in served.partitions
        if partition.loaded
    }
