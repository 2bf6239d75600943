"""A clock that is put right: what keeps its remaining length, what stays where it was (rule 16).

Not covered: that every command agrees with the model afterwards (tests/model); when it is applied
(tests/unit/broker/shard/test_timekeeping.py).
"""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue import limits
from dejaqueue.engine import snapshot
from dejaqueue.engine.commands import (
    Configure,
    Enqueue,
    Lease,
    Move,
    Nack,
    PutEntries,
    SetTime,
    Stage,
    SubBatch,
)
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.rules import Rules
from dejaqueue.model import TopicKind

YEARS_MS = 10 * 365 * 86_400_000


def enqueue(engine: Engine, now_ms: int, dues_ms: list[int], **more: object) -> None:
    batch = (SubBatch(str(more.pop("producer", "")), 1, len(dues_ms)),)
    position = int(str(more.pop("position", 1)))
    engine.apply(Enqueue(now_ms, position, np.array(dues_ms), batch, **more))  # type: ignore[arg-type]


def dues(engine: Engine) -> list[int]:
    found: list[int] = engine.dues(np.arange(engine.next_sequence)).tolist()
    return found


@pytest.mark.parametrize("by_ms", [YEARS_MS, 3_600_000, -3_600_000])
def test_leases_and_delays_keep_what_is_left__and_due_times_stay(by_ms: int) -> None:
    engine, then_ms = Engine(0), 2 * YEARS_MS
    enqueue(engine, then_ms, [then_ms - 3, then_ms - 2, then_ms - 1, then_ms + 500])
    leased = engine.apply(Lease(then_ms, 2, then_ms, 3, then_ms + 1_000)).leased
    assert leased is not None
    rows = leased.sequences[:2], leased.attempts[:2]
    engine.apply(Nack(then_ms, then_ms + 7_000, -1, *rows))
    moved_ms = then_ms + 9_000
    engine.apply(Move(then_ms, np.array([1]), np.array([moved_ms])))
    engine.apply(SetTime(then_ms - by_ms, by_ms))
    now_ms = then_ms - by_ms
    assert engine.now_ms == now_ms
    assert dues(engine) == [now_ms + 7_000, moved_ms, now_ms + 1_000, then_ms + 500]
    assert engine.next_expiry_ms() == now_ms + 1_000
    engine.check()


@pytest.mark.parametrize("kind", [TopicKind.PRIORITY, TopicKind.FAIR])
def test_what_is_not_due_any_more_is_not_ready(kind: TopicKind) -> None:
    engine = Engine(0)
    engine.apply(Configure(1_000, Rules(kind).to_text()))
    enqueue(engine, 9_000, [500, 8_000, 20_000])
    assert engine.apply(Lease(9_000, 2, 9_000, 1, 9_500)).leased is not None
    engine.apply(SetTime(5_000, 4_000))
    engine.check()
    assert engine.apply(Lease(5_001, 3, 5_001, 5, 9_000)).leased is None
    again = engine.apply(Lease(8_000, 4, 8_000, 5, 9_000)).leased
    assert again is not None
    assert sorted(again.sequences.tolist()) == [0, 1]


def test_transactions_keep_what_is_left__and_cron_entries_stay() -> None:
    engine = Engine(0)
    enqueue(engine, 10_000, [10_000], stage=Stage("t/0/1", 12_000))
    engine.apply(PutEntries(10_000, (("e", "{}", 15_000, 14_000),)))
    engine.apply(SetTime(4_000, 6_000))
    assert engine.staged_ends() == {"t/0/1": 6_000}
    assert engine.schedule.next_wake_ms() == 14_000


def test_a_producer_is_not_silent_for_longer_than_before() -> None:
    engine = Engine(0)
    enqueue(engine, 1_000, [1_000], producer="a")
    engine.apply(SetTime(1_000 + limits.PRODUCER_IDLE_MS_MAX, -limits.PRODUCER_IDLE_MS_MAX))
    enqueue(engine, 1_001 + limits.PRODUCER_IDLE_MS_MAX, [1], producer="b", position=2)
    assert engine.answer("a", 1) is not None
    engine.apply(SetTime(2_000, limits.PRODUCER_IDLE_MS_MAX - 999))
    enqueue(engine, 2_001, [1], producer="c", position=3)
    assert engine.answer("a", 1) is not None


def test_a_snapshot_knows_whose_a_due_time_is() -> None:
    engine = Engine(0)
    enqueue(engine, 10_000, [10_000, 90_000])
    leased = engine.apply(Lease(10_000, 2, 10_000, 1, 11_000)).leased
    assert leased is not None
    engine.apply(Nack(10_000, 80_000, 2))
    meta, files = snapshot.plan_snapshot(engine)
    kept = {name: memoryview(content) for name, content in files if content is not None}
    restored = snapshot.restore(meta, kept.__getitem__)
    for one in (engine, restored):
        one.apply(SetTime(5_000, 5_000))
    assert dues(engine) == dues(restored) == [75_000, 90_000]
    assert engine.state_hash() == restored.state_hash()
