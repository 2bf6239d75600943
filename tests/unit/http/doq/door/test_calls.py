"""The table of calls, and how settings are read. What calls do: tests/doq/test_grpc.py."""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.http.doq.door import calls
from dejaqueue.http.doq.door.protocol import load_calls
from dejaqueue.http.doq.rows import Row

WIRE = load_calls()


def test_each_call_of_the_service_has_a_row_and_its_field() -> None:
    assert sorted(calls.CALLS) == sorted(name for name, one in WIRE.items() if not one.is_stream)
    for name, call in calls.CALLS.items():
        assert not call.field or hasattr(WIRE[name].request(), call.field), name


def test_what_administers_is_in_the_audit_log() -> None:
    audited = {name for name, call in calls.CALLS.items() if call.is_audited}
    assert audited == {"CreateQueue", "UpdateQueue", "DeleteQueue"}


def asked(**settings: Any) -> Any:
    return WIRE["UpdateQueue"].request(name="q", settings=settings)


def test_settings_that_are_zero_are_left_out__unless_all_are_replaced() -> None:
    made = calls._settings(asked(), "fair", named=False)
    assert made.model_fields_set == set()
    replaced = calls._settings(asked(), "fair", named=True)
    assert replaced.model_fields_set == {"max_unacked", "ack_timeout"}
    delayed = calls._settings(asked(ack_timeout=9), "delayed", named=True)
    assert delayed.model_fields_set == {"ack_timeout"}
    with pytest.raises(BadRequest, match=r"settings\.strategy"):
        calls._settings(asked(strategy=3), "fair", named=False)
    with pytest.raises(BadRequest, match=r"settings\.ack_timeout"):
        calls._settings(asked(ack_timeout=1 << 31), "fair", named=False)


def test_a_message_whose_key_is_no_number_has_the_id_0() -> None:
    row = Row("order-7", "g", 1, "a", None, 5, "order-7", 1)
    assert calls.shown("q", row)["id"] == 0
    assert WIRE["Dequeue"].response(**calls.shown("q", row)).queueName == "q"
