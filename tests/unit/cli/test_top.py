"""`dejaq top` without a terminal: a line of JSON for each topic and look; rates between looks.

Not covered: a terminal (tests/cli/test_terminal.py).
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dejaqueue import Client
from dejaqueue.cli import top
from dejaqueue.errors import TopicUnknown, Unavailable
from dejaqueue.model import Topic
from tests.cli.conftest import Run


def test_a_pipe_gets_json(run: Run) -> None:
    run("topic", "create", "t")
    run("send", "t", "--text", "x", "--delay", "1h")
    found = run("top", "--count", "2", "--interval", "1ms").stdout.splitlines()
    rows = [json.loads(line) for line in found]
    assert [(row["topic"], row["scheduled"]) for row in rows] == [("t", 1)] * 2


def test_a_subscription_is_a_row_of_its_own(run: Run) -> None:
    run("topic", "create", "t")
    run("subscription", "create", "t", "log", "--order", "arrival")
    run("send", "t", "--text", "x", "--delay", "1h")
    found = [json.loads(line) for line in run("top", "--count", "1").stdout.splitlines()]
    topic, log = found
    assert (topic["topic"], topic["ready"], "lag" in topic) == ("t", 0, False)
    assert (log["topic"], log["ready"], log["lag"]) == ("t@log", 1, 1)
    assert log["oldest_ms"] >= 0


class _Broker:
    """A client that counts, and whose broker goes away."""

    def __init__(self) -> None:
        self.acked = 0
        self.is_away = False
        self.part: dict[str, Any] = {"state": "active"}
        self.subscriptions: dict[str, dict[str, Any]] = {}

    def stats(self, topic: str | None = None) -> Any:
        if topic is not None:  # a subscription
            if topic.endswith("gone"):
                raise TopicUnknown(topic)
            numbers = {"scheduled": 7, "ready": 3, "leased": 2, "next_due_ms": 1_000}
            return SimpleNamespace(to_dict=lambda: numbers)
        if self.is_away:
            raise Unavailable("no broker")
        self.acked += 1_000
        topics = {"t": {"acked": self.acked, "ready": 5, "next_due_ms": 1_000}}
        return SimpleNamespace(to_dict=lambda: {"topics": topics, "silent": [], "uptime_ms": 9})

    def standby(self) -> dict[str, Any]:
        return self.part

    def topics(self) -> list[Topic]:
        return [Topic("t", subscriptions=self.subscriptions)]


def test_rates_are_between_looks__and_a_broker_that_is_away_is_said() -> None:
    broker = _Broker()
    looks = top.Looks(cast(Client, broker), "dejaq://x")
    first = looks.take()
    assert (first.lines[0].rate_out, first.lines[0].kind) == (0.0, "timeline")
    assert [one.title for one in first.found] == ["5 messages are due and nobody consumes"]
    looks._before = looks._before[0] - 1_000, looks._before[1]
    second = looks.take("name")
    assert 0 < second.lines[0].rate_out <= 1_000
    broker.is_away = True
    third = looks.take()
    assert (third.said, third.lines) == ("the broker does not answer: no broker", second.lines)


def test_subscriptions_stand_behind_their_topic__those_that_have_gone_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = _Broker()
    own = {"order": "arrival", "paused": True}
    broker.subscriptions = {"b": own, "a": {"order": "due"}, "gone": {"order": "due"}}
    frame = top.Looks(cast(Client, broker), "dejaq://x").take()
    lines = {one.name: one for one in frame.lines}
    assert set(lines) == {"t", "t@a", "t@b"}
    assert (lines["t@b"].kind, lines["t@b"].paused, lines["t@a"].paused) == ("arrival", True, False)
    assert {one.topic for one in frame.found} >= {"t", "t@a"}
    monkeypatch.setattr(top, "SUBSCRIPTIONS_MAX", 1)
    frame = top.Looks(cast(Client, broker), "dejaq://x").take()
    assert ([one.name for one in frame.lines], frame.unasked) == (["t", "t@a"], 2)


def test_of_a_standby_it_is_told_how_far_it_is__and_not_that_nobody_consumes() -> None:
    broker = _Broker()
    broker.part = {"state": "following", "standby": "5f", "url": "s3://b", "behind_ms": 2_000}
    frame = top.Looks(cast(Client, broker), "dejaq://x").take()
    assert frame.standby.endswith("following, as of nothing yet, 2.0 s behind the archive")
    assert frame.found == []
    broker.part |= {"trouble": "the bucket is away"}
    assert (
        top.Looks(cast(Client, broker), "dejaq://x").take().standby.endswith(": the bucket is away")
    )


def test_an_older_broker_has_none() -> None:
    broker = _Broker()
    looks = top.Looks(cast(Client, broker), "dejaq://x")
    old = SimpleNamespace(name="t", to_dict=lambda: {"kind": "timeline"})
    broker.topics = lambda: cast(list[Topic], [old])  # type: ignore[method-assign]
    assert [one.name for one in looks.take().lines] == ["t"]
