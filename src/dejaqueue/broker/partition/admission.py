"""Admission: whether a partition lets more in.

Room: broker. Runs on the partition's worker, before a batch becomes a command.
Holds: what is refused has changed nothing, and is told when to come back (rule 14); consumers are
never refused, so what is full empties.
See: backlog.py; staged.py; rules 12 and 14; docs/guides/backpressure.md.
"""

from __future__ import annotations

from collections.abc import Callable

from dejaqueue.broker.partition.staged import StageHolders, stage_refusal
from dejaqueue.broker.shard.backlog import RETRY_MS, Backlog, check_backlog
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.commands import Stage
from dejaqueue.errors import DejaQError, ResourceExhausted


class Admission:
    """What one partition lets in.

    Args:
        topic_backlog: what is live in all partitions of the topic, as of their last steps.
    """

    def __init__(self, topic_backlog: Callable[[], Backlog]) -> None:
        self._topic_backlog = topic_backlog
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
        short = shortage(core, self._topic_backlog, rows, byte_count)
        refused = None if stage is None else self.stage_refusal(core, stage)
        return refused or short

    def stage_refusal(self, core: PartitionCore, stage: Stage) -> DejaQError | None:
        """Why nothing more can be staged; None if it can, which is noted."""
        return stage_refusal(core, stage, self._holders)


def shortage(
    core: PartitionCore, topic_backlog: Callable[[], Backlog], rows: int, byte_count: int
) -> ResourceExhausted | None:
    """Why a partition cannot take so much more now; None = it can.

    Args:
        topic_backlog: what is live in all partitions, as of their last steps.
    """
    topic = core.topic()
    if topic.max_backlog_count or topic.max_backlog_bytes:
        try:
            live = topic_backlog() - core.backlog + core.live()
            check_backlog(topic, live, rows, byte_count)
        except ResourceExhausted as full:
            # The traceback's frames hold the batch, and the batch's reply holds the error: a
            # reference cycle, which would keep its payloads until the garbage collector comes.
            return full.with_traceback(None)
    if core.has_room(rows, byte_count):
        return None
    return ResourceExhausted("the disk is full; consumers go on, producers wait", RETRY_MS)
