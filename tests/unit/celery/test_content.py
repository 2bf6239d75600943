"""A message of kombu as a payload, and back."""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.celery.content import message_of, payload_of


def prepared(body: str | bytes, **headers: Any) -> dict[str, Any]:
    return {
        "body": body,
        "headers": headers,
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "properties": {"priority": 3, "delivery_info": {"exchange": "e"}},
    }


@pytest.mark.parametrize("body", ['[1, "ü"]', b"\x00\n\xff", ""])
def test_a_body_comes_back_as_bytes(body: str | bytes) -> None:
    message = message_of(payload_of(prepared(body, id="t")), "7", 1)
    assert message["body"] == (body.encode() if isinstance(body, str) else body)
    assert message["headers"] == {"id": "t"}
    assert message["content-type"] == "application/json"
    assert message["properties"]["delivery_tag"] == "7"


def test_a_second_delivery_says_so() -> None:
    payload = payload_of(prepared("x"))
    assert message_of(payload, "1", 1)["properties"]["delivery_info"]["redelivered"] is False
    assert message_of(payload, "1", 2)["properties"]["delivery_info"]["redelivered"] is True


def test_the_worker_is_not_told_an_eta_that_the_broker_has_kept() -> None:
    kept = payload_of(prepared("x", eta="2030-01-01T00:00:00+00:00"))
    assert message_of(kept, "1", 1)["headers"]["eta"] is None
    left = payload_of(prepared("x", eta="2030-01-01T00:00:00"))
    assert message_of(left, "1", 1)["headers"]["eta"] == "2030-01-01T00:00:00"


def test_what_celery_did_not_send_is_refused() -> None:
    with pytest.raises(ValueError, match="not sent by Celery"):
        message_of(b"tea is ready", "1", 1)
