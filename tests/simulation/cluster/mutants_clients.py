"""Bugs that are planted in the client library; see tests/simulation/mutants.py."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.client.consuming.consume_core import ConsumeCore
from dejaqueue.client.consuming.holding import Holder, Lease, Slice
from dejaqueue.client.consuming.settling import Settling
from dejaqueue.client.link import WriteLink
from dejaqueue.client.routed_transport import RoutedTransport
from dejaqueue.client.shards import writing
from dejaqueue.client.shards.consuming import TopicCore
from dejaqueue.client.shards.writing import ShardedWriteChannel
from dejaqueue.client.shared_streams import SharedWriteChannel
from dejaqueue.schema.shards import Parts
from dejaqueue.wire.frames import Reply, Settle, SettleOp

Mutant = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, Mutant] = {}


def mutant(function: Mutant) -> Mutant:
    """Register a planted bug."""
    MUTANTS[function.__name__] = function
    return function


@mutant
def what_is_held_is_handed_over_early(patch: pytest.MonkeyPatch) -> None:
    """A program gets what is leased ahead when it comes, not when it is due."""
    inner = Holder.take

    def take(self: Holder, broker_us: int, rows_max: int) -> Slice | None:
        return inner(self, broker_us + 20_000, rows_max)

    patch.setattr(Holder, "take", take)


@mutant
def the_newest_lease_is_acked_in_its_place(patch: pytest.MonkeyPatch) -> None:
    """After a reconnect the lease is named that came last on the new stream."""
    inner, add = ConsumeCore.settle, Holder.add

    def add_noting(self: Holder, *args: Any) -> Lease:
        lease = add(self, *args)
        newest[id(self)] = lease
        return lease

    def settle(self: ConsumeCore, op: SettleOp, rows: Slice, *rest: Any, **named: Any) -> Any:
        lease = newest.get(id(self._holder))
        if lease is not None and 0 <= rows.lease.generation < self._generation:
            rows.lease = lease
        return inner(self, op, rows, *rest, **named)

    newest: dict[int, Lease] = {}
    patch.setattr(Holder, "add", add_noting)
    patch.setattr(ConsumeCore, "settle", settle)


@mutant
def what_was_not_answered_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A send whose connection broke is taken for done."""

    def resend(self: WriteLink) -> bool:
        with self._state:
            self._retrying = False
            waiting, self._waiting = list(self._waiting.values()), {}
        for one in waiting:
            rows = one.batch.num_rows
            one.answer.set_result(Reply(one.number, rows, first_id=1 << 30))
        return True

    patch.setattr(WriteLink, "_resend", resend)


@mutant
def what_is_sent_again_has_a_new_number(patch: pytest.MonkeyPatch) -> None:
    """The broker does not know the batch again."""
    inner = SharedWriteChannel.send
    numbers: dict[int, int] = {}

    def send(self: SharedWriteChannel, number: int, batch: Any) -> Future[Reply]:
        sent = numbers[id(batch)] = numbers.get(id(batch), -1) + 1
        kept.append(batch)
        answer = inner(self, number + 1_000_000 * sent, batch)
        if not sent:
            return answer
        told: Future[Reply] = type(answer)()

        def back(done: Future[Reply]) -> None:
            wrong = done.exception()
            if wrong is not None:
                told.set_exception(wrong)
            else:
                told.set_result(replace(done.result(), number=number))

        answer.add_done_callback(back)
        return told

    kept: list[Any] = []
    patch.setattr(SharedWriteChannel, "send", send)


@mutant
def who_moved_is_not_followed(patch: pytest.MonkeyPatch) -> None:
    """Where a topic is now is not believed: calls go to the broker that they began with."""
    patch.setattr(RoutedTransport, "_learn", lambda self, topic, url, error: None)


@mutant
def what_is_not_handed_over_is_acked(patch: pytest.MonkeyPatch) -> None:
    """A consumer that ends does not give back what it holds, it acks it."""
    inner = ConsumeCore._give_back

    def give_back(self: ConsumeCore, rows: Slice) -> None:
        channel = self._channel
        if channel is not None and not self.stream.auto_ack:
            channel.settle(Settle(SettleOp.ACK, 0, 0, -1, 0, rows.ids, rows.attempts))
        else:
            inner(self, rows)

    patch.setattr(ConsumeCore, "_give_back", give_back)


@mutant
def a_settle_whose_stream_broke_is_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    def elsewhere(self: Settling, settle: Settle, rows: Slice, answer: Future[Reply]) -> None:
        answer.set_result(Reply(settle.number, len(rows.ids)))

    patch.setattr(Settling, "_send_elsewhere", elsewhere)


@mutant
def settles_go_to_the_first_shard(patch: pytest.MonkeyPatch) -> None:
    """What a message came by is not looked at: of a topic in shards the first is told."""

    def owner(self: TopicCore, rows: Slice) -> ConsumeCore:
        return self._shards[0] if self._shards else self

    patch.setattr(TopicCore, "owner", owner)


@mutant
def a_batch_that_is_sent_again_goes_to_another_shard(patch: pytest.MonkeyPatch) -> None:
    """Rows with neither key nor group go to the shard whose turn it is, each time they are sent."""
    turns, inner = count(), ShardedWriteChannel._parts

    def parts(self: ShardedWriteChannel, number: int, batch: pa.RecordBatch) -> Parts:
        return inner(self, next(turns) if self._stream.op == "enqueue" else number, batch)

    patch.setattr(ShardedWriteChannel, "_parts", parts)


@mutant
def a_part_that_failed_is_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    """A batch to several shards is answered as if all of it were there, if any of it is."""
    inner = writing._Whole._finish

    def finish(self: writing._Whole) -> None:
        if len(self._errors) < len(self._parts):
            self._errors.clear()
        inner(self)

    patch.setattr(writing._Whole, "_finish", finish)
