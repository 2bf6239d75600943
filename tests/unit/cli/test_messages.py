"""`dejaq consume`: what it prints, and when a message is done.

Not covered: Ctrl-C and pipes that break (tests/cli/test_commands.py).
"""

from __future__ import annotations

import json

from dejaqueue.cli.messages import message_fields
from tests.cli.conftest import Run


def test_a_message_has_only_the_fields_it_was_given() -> None:
    row: dict[str, object] = {
        "id": 1 << 62,
        "due": 0,
        "attempts": 2,
        "key": None,
        "tags": [],
        "payload": b"a",
    }
    assert message_fields(row) == {
        "id": str(1 << 62),
        "due": "1970-01-01T00:00:00.000Z",
        "attempt": 2,
        "payload": "a",
    }


def test_why_a_payload_cannot_be_read_is_said() -> None:
    row = {"id": 1, "due": 0, "attempts": 0, "payload": None, "unread": "it is missing"}
    found = message_fields(row)
    assert (found["unread"], "payload" in found) == ("it is missing", False)


def test_headers_are_an_object__what_is_no_text_is_base64() -> None:
    row = {"id": 1, "due": 0, "attempts": 1, "headers": [("a", "b")], "payload": b"\xff"}
    shown = message_fields(row)
    assert (shown["headers"], shown["payload_base64"]) == ({"a": "b"}, "/w==")


def test_each_payload_is_a_line_and_is_acked(run: Run) -> None:
    run("topic", "create", "t")
    run("send", "t", stdin=b"one\ntwo\n")
    found = run("consume", "t", "--max", "2", "--timeout", "10s")
    assert found.stdout_bytes == b"one\ntwo\n"
    assert run("consume", "t", "--timeout", "100ms").stdout_bytes == b""


def test_without_ack_messages_are_given_back__and_their_attempts_count(run: Run) -> None:
    run("topic", "create", "t")
    run("send", "t", "--text", "one")
    for attempt in (1, 2):
        found = run("consume", "t", "--max", "1", "--timeout", "10s", "--no-ack", "--json")
        row = json.loads(found.stdout)
        assert (row["attempt"], row["payload"]) == (attempt, "one")
