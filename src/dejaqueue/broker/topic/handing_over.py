"""Letting go of partitions: at a stop, or of a topic that another broker will serve.

Room: broker. `prepare` runs on the thread that gives, while the topic is still served; `finish`,
`let_go` and `drop` on each partition's worker, or beside it where the journal is on a server, which
may hang.
Holds: what was acknowledged is in the journal before the partition is closed, and what is on its
way to consumers was read from it: a lease whose rows never come would run out first. A snapshot
lets the next owner read little; one that would save it next to nothing is not taken.
See: broker.py, `give`; cluster/node.py, which says so to the others afterwards.
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from dejaqueue.broker import news
from dejaqueue.broker.consumers.gathering import keep
from dejaqueue.broker.partition.partition import Partition
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.maintenance import Maintenance
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.broker.topic.served_view import moved
from dejaqueue.clock import Clock
from dejaqueue.errors import DejaQError

ENTRIES_MAX = 200
"""So many entries without a snapshot are left to the next owner: it reads them in milliseconds."""
PREPARE_SECONDS_MAX = 30.0
"""Then it is given as it is; its next owner reads for longer."""
SNAPSHOT_WRITERS = 4
"""Snapshots that are written at once in a cluster: each waits for a server most of the time."""
KEPT_BYTES_MAX = 64 << 20
"""Of what is on its way to consumers so much is read for each partition before it is closed. Leases
of the rest run out; usual consumers let a thousand messages be on their way."""


def prepare(topic: ServedTopic, clock: Clock) -> None:
    """Take a snapshot of each partition that needs one, while they go on serving.

    One that nobody has used here is not read for that: in a hundred partitions of a new topic, that
    made as many streams of JetStream only to see that there was nothing in them.
    """
    until_us = clock.now_us() + round(PREPARE_SECONDS_MAX * 1e6)

    def left_seconds() -> float:
        return max(0, until_us - clock.now_us()) / 1e6

    asked = [
        topic.look(partition.number, partial(_begin_snapshot, partition.maintenance))
        for partition in topic.partitions
        if partition.loaded
    ]
    for answer in asked:
        with suppress(DejaQError, TimeoutError):  # without a snapshot, it only takes longer
            writing = answer.result(left_seconds())
            if writing is not None:
                writing.result(left_seconds())


def _begin_snapshot(maintenance: Maintenance, core: PartitionCore) -> Future[None] | None:
    if maintenance.entry_count(core) <= ENTRIES_MAX:
        return None
    return maintenance.snapshot_beside(core)


def _finish_requests(partition: Partition) -> None:
    """Do what waits, and what comes of that: a lease that lands after its consumer has closed is
    given back by a request."""
    if partition.loaded:
        partition.core.stored.waits = True
    while partition.loaded:
        if partition.inbox.is_empty:
            partition.core.commits.commit_all()
            if partition.inbox.is_empty:
                return
        partition.step()
        if partition.loaded:
            partition.core.commits.wait_landed()


def _keep_unread(core: PartitionCore) -> None:
    """Read what threads that send have not read yet: they come when the journal is closed."""
    left = keep(list(core.unread), KEPT_BYTES_MAX)
    if left:
        news.left_unread(core.topic().name, core.number, left)


def finish(partition: Partition) -> None:
    """At a stop: finish what waits, take a snapshot, close. Does not raise: the journal has all."""
    core, maintenance = partition.core, partition.maintenance
    try:
        _finish_requests(partition)
        if partition.loaded:
            maintenance.wait_written(core)
            maintenance.snapshot_and_wait(core)
            _keep_unread(core)
    except DejaQError:
        pass  # the next start reads a little more of the journal
    finally:
        partition.close()


def let_go(partition: Partition) -> None:
    """Finish what waits and close. Does not raise: the journal has all.

    No snapshot is taken: whoever sends or consumes waits for the next owner by now, which reads the
    entries since that of `prepare` faster than a snapshot is written.
    """
    try:
        _finish_requests(partition)
        if partition.loaded:
            _keep_unread(partition.core)
    except DejaQError:
        pass  # the next owner reads a little more
    finally:
        drop(partition)


def drop(partition: Partition) -> None:
    """Close at once: another broker serves it already."""
    partition.close(moved(partition.core.topic().name))
