"""Rule 12: a batch to one partition is applied whole or not at all.

Not covered here: transactions over many batches (test_rule_12_transactions.py); batches that a
crash cuts short (tests/crash/test_segment_journal.py).
"""

from __future__ import annotations

import pyarrow as pa

from dejaqueue.model import RowStatus
from tests.rules.conftest import MakeBroker


def test_one_wrong_row_refuses_the_batch__other_batches_of_the_group_go_on(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(max_payload_bytes=3)
    wrong = broker.write("enqueue", {"payload": pa.array([b"ok", b"long"])})
    right = broker.send([b"yes"])
    assert wrong.error is not None
    assert right.error is None
    assert broker.consumer().payloads() == [b"yes"]


def test_rows_refused_by_the_state_have_their_own_status__the_others_are_applied(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker()
    broker.send([b"a"], keys=["k"])
    reply = broker.send([b"b", b"c"], keys=["k", "l"])
    assert reply.all_statuses().tolist() == [RowStatus.DUPLICATE, RowStatus.OK]
    assert sorted(broker.consumer().payloads()) == [b"a", b"c"]
