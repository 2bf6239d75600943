"""Covers: the history of a message as values, put together answer by answer.

Not covered: what brokers answer (tests/unit/broker/calls/test_message_history.py).
"""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dejaqueue
from dejaqueue.client.message_history import HistoryGap, MessageChange, ask, check_history
from dejaqueue.errors import BadRequest


class Answers:
    """A broker that answers in two pages."""

    def __init__(self, *pages: dict[str, Any]) -> None:
        self.pages = list(pages)
        self.bodies: list[dict[str, Any]] = []

    def action(self, name: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        assert name == "message_history"
        self.bodies.append(body)
        answer: Future[dict[str, Any]] = Future()
        answer.set_result(self.pages.pop(0))
        return answer

    def rows(self, ticket: dict[str, Any]) -> Future[pa.Table]:
        raise NotImplementedError


def test_pages_are_one_answer() -> None:
    gap = {"first": 3, "last": 4, "at_ms": 9, "reason": "history was off", "missed": None}
    came = {"at_ms": 1, "change": "enqueued", "position": 2, "attempt": 0, "due": 5, "priority": 7}
    done = {"at_ms": 8, "change": "acked", "position": 6, "attempt": 1, "unheard_of": True}
    first = {"history": True, "changes": [came], "gaps": [gap], "silent": ["b"], "next": 4}
    last = {"history": True, "changes": [done], "gaps": [gap], "silent": ["a"], "next": None}
    answers = Answers(first, last)
    found = ask(answers, check_history("t", 7))
    assert found.changes == (
        MessageChange("enqueued", 1, 2, 0, 5, priority=7), MessageChange("acked", 8, 6, 1),
    )  # fmt: skip
    assert found.gaps == (HistoryGap(3, 4, 9, "history was off"),)
    assert (found.is_on, found.silent) == (True, ("a", "b"))
    assert [body["after"] for body in answers.bodies] == [None, 4]
    assert found.changes[0].at.isoformat() == "1970-01-01T00:00:00.001000+00:00"


def test_an_id_is_a_number() -> None:
    with pytest.raises(BadRequest):
        check_history("t", "seven")  # type: ignore[arg-type]


def test_a_client_tells_the_life_of_a_message(tmp_path: Path) -> None:
    with dejaqueue.open(str(tmp_path)) as client:
        client.create_topic("t", history=True)
        sent = client.send("t", b"x", delay=3_600)
        client.cancel("t", ids=[sent])
        found = client.history("t", sent)
        assert [change.change for change in found.changes] == ["enqueued", "cancelled"]
        client.create_topic("off")
        assert not client.history("off", 0).is_on
