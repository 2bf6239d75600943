"""What JetStream answers beside a change that its servers have not agreed on yet.

Covered: the answers, played by a connection that is none. Real servers: tests/cluster/test_keys.py,
tests/conformance/test_coordinator_jetstream.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from dejaqueue.connections.nats import connection
from dejaqueue.connections.nats.answers import Reply
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.connections.nats.url import read_url
from dejaqueue.coordinator import jetstream
from dejaqueue.coordinator.interface import Conflict
from dejaqueue.coordinator.jetstream import JetStreamCoordinator
from dejaqueue.errors import ResourceExhausted, Unavailable

PROPOSED, OTHER, FULL, LEADERLESS = 10164, 10071, 10047, 10008


def refusal(number: int) -> dict[str, Any]:
    return {"error": {"code": 400, "err_code": number, "description": "no"}}


class Answers:
    """A connection: changes are answered by these in turn, the last one again and again."""

    url = read_url("nats://127.0.0.1:1")
    server_version = "2.15.1"
    payload_bytes_max = 1 << 20

    def __init__(self, *answers: dict[str, Any]) -> None:
        self._answers = list(answers)
        self._config: object = {}
        self.last = 0
        self.changes = 0

    def api(self, name: str, asked: object = None, timeout_s: float = 1) -> dict[str, Any]:
        self._config = asked or self._config
        return {"config": self._config, "state": {"last_seq": 0}}

    ask_all = NatsConnection.ask_all

    def on_back(self, call: object) -> None:
        pass

    def close(self) -> None:
        pass

    def publish_all(
        self, subject: str, messages: Sequence[tuple[dict[str, str], bytes]], timeout_s: float = 1
    ) -> list[Reply | None]:
        if subject.startswith("$JS.API"):
            found = {"message": {"seq": self.last}} if self.last else refusal(10037)
            return [Reply(subject, json.dumps(found).encode()) for _ in messages]
        self.changes += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer == refusal(OTHER):
            self.last = 7  # somebody else's is agreed on by now
        return [Reply(subject, json.dumps(answer).encode())]


def coordinator(answers: Answers) -> JetStreamCoordinator:
    return JetStreamCoordinator(answers)  # type: ignore[arg-type]


def test_a_change_beside_one_that_vanishes_is_made() -> None:
    answers = Answers(refusal(PROPOSED), refusal(PROPOSED), {"seq": 3})
    assert coordinator(answers).put("a", b"x", 0) == 3
    assert answers.changes == 3


def test_a_change_beside_one_that_is_made_is_a_conflict() -> None:
    answers = Answers(refusal(PROPOSED), refusal(OTHER))
    with pytest.raises(Conflict):
        coordinator(answers).put("a", b"x", 0)


def test_a_change_beside_one_that_is_never_agreed_on_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jetstream, "UNDECIDED_S", 0.02)
    with pytest.raises(Unavailable, match="another change of a is not agreed on"):
        coordinator(Answers(refusal(PROPOSED))).put("a", b"x", 0)


def test_a_change_while_nobody_leads_is_made_when_somebody_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "AGAIN_S", 0.001)
    answers = Answers(refusal(LEADERLESS), refusal(LEADERLESS), {"seq": 3})
    assert coordinator(answers).put("a", b"x", 0) == 3
    assert answers.changes == 3


def test_a_server_that_is_full_says_so() -> None:
    with pytest.raises(ResourceExhausted, match="was refused"):
        coordinator(Answers(refusal(FULL))).put("a", b"x", 0)
