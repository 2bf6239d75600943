"""Producers: what is remembered, and what is forgotten when (rule 10)."""

from __future__ import annotations

import pytest

from dejaqueue import limits
from dejaqueue.engine.commands import SubBatch
from dejaqueue.engine.producers import Answer, Producers


def test_a_repeated_batch_gets_the_first_answer() -> None:
    producers = Producers()
    producers.remember(SubBatch("a", 5, 10, (3,), (99,), (4,)), 100, 0)
    assert producers.answer("a", 5) == Answer(100, 10, (3,), (99,), (4,))
    assert producers.answer("a", 6) is None
    assert producers.answer("b", 5) is None


def test_the_window_of_answers_moves_on() -> None:
    producers = Producers()
    for number in range(limits.PRODUCER_WINDOW_BATCHES + 1):
        producers.remember(SubBatch("a", number, 1), number, 0)
    assert producers.answer("a", 0) is None
    assert producers.answer("a", 1) == Answer(1, 1)


def test_a_silent_producer_is_forgotten_when_another_is_heard() -> None:
    producers = Producers()
    producers.remember(SubBatch("a", 1, 1), 0, 1_000)
    producers.remember(SubBatch("b", 1, 1), 1, 1_000 + limits.PRODUCER_IDLE_MS_MAX - 1)
    assert producers.answer("a", 1) is not None
    producers.remember(SubBatch("b", 2, 1), 2, 1_000 + limits.PRODUCER_IDLE_MS_MAX)
    assert producers.answer("a", 1) is None
    assert producers.answer("b", 1) is not None


def test_of_too_many_producers_the_longest_silent_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PRODUCERS_MAX", 3)
    producers = Producers()
    for now_ms, name in enumerate(["a", "b", "c", "a", "d"]):
        producers.remember(SubBatch(name, 1, 1), 0, now_ms)
    assert list(producers.by_name) == ["c", "a", "d"]
