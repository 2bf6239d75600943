"""How a dead letter is shown. Not covered: the commands at work (tests/cli/test_commands.py)."""

from __future__ import annotations

from dejaqueue.cli.dead import _fields
from tests.cli.conftest import invoke


def test_a_letter_is_shown_with_its_death_apart_from_its_headers() -> None:
    headers = [
        ("trace", "1"),
        ("dejaq-dead-reason", "refused"),
        ("dejaq-dead-attempts", "3"),
        ("dejaq-dead-origin", "t"),
        ("dejaq-dead-origin-id", "77"),
        ("dejaq-dead-at", "1700000000000"),
    ]
    row = {"id": 5, "payload": b"a", "group": "g", "tags": None, "headers": headers}
    assert _fields(row) == {
        "id": "5",
        "reason": "refused",
        "attempts": "3",
        "origin": "t",
        "origin_id": "77",
        "key": None,
        "at": "2023-11-14T22:13:20.000Z",
        "group": "g",
        "headers": {"trace": "1"},
        "payload": "a",
    }


def test_what_never_died_is_shown_all_the_same() -> None:
    row = {"id": 5, "payload": b"\xff", "headers": [("dejaq-dead-at", "soon")]}
    shown = _fields(row)
    assert (shown["reason"], shown["at"], shown["payload_base64"]) == (None, None, "/w==")


def test_throwing_away_asks_first() -> None:
    found = invoke("dead", "purge", "t.dead", stdin=b"n\n")
    assert found.exit_code != 0
    assert "for good?" in found.stderr
