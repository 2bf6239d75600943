"""Sendings of one batch take turns; those of others do not wait for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dejaqueue import limits
from dejaqueue.broker.topic.turns import Sending, Turns
from dejaqueue.errors import DejaQError, Unavailable


def ready(called: list[str], name: str) -> Sending:
    def refuse(error: DejaQError) -> None:
        called.append(f"{name}: {error}")

    return Sending(lambda: called.append(name), refuse)


def at_once(run: Callable[[], None]) -> None:
    run()


def test_the_next_sending_of_a_batch_begins_when_the_one_before_ends() -> None:
    called: list[str] = []
    turns = Turns(at_once)
    assert turns.begin("p", 1, ready(called, "a"))
    assert turns.begin("p", 2, ready(called, "another batch"))
    assert not turns.begin("p", 1, ready(called, "b"))
    assert not turns.begin("p", 1, ready(called, "c"))
    turns.end("p", 1, "me")
    assert called == ["b"]
    turns.end("p", 1, "me")
    assert called == ["b", "c"]
    turns.end("p", 1, "me")
    assert turns.begin("p", 1, ready(called, "d"))


def test_who_waits_is_refused__where_nothing_can_begin_any_more() -> None:
    def closed(_run: Callable[[], None]) -> None:
        raise Unavailable("the topic is closed")

    called: list[str] = []
    turns = Turns(closed)
    turns.begin("p", 1, ready(called, "a"))
    turns.begin("p", 1, ready(called, "b"))
    turns.end("p", 1, "me")
    assert called == ["b: the topic is closed"]


def test_it_is_known_whether_somebody_else_sent_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PRODUCERS_MAX", 2)
    turns = Turns(at_once)
    assert not turns.is_of("p", "me")
    assert turns.is_of("p", "me")
    assert not turns.is_of("p", "you")
    assert not turns.is_of("p", "me")
    turns.is_of("q", "me")
    turns.is_of("r", "me")
    assert not turns.is_of("p", "me")  # forgotten: asking once too often costs a look, no more
