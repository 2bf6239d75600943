"""Covers: to whom slots are dealt, and in which slot a topic lies."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import pytest

from dejaqueue.cluster.placement import (
    PlacedTopic,
    dealt,
    hashed_slot,
    root_of,
    slot_of,
    start_for,
)
from dejaqueue.model import Topic
from dejaqueue.topic_names import shard_name

SLOTS = 64
NODES = [f"node-{number}" for number in range(5)]


@dataclass(frozen=True)
class Lying:
    topic: Topic
    start: int = 0


def lying(*topics: Topic) -> dict[str, PlacedTopic]:
    """Each of them where its name says."""
    return {topic.name: Lying(topic, hashed_slot(topic.name, SLOTS)) for topic in topics}


def moved(before: tuple[str, ...], after: tuple[str, ...]) -> int:
    return sum(one != other for one, other in zip(before, after, strict=True))


def test_nobody_gets_anything_where_there_is_nobody() -> None:
    assert dealt([], SLOTS) == ()
    assert dealt(["a"], 3) == ("a", "a", "a")


def test_everybody_comes_to_the_same_answer() -> None:
    assert dealt(["a", "b", "c"], SLOTS) == dealt(iter(["c", "a", "b"]), SLOTS)


@pytest.mark.parametrize("slots", [1, 16, 64, 1_024])
def test_no_node_gets_more_than_its_part_rounded_up(slots: int) -> None:
    for nodes in range(1, 6):
        counts = Counter(dealt(NODES[:nodes], slots))
        assert sum(counts.values()) == slots
        assert max(counts.values()) <= -(-slots // nodes)


@pytest.mark.parametrize("slots", [64, 1_024])
def test_hardly_more_moves_than_what_a_node_gets_or_had(slots: int) -> None:
    """A node more or less moves its part; at most a tenth of all slots moves besides."""
    deals = [dealt(NODES[:nodes], slots) for nodes in range(1, 6)]
    for nodes, (before, after) in enumerate(pairwise(deals), start=2):
        assert moved(before, after) <= slots / nodes + slots / 10
    lost = [name for name in NODES if name != NODES[2]]
    assert moved(dealt(NODES, slots), dealt(lost, slots)) <= slots / 5 + slots / 10


def test_a_topic_goes_with_its_dead_letters() -> None:
    topics = lying(Topic("t"), Topic("t.dead"), Topic("u", dead_letter="bin"), Topic("bin"))
    assert root_of("t.dead", topics) == root_of("t", topics) == "t"
    assert root_of("u", topics) == root_of("bin", topics) == "bin"
    assert slot_of("u", topics, SLOTS) == slot_of("bin", topics, SLOTS)
    del topics["t"]
    assert slot_of("t.dead", topics, SLOTS) == hashed_slot("t", SLOTS)


def test_a_long_name_goes_with_the_topic_whose_name_was_cut_for_it() -> None:
    topic = Topic("x" * 255)
    assert root_of(topic.name, lying(topic)) == root_of(topic.dead_letter_name, lying(topic))


def test_a_ring_of_dead_letters_is_in_one_slot() -> None:
    topics = lying(
        Topic("a", dead_letter="b"), Topic("b", dead_letter="c"), Topic("c", dead_letter="b")
    )
    assert {root_of(name, topics) for name in topics} == {"b"}
    assert len({slot_of(name, topics, SLOTS) for name in topics}) == 1


def test_shards_lie_side_by_side_from_the_start_of_their_topic() -> None:
    topic = Topic("t", spread=3).check()
    placed: dict[str, PlacedTopic] = {"t": Lying(topic, SLOTS - 1)}
    assert [slot_of(name, placed, SLOTS) for name in topic.shards] == [SLOTS - 1, 0, 1]


@pytest.mark.parametrize("spread", [2, 3, 5, 8, 64])
def test_shards_of_a_new_topic_come_to_as_many_nodes_as_can_be(spread: int) -> None:
    for nodes in range(1, 6):
        owners = dealt(NODES[:nodes], SLOTS)
        for name in ("a", "b", "c.d"):
            start = start_for(Topic(name, spread=spread), {}, NODES[:nodes], SLOTS)
            counts = Counter(dict.fromkeys(owners, 0))
            counts.update(owners[(start + shard) % SLOTS] for shard in range(spread))
            assert max(counts.values()) - min(counts.values()) <= (2 if spread == SLOTS else 1)


def test_a_topic_lies_by_its_name_unless_it_is_in_shards() -> None:
    assert start_for(Topic("t"), {}, NODES, SLOTS) == hashed_slot("t", SLOTS)
    assert start_for(Topic("t", spread=3), {}, [], SLOTS) == hashed_slot("t", SLOTS)


def test_who_is_made_later_lies_where_those_lie_that_are_placed_by_it() -> None:
    """Else they would change hands for it."""
    letters = Topic("t", spread=3, dead_letter="bin").check()
    placed: dict[str, PlacedTopic] = {"t": Lying(letters, 5)}
    start = start_for(Topic("bin", spread=3), placed, NODES, SLOTS)
    there = slot_of(shard_name("t", 0, 3), placed, SLOTS)
    assert start == hashed_slot("bin", SLOTS) == there


def test_slots_of_planned_nodes_are_theirs_in_turn__and_only_those_of_one_away_move() -> None:
    planned = ("a", "b", "c")
    all_there = dealt(planned, 16, planned)
    assert all_there == tuple(planned[slot % 3] for slot in range(16))
    without = dealt(("a", "c"), 16, planned)
    kept = [now for before, now in zip(all_there, without, strict=True) if before != "b"]
    assert kept == [owner for owner in all_there if owner != "b"]
    assert {without.count("a"), without.count("c")} == {8}
