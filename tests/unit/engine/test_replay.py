"""Seeking: what comes back and what is passed over. All of it at random: tests/model."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from dejaqueue.engine import replay
from dejaqueue.engine.arrays import Words
from dejaqueue.engine.commands import Ack, Configure, InView, Lease, Move, Nack, Seek, SetTime
from dejaqueue.engine.layout import Layout
from dejaqueue.engine.message_filter import Selection
from dejaqueue.engine.rules import Rules
from dejaqueue.engine.snapshot import PlannedFile
from dejaqueue.engine.table import MessageTable
from dejaqueue.engine.view_snapshots import (
    begin_views_snapshot,
    plan_views_snapshot,
    restore_views,
)
from dejaqueue.engine.views import PartitionViews
from dejaqueue.model import GroupOrder, MessageState, TagFilter, TopicKind
from tests.unit.engine.test_retention import retaining
from tests.unit.engine.test_views import Partition, array

ALL = (0, 1_000_000, 0)
"""All messages, from the beginning."""


def test_what_comes_back_is_what_it_was() -> None:
    partition, _ = retaining()
    words = Words(("x", "y"), np.array([0, 1], dtype=np.int32))
    partition.send(
        5, 7,
        key_hashes=array(11, 12), priorities=np.array([1, 2], np.uint16), groups=words, tags=words,
        payload_sizes=np.array([10, 20], np.uint32), senders=words,
    )  # fmt: skip
    engine, sequences = partition.views.unnamed, array(0, 1)
    asked = ("dues", "priorities", "locators")
    before = {name: getattr(engine, name)(sequences).tolist() for name in asked}
    leased = partition.lease(0)
    partition.ack(0, leased)
    partition.send(6, key_hashes=array(11))
    assert partition.apply(Seek, *ALL).freed_locators.size == 0
    assert {name: getattr(engine, name)(sequences).tolist() for name in asked} == before
    assert engine.senders(sequences).names == ("x", "y")  # type: ignore[union-attr]
    assert sorted(engine.group_counts()[0]) == ["x", "y"]
    assert engine.backlog(0)[1] == 30
    assert partition.views.find_keys(array(11, 12))[1].tolist() == [2]  # its key is another's
    assert engine.counts.replayed == 2
    again = partition.lease(0)
    assert (again.sequences.tolist(), again.attempts.tolist()) == ([0, 2, 1], [2, 1, 2])
    # Whoever had it before has it no more.
    stale = Ack(partition.now_ms, sequences=leased.sequences, attempts=leased.attempts)
    assert partition.views.apply(stale).statuses is not None
    assert engine.states(sequences).tolist() == [MessageState.LEASED] * 2
    partition.views.check()


def test_attempts_before_a_replay_do_not_count() -> None:
    partition, _ = retaining()
    partition.apply(Configure, Rules(max_attempts=2, backoff_ms=100, jitter_parts=0).to_text())
    partition.send(5)
    partition.ack(0, partition.lease(0))
    partition.apply(Seek, *ALL)
    engine = partition.views.unnamed
    for state, wait_ms in ((MessageState.SCHEDULED, 100), (MessageState.DEAD, 0)):
        leased = partition.lease(0)
        partition.now_ms += 1
        partition.views.apply(Nack(partition.now_ms, -1, leased.lease_id))
        assert engine.states(array(0)).tolist() == [state]
        if wait_ms:  # as after a first attempt
            assert engine.dues(array(0)).tolist() == [partition.now_ms + wait_ms]
        # A clock that is put right leaves the rest of the wait.
        partition.views.apply(SetTime(partition.now_ms, 0))
        partition.now_ms += 200
    partition.apply(Seek, *ALL)  # the dead stay dead
    assert engine.counts.dead == 1
    partition.views.check()


FIRST_MS = 1_000_000


def filtered() -> Partition:
    """Six messages, two of each of three groups: the first of each is done, the other waits."""
    partition, _ = retaining()
    names = ("a", "b", "")
    words = Words(names, np.array([0, 1, 2, 0, 1, 2], dtype=np.int32))
    tags = Words(("red", ""), np.array([0, 1, 0, 1, 0, 1], dtype=np.int32))
    soon, later = FIRST_MS + 1_000, FIRST_MS + 5_000
    partition.send(
        5, 6, 7, soon, later, later, groups=words, tags=tags,
        priorities=np.array([1, 2, 3, 1, 2, 3], np.uint16),
    )  # fmt: skip
    partition.ack(0, partition.lease(0))
    return partition


@pytest.mark.parametrize(
    ("wanted", "back", "passed"),
    [
        (Selection(), [0, 1, 2], [3, 4, 5]),
        (Selection(group="a"), [0], [3]),
        (Selection(group=""), [2], [5]),
        (Selection(group="nobody"), [], []),
        (Selection(tags=TagFilter(("red",))), [0, 2], [4]),
        (Selection(tags=TagFilter((), (), ("red",))), [1], [3, 5]),
        (Selection(priority_from=2, priority_to=2), [1], [4]),
        (Selection(due_from_ms=6, due_to_ms=FIRST_MS + 5_000), [1, 2], [3]),
        (Selection(group="b", tags=TagFilter(("red",))), [], [4]),
    ],
)
def test_a_seek_is_about_what_its_filter_selects(
    wanted: Selection, back: list[int], passed: list[int]
) -> None:
    partition = filtered()
    engine, every = partition.views.unnamed, array(0, 1, 2, 3, 4, 5)
    partition.apply(Seek, 0, 1_000, 0, wanted)
    waiting = engine.states(every) == MessageState.SCHEDULED
    assert np.flatnonzero(waiting).tolist() == sorted([*back, 3, 4, 5])
    assert engine.counts.replayed == len(back)
    partition.views.check()
    partition.apply(Seek, 0, 1_000, 10**13, wanted)  # beyond all: passes over
    left = engine.states(every) == MessageState.SCHEDULED
    assert np.flatnonzero(left).tolist() == [place for place in (3, 4, 5) if place not in passed]
    partition.views.check()


def test_a_filter_asks_what_is_kept__moved_by_its_producer_and_not_by_a_failure() -> None:
    partition, _ = retaining()
    partition.now_ms = FIRST_MS
    rules = Rules(backoff_ms=60_000, jitter_parts=0).to_text()
    partition.apply(Configure, rules)
    partition.send(FIRST_MS + 100, FIRST_MS + 100)
    partition.apply(Move, array(1), array(FIRST_MS + 90_000))
    partition.now_ms += 200
    leased = partition.lease(0)
    partition.views.apply(Nack(partition.now_ms, -1, leased.lease_id))
    engine = partition.views.unnamed
    failed_ms = engine.dues(array(0))[0]
    assert failed_ms > FIRST_MS + 50_000
    hour = Selection(due_from_ms=FIRST_MS + 50_000)
    partition.apply(Seek, 0, 10, 10**13, hour)
    assert engine.states(array(0, 1)).tolist() == [MessageState.SCHEDULED, MessageState.DONE]
    partition.views.check()


def test_what_is_not_kept_is_what_the_view_says() -> None:
    partition = Partition()
    words = Words(("a", "b"), np.array([0, 1], dtype=np.int32))
    partition.send(FIRST_MS + 100, FIRST_MS + 100, groups=words)
    partition.apply(Seek, 0, 10, 10**13, Selection(group="a"))
    states = partition.views.unnamed.states(array(0, 1)).tolist()
    assert states == [MessageState.DONE, MessageState.SCHEDULED]


def test_a_log_knows_when_what_is_kept_is_due() -> None:
    partition, _ = retaining()
    number = partition.open("log", by_arrival=True)
    partition.send(FIRST_MS + 10_000, FIRST_MS + 90_000)
    partition.ack(number, partition.lease(number))
    late = Selection(due_from_ms=FIRST_MS + 50_000)
    partition.now_ms += 1
    partition.views.apply(InView(partition.now_ms, number, Seek(partition.now_ms, 0, 10, 0, late)))
    engine = partition.views.named[number].engine
    states = engine.states(array(0, 1)).tolist()
    assert states == [MessageState.DONE, MessageState.SCHEDULED]
    partition.views.check()


@pytest.mark.parametrize("kind", [TopicKind.PRIORITY, TopicKind.FAIR])
def test_orders_that_are_not_of_time(kind: TopicKind) -> None:
    partition, _ = retaining()
    partition.apply(Configure, Rules(kind=kind).to_text())
    partition.send(5, 6, 7, priorities=np.array([3, 1, 2], np.uint16))
    expected = partition.lease(0)
    partition.ack(0, expected)
    partition.apply(Seek, *ALL)
    assert partition.lease(0).sequences.tolist() == expected.sequences.tolist()
    partition.views.check()


@pytest.mark.parametrize("group_order", list(GroupOrder))
@pytest.mark.parametrize("kind", [TopicKind.TIMELINE, TopicKind.PRIORITY, TopicKind.FAIR])
def test_whatever_the_order_each_comes_back_once(kind: TopicKind, group_order: GroupOrder) -> None:
    random, (partition, _) = Random(7), retaining()
    partition.apply(Configure, Rules(kind=kind, group_order=group_order).to_text())
    engine, sent, held = partition.views.unnamed, 0, []
    for _ in range(60):
        count = random.randint(1, 6)
        names = tuple(random.sample("abcdefgh", 2))
        groups = Words(names, np.array([random.randint(0, 1) for _ in range(count)], np.int32))
        urgencies = np.array([random.randint(0, 9) for _ in range(count)], np.uint16)
        dues_ms = [partition.now_ms + random.choice([-5, 0, 30]) for _ in range(count)]
        partition.send(*dues_ms, groups=groups, priorities=urgencies)
        sent += count
        leased = partition.lease(0, random.randint(0, 9))
        if leased is not None:
            held.append(leased)
        if held and random.random() < 0.7:
            partition.ack(0, held.pop())
        first, from_ms = random.choice([0, sent // 2]), random.choice([0, 0, partition.now_ms])
        partition.apply(Seek, first, random.choice([sent, first + 9]), from_ms)
        partition.views.check()
    partition.now_ms += 10_000  # what was leased comes back
    while (leased := partition.lease(0, 50)) is not None and leased.sequences.size:
        partition.ack(0, leased)
    partition.apply(Seek, *ALL)
    partition.apply(Seek, *ALL)
    got = partition.lease(0, 10_000).sequences.tolist()
    assert sorted(got) == list(range(sent))
    assert engine.counts.scheduled == 0
    partition.views.check()


def test_a_log_gives_what_came_back_before_what_waits() -> None:
    partition, _ = retaining()
    view = partition.open("log", by_arrival=True)
    partition.send(9_000, 8_000)
    partition.ack(view, partition.lease(view))
    partition.now_ms += 500
    partition.send(7_000)
    partition.now_ms += 500
    partition.views.apply(InView(partition.now_ms, view, Seek(partition.now_ms, *ALL)))
    partition.send(6_000)
    assert partition.lease(view).sequences.tolist() == [0, 1, 2, 3]
    partition.views.check()


def test_a_span_that_is_wider_than_what_there_is() -> None:
    partition, _ = retaining()
    partition.send(5)
    for span in ((7, 9), (0, 0), (9, 3)):
        assert partition.apply(Seek, *span, 0).freed_locators.size == 0
    assert partition.apply(Seek, 0, 100, 6).freed_locators.size == 0  # passed over, but retained
    assert partition.views.unnamed.counts.acked == 1
    state = partition.views.unnamed.state
    none = replay.returning(state, partition.now_ms, 6, array(0))
    assert none.tolist() == [False]  # it is before that place
    partition.views.check()


def test_a_log_stays_in_order_where_some_were_done_before_others() -> None:
    partition, _ = retaining()
    view = partition.open("log", by_arrival=True)
    for name in ("x", "", "x"):  # within one mark
        partition.send(9_000, tags=Words((name,), np.zeros(1, dtype=np.int32)))
    now_ms = partition.now_ms + 2
    chosen = Lease(now_ms, 99, now_ms, 10, now_ms + 1_000, filter=TagFilter(any_of=("x",)))
    leased = partition.views.apply(InView(now_ms, view, chosen)).leased
    assert leased is not None
    assert leased.sequences.tolist() == [0, 2]
    partition.now_ms = now_ms
    partition.ack(view, leased)
    partition.views.apply(InView(partition.now_ms, view, Seek(partition.now_ms, *ALL)))
    assert partition.lease(view).sequences.tolist() == [0, 1, 2]
    partition.views.check()


def tiny(rebase_slabs_min: int, batches: int) -> Partition:
    """A partition of small slabs, with batches of 40 messages that are done and retained."""
    partition, kept = retaining()
    layout = Layout(slab_bits=6, rebase_slabs_min=rebase_slabs_min)
    for engine in (partition.views.unnamed, kept.engine):
        engine.state.layout = layout
        engine.state.table = MessageTable(layout)
    partition.views.settle()
    done(partition, batches)
    return partition


def done(partition: Partition, batches: int) -> None:
    for _ in range(batches):
        partition.send(*[5] * 40)
        partition.ack(0, partition.lease(0, 40))


def stored(files: list[PlannedFile]) -> dict[str, bytes]:
    return {name: bytes(part) for name, part in files if part is not None}


def restored(meta: str, content: dict[str, bytes]) -> PartitionViews:
    layout = Layout(slab_bits=6)
    return restore_views(meta, lambda name: memoryview(content[name]), layout)


def test_what_came_back_into_a_dead_slab_is_not_left_behind() -> None:
    partition = tiny(rebase_slabs_min=6, batches=8)
    engine = partition.views.unnamed
    assert engine.state.table.base == 0
    partition.apply(Seek, 70, 80, 0)  # in the second slab; all before and behind are dead
    held = partition.lease(0, 100)
    done(partition, 60)
    assert engine.state.table.base in (0, 64)
    assert partition.ack(0, held) == []
    assert engine.counts.live == 0
    partition.views.check()


def test_rows_that_the_window_has_left_behind() -> None:
    partition = tiny(rebase_slabs_min=2, batches=40)
    kept = partition.views.retained
    assert kept is not None
    engine = partition.views.unnamed
    assert engine.state.table.base > 64
    assert engine.live_from(0) == engine.next_sequence
    assert kept.engine.live_from(100) == 100
    partition.send(*[99_000] * 3)
    before = partition.views.state_hash()
    plan = begin_views_snapshot(partition.views)
    partition.apply(Seek, 10, 20, 0)
    assert engine.state.table.base == 0
    assert engine.live_from(0) < 64
    partition.send(5)
    assert partition.lease(0, 1_000).sequences.tolist() == [*range(10, 20), 1_603]
    partition.views.check()
    # A snapshot that was begun before is of before, and one of now has them.
    plan.copy_some()
    content = stored(plan.files())
    assert restored(plan.meta, content).state_hash() == before
    meta, files = plan_views_snapshot(partition.views)
    after = restored(meta, content | stored(files))
    assert after.state_hash() == partition.views.state_hash()
    after.check()
