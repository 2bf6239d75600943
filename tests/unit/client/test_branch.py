"""A branch of a transaction: what is staged, what is refused, what is sent again.

Not covered: which branches count (tests/rules/test_rule_12_branches.py).
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.client import branch as module
from dejaqueue.client.branch import IN_FLIGHT_MAX, Begun, Branch, begin
from dejaqueue.client.core import ClientCore
from dejaqueue.errors import ResourceExhausted
from dejaqueue.model import RowStatus
from dejaqueue.wire.frames import Reply
from tests.unit.client.fake_transport import FakeTransport, ok

FULL = ResourceExhausted("full", 1)


def batch_of(*payloads: bytes, key: str | None = None) -> pa.RecordBatch:
    columns: dict[str, Any] = {"payload": pa.array(payloads, pa.binary())}
    if key is not None:
        columns["key"] = pa.array([key] * len(payloads), pa.utf8())
    return pa.RecordBatch.from_pydict(columns)


def branch_on(transport: FakeTransport) -> Branch:
    return Branch(ClientCore(transport, "", 0, None), "t", "x~b")


def test_a_branch_says_how_much_it_staged_and_in_which_partitions() -> None:
    def answer(number: int, batch: Any) -> Reply:
        ids = [(3 - number % 2 * 2) << limits.SEQUENCE_BITS] * batch.num_rows
        return Reply(number, batch.num_rows, ids=np.array(ids, dtype=np.int64))

    transport = FakeTransport(answer)
    branch = branch_on(transport)
    branch.send(batch_of(b"a"))
    branch.send(batch_of(b"b", b"c"))
    staged = branch.finish()
    assert (staged.rows, staged.counts, staged.places) == (3, {0: 3}, ["t/1", "t/3"])
    [write] = transport.writes
    assert (write.stream.topic, write.stream.transaction) == ("t", "x~b")
    assert branch.refused == []


def test_refused_rows_are_known_one_by_one() -> None:
    def answer(number: int, batch: Any) -> Reply:
        statuses = np.array([0, RowStatus.DUPLICATE, 0], dtype=np.uint8)
        ids = np.array([1, 2, 1 << limits.SEQUENCE_BITS], dtype=np.int64)
        return Reply(number, batch.num_rows, ids=ids, statuses=statuses)

    branch = branch_on(FakeTransport(answer))
    branch.send(batch_of(b"a", b"b", b"c"))
    staged = branch.finish()
    assert staged.counts == {0: 2, int(RowStatus.DUPLICATE): 1}
    [refused] = branch.refused
    assert refused.batch["payload"].to_pylist() == [b"b"]
    assert refused.statuses.tolist() == [RowStatus.DUPLICATE]
    assert refused.ids.tolist() == [2]


def test_a_partition_that_refused_every_row_takes_no_part() -> None:
    def answer(number: int, batch: Any) -> Reply:
        statuses = np.array([RowStatus.DUPLICATE], dtype=np.uint8)
        ids = np.array([5 << limits.SEQUENCE_BITS], dtype=np.int64)
        return Reply(number, batch.num_rows, ids=ids, statuses=statuses)

    branch = branch_on(FakeTransport(answer))
    branch.send(batch_of(b"a"))
    assert branch.finish().places == []


class FullOnce(FakeTransport):
    """Has no room for the first batch of each kind."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

        def answer(number: int, batch: Any) -> Reply:
            self.numbers.append(number)
            if len(self.numbers) == 1:
                return Reply(number, batch.num_rows, error=FULL)
            return ok(number, batch)

        super().__init__(answer)


def test_what_there_was_no_room_for_is_sent_again() -> None:
    transport = FullOnce()
    branch = branch_on(transport)
    branch.send(batch_of(b"a"))
    assert branch.finish().rows == 1
    assert len(transport.numbers) == 2


def test_a_batch_that_partitions_share_is_not_sent_again() -> None:
    # A part of it may be staged already: sent again under a new number, that part would be twice.
    transport = FullOnce()
    branch = branch_on(transport)
    branch.send(batch_of(b"a", key="k"))
    with pytest.raises(ResourceExhausted):
        branch.finish()
    assert len(transport.numbers) == 1


def test_there_is_an_end_to_sending_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRIES_MS_MAX", -1)
    branch = branch_on(FakeTransport(lambda n, batch: Reply(n, batch.num_rows, error=FULL)))
    branch.send(batch_of(b"a"))
    with pytest.raises(ResourceExhausted):
        branch.finish()


def test_batches_are_on_their_way_together__but_no_more_than_a_few() -> None:
    asked: list[Future[Reply]] = []

    class Waiting(Branch):
        def _write(self, batch: pa.RecordBatch) -> Future[Reply]:
            open_count = sum(not future.done() for future in asked)
            assert open_count < IN_FLIGHT_MAX
            future: Future[Reply] = Future()
            asked.append(future)
            if len(asked) == IN_FLIGHT_MAX:
                for number, one in enumerate(asked):
                    one.set_result(Reply(number, 1, first_id=number))
            elif len(asked) > IN_FLIGHT_MAX:
                future.set_result(Reply(len(asked), 1, first_id=len(asked)))
            return future

    branch = Waiting(ClientCore(FakeTransport(), "", 0, None), "t", "x~b")
    for _ in range(IN_FLIGHT_MAX + 2):
        branch.send(batch_of(b"a"))
    assert branch.finish().rows == IN_FLIGHT_MAX + 2


def test_an_abort_names_the_partitions_that_took_part() -> None:
    transport = FakeTransport(ok)
    branch = branch_on(transport)
    branch.send(batch_of(b"a"))
    branch.finish()
    branch.abort()
    expected = {"transaction": "x~b", "participants": ["t/0"]}
    assert transport.calls == [("abort_transaction", expected)]


def test_an_abort_names_partitions_whose_answers_nobody_has_asked_for_yet() -> None:
    """Else what is staged there stays until the time of the whole transaction is over."""

    def answer(number: int, batch: Any) -> Reply:
        ids = np.array([number << limits.SEQUENCE_BITS], dtype=np.int64)
        return Reply(number, batch.num_rows, ids=ids)

    transport = FakeTransport(answer)
    branch = branch_on(transport)
    branch.send(batch_of(b"a"))
    branch.send(batch_of(b"b"))
    branch.abort()
    expected = {"transaction": "x~b", "participants": ["t/1", "t/2"]}
    assert transport.calls == [("abort_transaction", expected)]


def test_a_transaction_in_branches_begins_as_one() -> None:
    transport = FakeTransport(
        actions={"begin_transaction": {"transaction": "x", "until_ms": 9, "committed": True}}
    )
    core = ClientCore(transport, "", 0, None)
    assert begin(core, "t", 500, query="q", epoch=3) == Begun("x", 9, is_committed=True)
    expected = {"topic": "t", "timeout_ms": 500, "branched": True, "query": "q", "epoch": 3}
    assert transport.calls == [("begin_transaction", expected)]
