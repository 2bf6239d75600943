"""Ready lanes: order by priority and age, and filters that look at nothing twice."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.engine.arrays import Int64s, Mask, Words
from dejaqueue.engine.commands import Cancel, Configure, Enqueue, Lease, Move
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.layout import TINY
from dejaqueue.engine.ready import KEY_MAX, Lane
from dejaqueue.engine.rules import Rules
from dejaqueue.engine.state import PartitionState
from dejaqueue.model import TagFilter, TopicKind


def engine_of(rules: Rules) -> Engine:
    engine = Engine(0, TINY)
    engine.apply(Configure(0, rules.to_text()))
    return engine


def send(engine: Engine, dues_ms: list[int], priorities: list[int]) -> None:
    engine.apply(
        Enqueue(
            engine.now_ms,
            1,
            np.array(dues_ms, dtype=np.int64),
            (),
            priorities=np.array(priorities, dtype=np.uint16),
        )
    )


def lease(engine: Engine, now_ms: int, count: int) -> list[int]:
    leased = engine.apply(Lease(now_ms, now_ms, now_ms, count, now_ms + 9_000)).leased
    return [] if leased is None else leased.sequences.tolist()


def test_the_most_urgent_first__in_turn_among_equals__not_before_they_are_due() -> None:
    engine = engine_of(Rules(TopicKind.PRIORITY))
    send(engine, [0, 0, 0, 5, 0], [7, 3, 7, 0, 3])
    assert lease(engine, 1, 3) == [1, 4, 0]
    assert lease(engine, 5, 9) == [3, 2]


def test_a_changed_priority_counts_at_once() -> None:
    engine = engine_of(Rules(TopicKind.PRIORITY))
    send(engine, [0, 0, 0], [5, 6, 7])
    engine.apply(Lease(1, 1, 1, 0, 9))
    engine.apply(Move(2, np.array([2]), None, np.array([1], dtype=np.uint16)))
    assert lease(engine, 3, 2) == [2, 0]


def test_a_message_moved_into_the_future_is_not_ready() -> None:
    engine = engine_of(Rules(TopicKind.PRIORITY))
    send(engine, [0, 0], [5, 6])
    assert lease(engine, 1, 0) == []
    engine.apply(Move(2, np.array([0]), np.array([50])))
    assert lease(engine, 3, 9) == [1]
    assert engine.next_due_ms() == 50
    assert lease(engine, 50, 9) == [0]


def test_with_ageing_nothing_starves() -> None:
    engine = engine_of(Rules(TopicKind.PRIORITY, ageing_ms=10))
    send(engine, [0], [3])  # as urgent at 30 as priority 0 then
    now_ms, served = 0, []
    while 0 not in served:
        now_ms += 5
        send(engine, [now_ms], [0])
        served += lease(engine, now_ms, 1)
    assert 30 <= now_ms <= 35


def test_a_filter_looks_at_nothing_twice() -> None:
    looked: list[int] = []
    lane = Lane(TINY)
    sequences = np.arange(100)
    lane.insert(sequences.copy(), sequences)

    def alive(keys: np.ndarray, sequences: np.ndarray) -> np.ndarray:
        looked.extend(keys.tolist())
        return np.ones(keys.size, dtype=np.bool_)

    def picks(remainder: int) -> list[int]:
        found = lane.pick("f", 2, KEY_MAX, alive, lambda found: found % 40 == remainder)
        sequences: list[int] = found[1].tolist()
        return sequences

    assert picks(7) == [7, 47]
    assert picks(7) == [87]
    assert max(looked.count(key) for key in range(100)) <= 2
    looked.clear()
    assert picks(7) == []
    assert looked == []
    lane.insert(np.array([3]), np.array([127]))  # before everything: it is looked at again
    assert picks(7)[0] == 127


def test_filters_of_tags() -> None:
    engine = Engine(0, TINY)
    names = ("", "red", "red\x1fblue", "green")
    tags = Words(names, np.arange(4, dtype=np.int32))
    engine.apply(Enqueue(0, 1, np.zeros(4, dtype=np.int64), (), tags=tags))

    def takes(wanted: TagFilter) -> list[int]:
        return np.flatnonzero(engine.state.matching(wanted)(np.arange(4))).tolist()

    assert takes(TagFilter(any_of=("red", "green"))) == [1, 2, 3]
    assert takes(TagFilter(all_of=("red", "blue"))) == [2]
    assert takes(TagFilter(none_of=("red",))) == [0, 3]
    assert takes(TagFilter(any_of=("red",), none_of=("blue",))) == [1]
    assert takes(TagFilter(any_of=("nobody has this",))) == []


@pytest.mark.parametrize("kind", [TopicKind.PRIORITY, TopicKind.FAIR], ids=["priority", "fair"])
def test_where_nothing_is_dead_nothing_is_asked__and_what_is_dead_stays_away(
    kind: TopicKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(Rules(kind))
    asked: list[int] = []
    plain = PartitionState.is_ready

    def noted(state: PartitionState, sequences: Int64s) -> Mask:
        asked.append(sequences.size)
        return plain(state, sequences)

    monkeypatch.setattr(PartitionState, "is_ready", noted)
    send(engine, [0] * 6, [0, 1, 2, 3, 4, 5])
    assert lease(engine, 1, 2) == [0, 1]
    assert not asked
    engine.apply(Cancel(1, np.array([2])))
    assert lease(engine, 2, 2) == [3, 4]
    assert asked
    engine.check()
