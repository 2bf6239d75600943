"""Settings, transactions and burials, one command at a time. Mixtures: tests/model."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.engine.commands import (
    Ack,
    Bury,
    Configure,
    Decide,
    Enqueue,
    Lease,
    Nack,
    Remember,
    Stage,
)
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.layout import TINY
from dejaqueue.engine.rules import Rules
from dejaqueue.errors import InternalError
from dejaqueue.model import Topic, TopicKind

STAGE = Stage("t/0/1", 900)


def int64s(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@pytest.fixture
def engine() -> Engine:
    """Messages 0 and 1 are there, leased by 7; transaction t/0/1 enqueued 2 and 3, and acked 0."""
    engine = Engine(0, TINY)
    engine.apply(Enqueue(0, 1, int64s(5, 5), ()))
    engine.apply(Lease(5, 7, 5, 2, 1_000))
    engine.apply(Enqueue(6, 2, int64s(5, 50), (), stage=STAGE))
    attempts = np.array([1], dtype=np.uint16)
    engine.apply(Ack(6, sequences=int64s(0), attempts=attempts, stage=STAGE))
    return engine


def leased(engine: Engine, now_ms: int) -> list[int]:
    rows = engine.apply(Lease(now_ms, now_ms, now_ms, 9, 5_000)).leased
    return [] if rows is None else rows.sequences.tolist()


def test_nothing_staged_is_delivered_before_the_decision(engine: Engine) -> None:
    assert leased(engine, 60) == []
    counts = engine.counts
    assert (counts.staged, counts.staged_acks, counts.leased) == (2, 1, 1)


def test_a_commit_brings_messages_in_and_acks_for_good(engine: Engine) -> None:
    effects = engine.apply(Decide(60, "t/0/1", commit=True))
    assert effects.freed_locators.size == 1
    assert leased(engine, 60) == [2, 3]
    counts = engine.counts
    assert (counts.staged, counts.staged_acks, counts.acked, counts.aborted) == (0, 0, 1, 0)
    engine.check()


def test_an_abort_drops_messages_and_hands_acked_ones_out_again(engine: Engine) -> None:
    effects = engine.apply(Decide(60, "t/0/1", commit=False))
    assert effects.freed_locators.size == 2
    assert leased(engine, 60) == [0]
    counts = engine.counts
    assert (counts.staged, counts.staged_acks, counts.acked, counts.aborted) == (0, 0, 0, 2)
    engine.check()


@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_is_applied_once(engine: Engine, commit: bool) -> None:
    engine.apply(Decide(60, "t/0/1", commit=commit))
    before = engine.state_hash()
    assert engine.apply(Decide(60, "t/0/1", commit=not commit)).freed_locators.size == 0
    assert engine.state_hash() == before


def test_a_decision_about_nothing_staged_changes_nothing(engine: Engine) -> None:
    engine.apply(Decide(60, "another", commit=True))
    assert (engine.counts.staged, engine.counts.staged_acks) == (2, 1)
    assert list(engine.staged_ends()) == ["t/0/1"]


def test_a_home_remembers_until_everybody_knows() -> None:
    engine = Engine(0, TINY)
    engine.apply(Remember(1, "t/0/1", commit=True, participants="a/1"))
    assert engine.decisions["t/0/1"] == (True, "a/1")
    engine.apply(Remember(2, "t/0/1", commit=None))
    engine.apply(Remember(2, "never heard of", commit=None))
    assert not engine.decisions


def test_a_burial_frees_the_dead_once() -> None:
    engine = Engine(0, TINY)
    engine.apply(Enqueue(0, 1, int64s(5, 5), ()))
    engine.apply(Lease(5, 7, 5, 2, 1_000))
    engine.apply(Nack(6, 6, 7, bury=True, reason="broken"))
    assert (engine.counts.dead, engine.counts.live) == (2, 2)
    [number] = engine.dead
    freed = engine.apply(Bury(7, number)).freed_locators
    assert freed.size == 2
    assert engine.apply(Bury(8, number)).freed_locators.size == 0
    assert (engine.counts.dead, engine.counts.buried, engine.counts.live) == (0, 2, 0)
    engine.check()


def test_a_topic_with_messages_keeps_its_kind() -> None:
    fair = Rules.of(Topic("t", kind=TopicKind.FAIR)).to_text()
    engine = Engine(0, TINY)
    engine.apply(Configure(0, fair))
    assert engine.rules.kind is TopicKind.FAIR
    engine.apply(Enqueue(0, 1, int64s(5), ()))
    priority = Rules.of(Topic("t", kind=TopicKind.PRIORITY)).to_text()
    with pytest.raises(InternalError, match=r"kind .* after"):
        engine.apply(Configure(1, priority))
