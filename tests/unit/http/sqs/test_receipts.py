"""Receipt handles say delivery and queue, and nothing else passes for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue.http.sqs.receipts import delivery_of, receipt_of
from dejaqueue.http.sqs.refusals import SqsRefusal


@given(st.integers(0, (1 << 63) - 1), st.integers(0, 65_535))
def test_a_handle_leads_back_to_the_delivery(message_id: int, attempts: int) -> None:
    assert delivery_of("q", receipt_of("q", message_id, attempts)) == (message_id, attempts)


@given(st.one_of(st.none(), st.integers(), st.text()))
def test_what_is_no_handle_is_refused(receipt: object) -> None:
    with pytest.raises(SqsRefusal) as refused:
        delivery_of("q", receipt)
    assert refused.value.name == "ReceiptHandleIsInvalid"


def test_a_handle_of_another_queue_is_refused() -> None:
    with pytest.raises(SqsRefusal, match="ReceiptHandle: of a message of queue q"):
        delivery_of("q", receipt_of("r", 1, 1))
