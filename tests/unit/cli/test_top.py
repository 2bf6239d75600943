"""`dejaq top` without a terminal: a line of JSON for each topic and look; rates between looks.

Not covered: a terminal (tests/cli/test_terminal.py).
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

from dejaqueue import Client
from dejaqueue.cli import top
from dejaqueue.errors import Unavailable
from dejaqueue.model import Topic
from tests.cli.conftest import Run


def test_a_pipe_gets_json(run: Run) -> None:
    run("topic", "create", "t")
    run("send", "t", "--text", "x", "--delay", "1h")
    found = run("top", "--count", "2", "--interval", "1ms").stdout.splitlines()
    rows = [json.loads(line) for line in found]
    assert [(row["topic"], row["scheduled"]) for row in rows] == [("t", 1)] * 2


class _Broker:
    """A client that counts, and whose broker goes away."""

    def __init__(self) -> None:
        self.acked = 0
        self.is_away = False

    def stats(self) -> Any:
        if self.is_away:
            raise Unavailable("no broker")
        self.acked += 1_000
        topics = {"t": {"acked": self.acked, "ready": 5, "next_due_ms": 1_000}}
        return SimpleNamespace(to_dict=lambda: {"topics": topics, "silent": [], "uptime_ms": 9})

    def topics(self) -> list[Topic]:
        return [Topic("t")]


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
