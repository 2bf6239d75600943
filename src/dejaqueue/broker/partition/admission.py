"""Admission: whether a partition lets more in.

Room: broker. Runs on the partition's worker, before a batch becomes a command.
Holds: what is refused has changed nothing, and is told when to come back (rule 14); consumers are
never refused, so what is full empties.
See: shard/allotment.py; staged.py; rules 12 and 14; docs/guides/backpressure.md.
"""

from __future__ import annotations

from dejaqueue.broker.partition.staged import StageHolders, stage_refusal
from dejaqueue.broker.shard.allotment import Allotment
from dejaqueue.broker.shard.backlog import RETRY_MS
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.commands import Stage
from dejaqueue.errors import DejaQError, ResourceExhausted


class Admission:
    """What one partition lets in.

    Args:
        allotment: what the partitions of the topic may hold.
    """

    def __init__(self, allotment: Allotment) -> None:
        self._allotment = allotment
        self._holders = StageHolders()

    def refusal(
        self, core: PartitionCore, stage: Stage | None, rows: int, byte_count: int
    ) -> DejaQError | None:
        """Why a batch is not let in; None = it is.

        Args:
            stage: of a transaction that it belongs to. Why that takes no more is told first: it
                does not end by waiting.
            rows, byte_count: its messages, and bytes of their payloads.
        """
        short = shortage(core, self._allotment, rows, byte_count)
        refused = None if stage is None else self.stage_refusal(core, stage)
        return refused or short

    def stage_refusal(self, core: PartitionCore, stage: Stage) -> DejaQError | None:
        """Why nothing more can be staged; None if it can, which is noted."""
        return stage_refusal(core, stage, self._holders)


def shortage(
    core: PartitionCore, allotment: Allotment, rows: int, byte_count: int
) -> ResourceExhausted | None:
    """Why a partition cannot take so much more now; None = it can, and that is noted."""
    try:
        allotment.let_in(core, rows, byte_count)
    except ResourceExhausted as full:
        # The traceback's frames hold the batch, and the batch's reply holds the error: a
        # reference cycle, which would keep its payloads until the garbage collector comes.
        return full.with_traceback(None)
    if core.has_room(rows, byte_count):
        return None
    return ResourceExhausted("the disk is full; consumers go on, producers wait", RETRY_MS)
