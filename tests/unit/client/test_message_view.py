"""One message as it is.

Not covered: how it is asked for (tests/unit/client/_aio/test_browse.py).
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dejaqueue.client.message_view import MessageView, view_of
from dejaqueue.errors import BadRequest

ROW = {
    "id": 41,
    "due": 2_500,
    "attempts": 3,
    "key": "k",
    "group": None,
    "priority": 7,
    "tags": ["blue"],
    "headers": [("trace", "1")],
    "state": "scheduled",
}


def test_a_row_becomes_a_message() -> None:
    found = view_of(ROW | {"payload": b"[1]"})
    assert found == MessageView(
        *(41, "scheduled", 2_500, 3, "k", "", 7, ("blue",), (("trace", "1"),), b"[1]")
    )
    assert found.due == datetime(1970, 1, 1, 0, 0, 2, 500_000, tzinfo=UTC)
    assert found.json() == [1]


def test_why_a_payload_cannot_be_read_is_said() -> None:
    found = view_of(ROW | {"payload": None, "unread": "it is missing"})
    assert (found.payload, found.unread) == (None, "it is missing")
    with pytest.raises(BadRequest, match="payload of message 41: it is missing"):
        found.json()
    assert view_of(ROW | {"payload": b"", "unread": None}).unread == ""


def test_who_may_not_read_payloads_sees_the_rest() -> None:
    found = view_of(ROW)
    assert (found.key, found.payload) == ("k", None)
    with pytest.raises(BadRequest, match="payload of message 41: one that the caller may read"):
        found.json()
