from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.connections.nats import settling as module
from dejaqueue.connections.nats.settling import settled

MADE = "2026-01-02T03:04:05.123456789Z"


def stream(*followers: dict[str, bool], now: str = MADE) -> dict[str, Any]:
    return {"created": MADE, "ts": now, "cluster": {"replicas": list(followers)}}


KEEPS_UP, BEHIND, AWAY = {"current": True}, {"current": False}, {"current": False, "offline": True}


def looks(*found: dict[str, Any] | None) -> tuple[dict[str, Any] | None, int]:
    """What is found in the end, if this is seen look by look, and how many looks are left."""
    left = list(found)
    return settled(lambda: left.pop(0)), len(left)


def test_a_stream_is_used_once_all_servers_that_are_there_keep_up() -> None:
    whole = stream(KEEPS_UP, AWAY)
    assert looks(stream(KEEPS_UP, BEHIND), stream(BEHIND, AWAY), whole, None) == (whole, 1)
    assert looks({"created": MADE}, None) == ({"created": MADE}, 1)  # one server alone


def test_a_stream_that_is_undone_is_not_there() -> None:
    assert looks(stream(KEEPS_UP, BEHIND), None) == (None, 0)


def test_a_stream_with_a_record_is_not_waited_for() -> None:
    used = stream(KEEPS_UP, BEHIND) | {"state": {"last_seq": 1}}
    assert looks(used) == (used, 0)


def test_an_old_stream_is_not_waited_for() -> None:
    old = stream(BEHIND, BEHIND, now="2026-01-02T03:05:06Z")
    assert looks(old) == (old, 0)


def test_a_young_stream_is_waited_for_no_longer_than_it_can_be_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "UNDONE_MS", 50)
    behind = stream(KEEPS_UP, BEHIND)
    assert settled(lambda: behind) == behind
