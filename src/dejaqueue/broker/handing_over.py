"""Letting go of a topic that another broker will serve: most of the work while it is still served.

Room: broker. `prepare` runs on the thread that gives, `let_go` on each partition's worker.
Holds: what was acknowledged is in the journal before the partition is closed. A snapshot lets the
next owner read little; one that would save it next to nothing is not taken.
See: broker.py, `give`; cluster/node.py, which says so to the others afterwards.
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

from dejaqueue.errors import DejaQError

if TYPE_CHECKING:
    from dejaqueue.broker.partition import Partition
    from dejaqueue.broker.runtime import TopicRuntime

ENTRIES_MAX = 200
"""So many entries without a snapshot are left to the next owner: it reads them in milliseconds."""
PREPARE_SECONDS_MAX = 30.0
"""Then it is given as it is; its next owner reads for longer."""


def prepare(topic: TopicRuntime) -> None:
    """Take a snapshot of each partition that needs one, while they go on serving."""
    asked = [topic.look(number, _begin_snapshot) for number in topic.partitions.numbers]
    for answer in asked:
        with suppress(DejaQError, TimeoutError):  # without a snapshot, it only takes longer
            writing = answer.result(PREPARE_SECONDS_MAX)
            if writing is not None:
                writing.result(PREPARE_SECONDS_MAX)


def _begin_snapshot(partition: Partition) -> Future[None] | None:
    chores = partition.maintenance
    if chores is None or chores.entry_count(partition) <= ENTRIES_MAX:
        return None
    return chores.snapshot_beside(partition)


def let_go(partition: Partition) -> None:
    """Finish what waits and close. Does not raise: the journal has all."""
    chores = partition.maintenance
    try:
        while partition.loaded and not partition.idle:
            partition.step()
        if partition.loaded:
            partition.commits.commit_all()
        if partition.loaded and chores is not None:
            chores.wait_written(partition)
            if chores.entry_count(partition) > ENTRIES_MAX:
                chores.snapshot_and_wait(partition)
    except DejaQError:
        pass  # the next owner reads a little more
    finally:
        partition.close()
