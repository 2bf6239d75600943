"""Health: whether a broker should be given work, and if not, why not.

Room: broker. Looks at flags that others keep; asks no worker, so that it answers when they hang.
Holds: what a restart or another broker would help with is a reason; what only consumers can help
with is a warning: without them it would never end.
See: docs/guides/monitoring.md; http/routes/health.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dejaqueue.broker.broker import RUNNING, Broker
from dejaqueue.broker.watching.clocks import clock_numbers
from dejaqueue.errors import DejaQError
from dejaqueue.journal.interface import Journal

SHOWN_MAX = 5
"""Failures that are told one by one."""


@dataclass(frozen=True, slots=True)
class Health:
    """How a broker is.

    Attributes:
        reasons: why it should get no work; empty = it should. For everybody: nothing that is named
            by users, and no path.
        warnings: what is wrong besides. For everybody, too.
        details: what its operators want to know of the reasons.
    """

    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    details: tuple[str, ...] = ()

    @property
    def is_ready(self) -> bool:
        """True if it should be given work."""
        return not self.reasons


def health_of(broker: Broker) -> Health:
    """How a broker is now. Cost: one look at each partition's flag, one question to the disk."""
    if broker.phase != RUNNING:
        return Health((broker.phase,))
    refusal = broker.site.refusal()
    if refusal is not None:
        return Health((str(refusal),))
    dead = sum(not worker.is_alive for worker in broker.workers)
    reasons = [f"{dead} of {len(broker.workers)} workers died"] if dead else []
    if broker.site.stands_by:
        reasons.append(f"a standby, {broker.standby.behind_us() / 1e6:.1f} s behind the archive")
    failures = list(_failures(broker))
    if failures:
        reasons.append(f"partitions that failed: {len(failures)}; start the broker anew")
    return Health(tuple(reasons), tuple(_warnings(broker)), tuple(failures[:SHOWN_MAX]))


def _failures(broker: Broker) -> Iterator[str]:
    for topic in broker.runtimes():
        for partition in topic.partitions:
            if partition.failure is not None:
                yield f"topic {topic.topic.name}, partition {partition.number}: {partition.failure}"


def _warnings(broker: Broker) -> Iterator[str]:
    clock = clock_numbers(broker)
    if clock.jump_us:
        yield f"the machine's clock jumped by {clock.jump_us / 1e6:+.3f} s: it is not believed yet"
    if clock.kept is False:
        yield "no time synchronisation keeps the machine's clock, says its kernel"
    if clock.apart_us:
        yield f"the clock is {clock.apart_us / 1e6:+.3f} s off, by those of the other brokers"
    if clock.still_us > broker.settings.clock.step_ms_max * 1_000:
        yield f"the time of a partition is {clock.still_us / 1e6:.3f} s ahead of the clock"
    for trouble in (broker.backups.trouble(), broker.standby.trouble):
        if trouble:
            yield trouble
    yield from _room_warnings(broker)


def _room_warnings(broker: Broker) -> Iterator[str]:
    short = () if broker.node is None else broker.node.disks.short
    if short:
        yield (
            f"the disk of {', '.join(short)} has less than cluster.reserve_bytes free: producers "
            "of the cluster are refused, consumers go on; make room there"
        )
        return
    for topic in broker.runtimes():
        for partition in topic.partitions:
            if partition.loaded:
                if not _has_room(partition.core.journal):
                    yield "the disk is full: producers are refused, consumers go on"
                return  # one disk for all


def _has_room(journal: Journal) -> bool:
    try:
        return journal.has_room(0)
    except DejaQError:
        return True  # it was closed just now; its partition says why
