"""Covers: what a state answers about its rows: alive, ready, matching, whose, in which group.

Not covered: what changes it (test_apply.py, tests/model), its invariants (test_invariants.py), its
hash (test_state_hash.py) and its form in a snapshot (test_snapshot.py).
"""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.engine.arrays import Int64s, Mask
from dejaqueue.engine.commands import (
    Ack,
    Cancel,
    Configure,
    Enqueue,
    Lease,
    Move,
    SetTime,
    Stage,
)
from dejaqueue.engine.dictionary import of_runs
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.layout import TINY
from dejaqueue.engine.rules import Rules
from dejaqueue.engine.snapshot import plan_snapshot, restore
from dejaqueue.engine.state import PartitionState, new_sequences
from dejaqueue.model import ChangeKind, TagFilter, Topic, TopicKind


def int64s(*values: int) -> Int64s:
    return np.array(values, dtype=np.int64)


def bools(mask: Mask) -> list[bool]:
    assert mask.dtype == np.bool_
    return [bool(value) for value in mask]


@pytest.fixture
def engine() -> Engine:
    """Messages 0 to 3, due at 5, 10, 20, 30; 0 is leased, 3 is cancelled."""
    engine = Engine(0, TINY)
    engine.apply(Enqueue(0, 1, int64s(5, 10, 20, 30), ()))
    engine.apply(Lease(5, 2, 5, 1, 1_000))
    engine.apply(Cancel(6, int64s(3)))
    return engine


# --- what is alive


def test_an_entry_of_the_order_is_alive__while_its_message_is_scheduled_for_that_time(
    engine: Engine,
) -> None:
    """Moved, leased and cancelled messages leave entries behind, which must not come out."""
    engine.apply(Move(7, int64s(2), dues_ms=int64s(25)))
    keys, sequences = int64s(5, 10, 20, 25, 30), int64s(0, 1, 2, 2, 3)
    assert bools(engine.state.is_due(keys, sequences)) == [False, True, False, True, False]


def test_what_is_done_or_never_was_is_not_live(engine: Engine) -> None:
    sequences = int64s(0, 1, 3, 4, 1_000_000, -1)
    assert bools(engine.state.is_live(sequences)) == [True, True, False, False, False, False]


def test_the_end_of_a_life_counts__only_for_the_time_that_the_message_has() -> None:
    engine = Engine(0, TINY)
    engine.apply(Enqueue(0, 1, int64s(5, 50), (), expires_ms=int64s(90, 90)))
    engine.apply(Lease(5, 2, 5, 1, 1_000))
    keys, sequences = int64s(90, 90, 91), int64s(0, 1, 1)
    assert bools(engine.state.dies_then(keys, sequences)) == [False, True, False]


# --- which tags a filter takes


def of_tags(*sets: str) -> Engine:
    engine = Engine(0, TINY)
    tags = of_runs([(one, 1) for one in sets])
    engine.apply(Enqueue(0, 1, np.zeros(len(sets), dtype=np.int64), (), tags=tags))
    return engine


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        (TagFilter(), [True, True, True, True]),
        (TagFilter(any_of=("a", "c")), [False, True, True, False]),
        (TagFilter(all_of=("a", "b")), [False, False, True, False]),
        (TagFilter(none_of=("a",)), [True, False, False, True]),
        (TagFilter(any_of=("a",), none_of=("b",)), [False, True, False, False]),
    ],
    ids=["all", "any", "both", "none", "mixed"],
)
def test_a_filter_takes_what_has_such_tags(wanted: TagFilter, taken: list[bool]) -> None:
    engine = of_tags("", "a", "a\x1fb", "b")
    assert bools(engine.state.matching(wanted)(int64s(0, 1, 2, 3))) == taken


def test_a_part_of_a_tag_is_no_tag() -> None:
    engine = of_tags("ab", "a\x1fbc")
    matches = engine.state.matching(TagFilter(any_of=("a", "b")))
    assert bools(matches(int64s(0, 1))) == [False, True]


def test_a_filter_that_was_used_before_sees_tags_that_came_since() -> None:
    """What it takes is kept by code, and new sets of tags get new codes."""
    engine, wanted = of_tags("a"), TagFilter(any_of=("b",))
    assert bools(engine.state.matching(wanted)(int64s(0))) == [False]
    engine.apply(Enqueue(1, 2, int64s(0), (), tags=of_runs([("b", 1)])))
    assert bools(engine.state.matching(wanted)(int64s(0, 1))) == [False, True]


def test_messages_without_any_tags_are_taken_by_what_asks_for_none(engine: Engine) -> None:
    """Where no message ever had a tag there is no column of them."""
    assert bools(engine.state.matching(TagFilter(none_of=("a",)))(int64s(0, 1))) == [True, True]
    assert bools(engine.state.matching(TagFilter(any_of=("a",)))(int64s(0, 1))) == [False, False]


def test_remembered_filters_are_bounded() -> None:
    """A caller may send a new filter with each call."""
    engine = of_tags("a")
    for number in range(300):
        engine.state.matching(TagFilter(any_of=(f"tag {number}",)))
    assert 0 < len(engine.state.filter_takes) <= 64


# --- priorities, groups, senders


def test_priorities_are_said_as_they_were_sent() -> None:
    engine = Engine(0, TINY)
    sent = np.array([0, 1, 32_768, 65_535], dtype=np.uint16)
    engine.apply(Enqueue(0, 1, int64s(0, 0, 0, 0), (), priorities=sent))
    found = engine.state.priorities(int64s(0, 1, 2, 3))
    assert found is not None
    assert found.tolist() == sent.tolist()


def test_the_group_of_each_row_is_named__in_the_order_of_the_rows() -> None:
    engine = Engine(0, TINY)
    groups = of_runs([("b", 1), ("a", 2), ("", 1)])
    engine.apply(Enqueue(0, 1, int64s(0, 0, 0, 0), (), groups=groups))
    found = engine.state.groups_of(int64s(3, 2, 0, 1, 0))
    assert [found.names[index] for index in found.indices] == ["", "a", "b", "a", "b"]
    assert len(found.names) == len(set(found.names))


def test_a_message_without_a_group_has_the_empty_one(engine: Engine) -> None:
    found = engine.state.groups_of(int64s(0, 1))
    assert (found.names, found.indices.tolist()) == (("",), [0, 0])


@pytest.fixture
def sent() -> Engine:
    """Messages of ada (0, 1) and bob (2), one of nobody (3); ada's 1 is cancelled."""
    engine = Engine(0, TINY)
    senders = of_runs([("ada", 2), ("bob", 1), ("", 1)])
    engine.apply(Enqueue(0, 1, int64s(5, 5, 5, 5), (), senders=senders))
    engine.apply(Cancel(1, int64s(1)))
    return engine


def test_a_senders_messages_are_the_live_ones(sent: Engine) -> None:
    places = int64s(0, 1, 2, 3)
    assert bools(sent.state.sent_by(places, "ada")) == [True, False, False, False]
    assert bools(sent.state.sent_by(places, "bob")) == [False, False, True, False]


@pytest.mark.parametrize("nobody", ["", "eve"])
def test_nobody_and_strangers_sent_nothing(sent: Engine, nobody: str) -> None:
    """A caller without a name must not reach the messages that nobody sent."""
    assert not sent.state.sent_by(int64s(0, 1, 2, 3), nobody).any()


def test_who_sent_a_row_is_said_by_name__or_not_at_all(sent: Engine, engine: Engine) -> None:
    found = sent.state.senders_of(int64s(3, 0, 2))
    assert found is not None
    assert [found.names[index] for index in found.indices] == ["", "ada", "bob"]
    assert engine.state.senders_of(int64s(0)) is None


def test_names_of_senders_are_used_again__when_no_live_message_has_them() -> None:
    """A thousand names come with one message each; the one that stays keeps its code."""
    engine, count = Engine(0, TINY), 1_100
    senders = of_runs([(f"sender {number}", 1) for number in range(count)])
    engine.apply(Enqueue(0, 1, np.zeros(count, dtype=np.int64), (), senders=senders))
    engine.apply(Cancel(1, np.arange(1, count, dtype=np.int64)))
    known = len(engine.state.senders)
    senders = of_runs([(f"other {number}", 1) for number in range(1_000)])
    engine.apply(Enqueue(2, 2, np.zeros(1_000, dtype=np.int64), (), senders=senders))
    assert len(engine.state.senders) == known
    found = engine.state.senders_of(int64s(0, count))
    assert found is not None
    assert sorted(found.names) == ["other 0", "sender 0"]


# --- sizes of payloads


def test_bytes_of_live_payloads_go_when_their_messages_are_done() -> None:
    """An empty payload has a size, too: it is not one whose size nobody noted."""
    engine = Engine(0, TINY)
    sizes = np.array([0, 10, 100], dtype=np.uint32)
    engine.apply(Enqueue(0, 1, int64s(5, 5, 5), (), payload_sizes=sizes))
    engine.apply(Enqueue(0, 2, int64s(5), ()))
    assert (engine.state.payload_bytes, engine.state.sized_count) == (110, 3)
    engine.apply(Cancel(1, int64s(0, 2, 3)))
    assert (engine.state.payload_bytes, engine.state.sized_count) == (10, 1)
    assert engine.backlog(mean_payload_bytes=1_000) == (1, 10)


# --- what is ready


def ready_engine(kind: TopicKind) -> Engine:
    """Messages 0 to 3, due at 5, 5, 5, 50; the first is leased at 5, so the next two are ready."""
    engine = Engine(0, TINY)
    engine.apply(Configure(0, Rules.of(Topic("t", kind=kind)).to_text()))
    engine.apply(Enqueue(0, 1, int64s(5, 5, 5, 50), (), groups=of_runs([("a", 4)])))
    engine.apply(Lease(5, 2, 5, 1, 1_000))
    return engine


@pytest.mark.parametrize("kind", [TopicKind.PRIORITY, TopicKind.FAIR], ids=["priority", "fair"])
def test_what_was_due_at_the_last_lease_is_ready(kind: TopicKind) -> None:
    state = ready_engine(kind).state
    assert state.ready_until_ms == 5
    assert bools(state.is_ready(int64s(0, 1, 2, 3))) == [False, True, True, False]
    assert state.ready_places().tolist() == [1, 2]
    assert state.ready is not None
    assert state.order.entry_count == 1


@pytest.mark.parametrize("kind", [TopicKind.PRIORITY, TopicKind.FAIR], ids=["priority", "fair"])
def test_what_is_moved_away_is_not_ready_any_more__until_it_is_due_again(kind: TopicKind) -> None:
    engine = ready_engine(kind)
    engine.apply(Move(6, int64s(1), dues_ms=int64s(70)))
    assert engine.state.ready_places().tolist() == [2]
    leased = engine.apply(Lease(60, 3, 60, 9, 1_000)).leased
    assert leased is not None
    assert sorted(leased.sequences.tolist()) == [2, 3]
    leased = engine.apply(Lease(70, 4, 70, 9, 1_000)).leased
    assert leased is not None
    assert leased.sequences.tolist() == [1]


def test_nothing_becomes_ready_twice() -> None:
    state = ready_engine(TopicKind.PRIORITY).state
    assert not state.promote(6)
    assert state.ready_until_ms == 5
    assert state.promote(50)
    assert state.ready_places().tolist() == [1, 2, 3]


def taking_over(kind: TopicKind) -> Engine:
    """Messages 0 to 4, due at 5, 5, 5, 5, 6, taken over by two: 0 and 1 so far, and none leased."""
    engine = Engine(0, TINY)
    rules = Rules.of(Topic("t", kind=kind), take_over_rows_max=2)
    engine.apply(Configure(0, rules.to_text()))
    engine.apply(Enqueue(0, 1, int64s(5, 5, 5, 5, 6), ()))
    assert not engine.is_taking_over
    assert not engine.apply(Lease(9, 2, 9, 0, 1_000)).is_void
    return engine


@pytest.mark.parametrize("kind", [TopicKind.PRIORITY, TopicKind.FAIR], ids=["priority", "fair"])
def test_what_is_due_is_taken_over_in_pieces__by_due_time_and_sequence(kind: TopicKind) -> None:
    engine = taking_over(kind)
    seen = [engine.state.ready_places().tolist()]
    while engine.is_taking_over:
        engine.check()
        engine.apply(Lease(9, 3, 9, 0, 1_000))
        seen.append(engine.state.ready_places().tolist())
    assert seen == [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4]]
    assert engine.apply(Lease(9, 4, 9, 0, 1_000)).is_void


def test_what_is_in_the_index_twice_is_taken_over_once() -> None:
    engine = taking_over(TopicKind.FAIR)
    engine.apply(Move(9, int64s(2), groups=of_runs([("b", 1)])))  # a second entry for the same time
    for position in (3, 4, 5, 6):
        engine.apply(Lease(9, position, 9, 0, 1_000))
    assert engine.next_due_ms() == 9
    assert not engine.is_taking_over
    leased = engine.apply(Lease(9, 7, 9, 9, 1_000)).leased
    assert leased is not None
    assert sorted(leased.sequences.tolist()) == [0, 1, 2, 3, 4]
    assert engine.next_due_ms() is None


def test_the_end_of_the_pieces_leaves_a_trace__though_it_has_no_rows() -> None:
    engine = taking_over(TopicKind.FAIR)
    engine.apply(Cancel(9, int64s(4)))
    engine.apply(Lease(9, 3, 9, 0, 1_000))
    assert engine.is_taking_over  # two pieces of two: nobody looked further
    assert not engine.apply(Lease(9, 4, 9, 0, 1_000)).is_void
    assert not engine.is_taking_over
    assert engine.apply(Lease(9, 5, 9, 0, 1_000)).is_void


@pytest.mark.parametrize("kind", [TopicKind.PRIORITY, TopicKind.FAIR], ids=["priority", "fair"])
def test_what_comes_between_two_pieces_is_taken_over_in_its_place(kind: TopicKind) -> None:
    engine = taking_over(kind)
    engine.apply(Enqueue(9, 3, int64s(4, 5, 9), ()))  # before, behind and after what was reached
    assert engine.state.ready_places().tolist() == [0, 1, 5]
    engine.apply(Move(9, int64s(4), dues_ms=int64s(5)))
    engine.apply(Move(9, int64s(1), dues_ms=int64s(8)))
    assert engine.state.ready_places().tolist() == [0, 5]
    engine.check()
    engine.apply(Lease(9, 4, 9, 0, 1_000))
    assert engine.state.ready_places().tolist() == [0, 2, 3, 5]
    taken = [engine.apply(Lease(9, 5 + n, 9, 3, 1_000)).leased for n in range(3)]
    sequences = [s for leased in taken if leased is not None for s in leased.sequences.tolist()]
    assert sorted(sequences) == list(range(8))


@pytest.mark.parametrize("kind", [TopicKind.PRIORITY, TopicKind.FAIR], ids=["priority", "fair"])
def test_a_snapshot_between_two_pieces_goes_on_with_the_next(kind: TopicKind) -> None:
    engine = taking_over(kind)
    meta, files = plan_snapshot(engine)
    contents = {name: memoryview(content or b"") for name, content in files}
    restored = restore(meta, contents.__getitem__, TINY)
    assert restored.state_hash() == engine.state_hash()
    assert restored.is_taking_over
    for one in (engine, restored):
        one.apply(Lease(9, 3, 9, 3, 1_000))
        one.check()
    assert restored.state_hash() == engine.state_hash()
    assert restored.state.ready_places().tolist() == [3]


def test_a_clock_that_is_put_right_between_two_pieces_changes_nothing_of_them() -> None:
    engine = taking_over(TopicKind.PRIORITY)
    engine.apply(SetTime(7, 2))
    engine.check()
    assert engine.state.ready_places().tolist() == [0, 1]
    engine.apply(SetTime(4, 3))  # before all that is due
    assert not engine.is_taking_over
    assert engine.state.ready_places().tolist() == []


def test_rules_without_pieces_take_over_all_at_once__and_not_for_a_lease_of_no_rows() -> None:
    engine = Engine(0, TINY)
    engine.apply(Configure(0, Rules.of(Topic("t", kind=TopicKind.FAIR)).to_text()))
    engine.apply(Enqueue(0, 1, int64s(5, 5, 5, 5, 6), ()))
    assert engine.apply(Lease(9, 2, 9, 0, 1_000)).is_void
    engine.apply(Lease(9, 2, 9, 1, 1_000))
    assert engine.state.ready_places().tolist() == [1, 2, 3, 4]


def test_a_timeline_keeps_no_second_order(engine: Engine) -> None:
    assert engine.state.ready is None
    assert engine.state.starts() == []


# --- transactions and changes


def test_a_transaction_that_stages_again_gets_the_longer_time() -> None:
    state = PartitionState(TINY)
    first = state.stage(Stage("t/0/1", 900))
    assert state.stage(Stage("t/0/1", 500)) is first
    assert first.until_ms == 900
    assert state.stage(Stage("t/0/1", 1_500)).until_ms == 1_500
    assert state.stage(Stage("t/0/2", 100)) is not first


def test_a_change_of_no_rows_is_not_noted(engine: Engine) -> None:
    engine.note_changes(True)
    engine.state.note(ChangeKind.MOVED, int64s())
    assert engine.state.changes == []


def test_a_change_is_noted_with_what_the_table_has_now(engine: Engine) -> None:
    engine.note_changes(True)
    engine.state.note(ChangeKind.MOVED, int64s(0, 1), "why")
    assert engine.state.changes is not None
    [change] = engine.state.changes
    assert (change.kind, change.reason) == (ChangeKind.MOVED, "why")
    assert change.sequences.tolist() == [0, 1]
    assert change.dues_ms is not None
    assert change.dues_ms.tolist() == [1_000, 10]
    assert change.attempts is not None
    assert change.attempts.tolist() == [1, 0]


def test_noted_sequences_are_those_of_messages__not_of_places() -> None:
    """Once the first slabs are dead the table begins at a later sequence."""
    engine = Engine(0, TINY)
    engine.apply(Enqueue(0, 1, np.zeros(200, dtype=np.int64), ()))
    engine.apply(Lease(1, 2, 1, 200, 1_000))
    engine.apply(Ack(1, 2))
    engine.apply(Enqueue(2, 3, np.full(9, 7, dtype=np.int64), ()))
    assert engine.state.table.base > 0, "the table was not moved down: the test shows nothing"
    engine.note_changes(True)
    [change] = engine.apply(Cancel(3, int64s(203))).changes
    assert change.sequences.tolist() == [203]
    assert bools(engine.state.is_live(int64s(199, 202, 203))) == [False, True, False]


def test_new_sequences_follow_each_other() -> None:
    assert new_sequences(7, 3).tolist() == [7, 8, 9]
    assert new_sequences(7, 0).dtype == np.int64
