"""Bugs that are planted in what happens to deliveries when topics move; see mutants.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dejaqueue.broker.partition.requests import SettleRequest
from dejaqueue.broker.replies import no_reply
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic import handing_over
from dejaqueue.broker.topic.session import ConsumerSession
from dejaqueue.client.consuming.consume_core import ConsumeCore
from dejaqueue.client.consuming.holding import Slice
from dejaqueue.client.consuming.open_rows import OpenRows
from dejaqueue.client.consuming.release import Release
from dejaqueue.wire.frames import Settle, SettleOp

Mutant = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, Mutant] = {}


def mutant(function: Mutant) -> Mutant:
    """Register a planted bug."""
    MUTANTS[function.__name__] = function
    return function


@mutant
def what_is_on_its_way_is_not_read_before_its_journal_is_closed(patch: pytest.MonkeyPatch) -> None:
    """As it was: threads that send come too late, and leases run out."""

    def keep(core: PartitionCore) -> None:
        pass

    patch.setattr(handing_over, "_keep_unread", keep)


@mutant
def who_closes_while_a_topic_moves_gives_nothing_back(patch: pytest.MonkeyPatch) -> None:
    """As it was: what it has is said to nobody, or to a partition that is closed."""

    def send(self: Release, releases: list[Settle]) -> None:
        pass

    patch.setattr(Release, "send_elsewhere", send)


@mutant
def what_is_given_back_is_put_off(patch: pytest.MonkeyPatch) -> None:
    """As it was: by the broker, for as long as messages are sent ahead, since the consumer had
    dropped what it held before it could say when that is due."""

    inner = ConsumeCore.finish

    def finish(self: ConsumeCore) -> None:
        if self._open_rows <= 0:
            self._holder.take_all()
        inner(self)

    def release(
        self: ConsumerSession, partition: int, lease_id: int, _due_ms: int, _rows: object
    ) -> None:
        delay_ms = min(self.consumer.ahead_ms, self._topic.topic.lease_ahead_ms)
        request = SettleRequest(SettleOp.NACK, 0, no_reply, lease_id, delay_ms, release=True)
        self._topic.submit(partition, request)

    patch.setattr(ConsumeCore, "finish", finish)
    patch.setattr(ConsumerSession, "_release", release)


@mutant
def what_came_by_an_earlier_stream_is_not_given_back(patch: pytest.MonkeyPatch) -> None:
    """As it was: the broker that has the topic now does not know who has what."""
    inner = OpenRows.left

    def left(self: OpenRows, *, before: int | None = None) -> Slice | None:
        return None if before is not None else inner(self)

    patch.setattr(OpenRows, "left", left)
