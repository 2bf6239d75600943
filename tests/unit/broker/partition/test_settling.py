"""Ack, nack and extend of leases and of rows. What messages do then: tests/rules."""

from __future__ import annotations

import pytest

from dejaqueue.broker.partition.requests import SettleRequest
from dejaqueue.broker.partition.settling import settle
from dejaqueue.engine.commands import Lease, Stage
from dejaqueue.errors import Refused
from dejaqueue.model import RowStatus
from dejaqueue.wire.frames import Reply, SettleOp
from tests.unit.broker.cores import Served, attempts, sequences

OK, LOST = RowStatus.OK, RowStatus.LEASE_LOST


@pytest.fixture
def served() -> Served:
    """Two messages leased for a second, as lease 3."""
    served = Served()
    served.send([b"a", b"b"])
    served.replies.clear()
    now_ms = served.core.now_ms()
    lease = Lease(now_ms, served.core.next_position(), now_ms, 2, now_ms + 1_000)
    leased = served.core.apply_lease(lease)
    assert leased is not None
    assert leased.lease_id == 3
    return served


def settled(served: Served, op: SettleOp, **fields: object) -> Reply:
    request = SettleRequest(op, 9, served.replies.append, **fields)  # type: ignore[arg-type]
    served.inbox.put(request)
    served.inbox.take()
    settle(served.core, served.inbox, served.admission, request)
    served.core.commits.commit_all()
    return served.replies[-1]


def test_a_whole_lease_is_acked(served: Served) -> None:
    assert settled(served, SettleOp.ACK, lease_id=3).error is None
    assert served.core.engine.counts.acked == 2


def test_rows_with_another_attempt_are_lost(served: Served) -> None:
    answer = settled(served, SettleOp.ACK, sequences=sequences(0, 1), attempts=attempts(1, 2))
    assert answer.all_statuses().tolist() == [OK, LOST]
    assert (answer.rows, served.core.engine.counts.acked) == (2, 1)


def test_a_nack_says_when_it_is_due_again(served: Served) -> None:
    settled(served, SettleOp.NACK, lease_id=3, argument_ms=700)
    now_ms = served.core.now_ms()
    assert served.core.engine.dues(sequences(0, 1)).tolist() == [now_ms + 700] * 2


@pytest.mark.parametrize(("asked_ms", "lasts_ms"), [(5_000, 5_000), (0, 30_000)])
def test_an_extend_lasts_as_it_says_or_as_the_topic_does(
    served: Served, asked_ms: int, lasts_ms: int
) -> None:
    settled(served, SettleOp.EXTEND, lease_id=3, argument_ms=asked_ms)
    assert served.core.engine.next_expiry_ms() == served.core.now_ms() + lasts_ms


def test_many_leases_are_extended_with_a_status_for_each(served: Served) -> None:
    answer = settled(served, SettleOp.EXTEND, lease_ids=sequences(3, 77), argument_ms=5_000)
    assert answer.all_statuses().tolist() == [OK, LOST]


def test_an_ack_of_a_transaction_whose_time_is_over_changes_nothing(served: Served) -> None:
    over = Stage("t/0/1-2-" + "0" * 32, served.core.now_ms())
    answer = settled(served, SettleOp.ACK, lease_id=3, stage=over)
    assert isinstance(answer.error, Refused)
    assert served.core.engine.counts.leased == 2
