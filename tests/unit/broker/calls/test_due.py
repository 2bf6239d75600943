"""What consumers will have to do soon: of every kind of topic, over its partitions.

Not covered: the call over HTTP (tests/unit/http/routes/test_browsing.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.errors import BadRequest, TopicUnknown
from tests.rules.broker_fixture import TOPIC, BrokerFixture


def soon(fixture: BrokerFixture, **more: Any) -> dict[str, int]:
    answer = fixture.broker.call("due", {"topic": TOPIC} | more)
    assert isinstance(answer, dict)
    assert answer["due"] == answer["ready"] + answer["scheduled"]
    return answer


@pytest.mark.parametrize("kind", ["timeline", "priority", "fair"])
def test_what_is_ready_and_what_falls_due_within_the_time(kind: str) -> None:
    fixture = BrokerFixture(kind=kind)
    try:
        now_ms = fixture.now_ms
        dues_ms = [now_ms - 5, now_ms, now_ms + 900, now_ms + 60_000, now_ms + 60_001]
        fixture.send([b"x"] * len(dues_ms), dues_ms)
        found = {within: soon(fixture, within_ms=within) for within in (0, 899, 900, 60_000)}
        assert [one["due"] for one in found.values()] == [2, 2, 3, 4]
        assert {one["ready"] for one in found.values()} == {2}
        assert {one["error_max"] for one in found.values()} == {0}
        assert soon(fixture) == found[60_000], "a minute where nothing is said"
    finally:
        fixture.stop()


def test_partitions_are_added_up__and_those_never_used_are_none() -> None:
    fixture = BrokerFixture(partitions=3)
    try:
        assert soon(fixture)["due"] == 0
        fixture.send([b"x"] * 600, [fixture.now_ms + 1_000] * 600)
        fixture.send([b"x"] * 600, [fixture.now_ms + 90_000] * 600)
        assert soon(fixture)["due"] == 600
        assert soon(fixture, within_ms=90_000)["due"] == 1_200
    finally:
        fixture.stop()


def test_what_is_cancelled_is_not_counted__or_told_as_an_error() -> None:
    fixture = BrokerFixture()
    try:
        fixture.send([b"x"] * 10, [fixture.now_ms + 1_000] * 10)
        body = {"topic": TOPIC}
        assert fixture.broker.call("cancel_where", body)["count"] == 10
        answer = soon(fixture)
        assert answer["due"] - answer["error_max"] <= 0
    finally:
        fixture.stop()


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "60s", 1 << 60])
def test_a_time_that_is_none_is_refused(wrong: object) -> None:
    fixture = BrokerFixture()
    try:
        with pytest.raises(BadRequest, match="within_ms"):
            soon(fixture, within_ms=wrong)
        with pytest.raises(TopicUnknown):
            fixture.broker.call("due", {"topic": "nobody"})
    finally:
        fixture.stop()
