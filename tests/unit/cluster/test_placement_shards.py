"""Shards: their names, who serves them, and that all who route come to the same answer."""

from __future__ import annotations

import pytest

from dejaqueue.catalogue.state import TopicRow
from dejaqueue.cluster.ownership import Owner, key_of, owners_of
from dejaqueue.cluster.placement import PlacedTopic, slot_of
from dejaqueue.coordinator.bells import check_key
from dejaqueue.coordinator.interface import Fact
from dejaqueue.errors import BadRequest, Elsewhere, from_fields, to_fields
from dejaqueue.model import Topic
from dejaqueue.topic_names import (
    check_served_name,
    check_topic_name,
    parse_shard,
    shard_name,
    topic_of,
)


def test_no_topic_can_be_called_as_a_shard_is() -> None:
    name = shard_name("reminders", 1, 3)
    assert parse_shard(name) == ("reminders", 1, 3)
    assert topic_of(name) == topic_of("reminders") == "reminders"
    assert check_served_name(name) == name
    for wrong in (name, "a=b", "a="):
        with pytest.raises(BadRequest, match="characters"):
            check_topic_name(wrong)
    for wrong in ("reminders=3-3", "reminders=0-65", "re minders=0-3", "a=1-2=0-3"):
        with pytest.raises(BadRequest):
            check_served_name(wrong)


def test_a_shard_is_where_the_same_shard_of_its_dead_letters_is() -> None:
    topics = (Topic("t", spread=3, dead_letter="d").check(), Topic("d", spread=3).check())
    placed: dict[str, PlacedTopic] = {topic.name: TopicRow(topic, 1, start=5) for topic in topics}
    slots = [slot_of(shard, placed, 64) for topic in topics for shard in topic.shards]
    assert slots == [5, 6, 7, 5, 6, 7]


def test_the_fact_of_a_slot_is_found_again() -> None:
    owner = Owner("a", "life", 4, 7)
    fact = Fact(check_key(key_of(17)), owner.to_bytes(), 7)
    assert owners_of([fact]) == {17: owner}


def test_a_topic_has_a_partition_for_each_shard_at_least() -> None:
    assert Topic("t", spread=3).check().partitions == 3
    assert Topic("t", spread=3, partitions=6).check().shards == ("t=0-3", "t=1-3", "t=2-3")
    assert Topic("t").check().shards == ("t",)
    for wrong in (
        {"spread": 3, "partitions": 4},
        {"spread": 0},
        {"spread": 65},
    ):
        with pytest.raises(BadRequest):
            Topic.from_dict({"name": "t", **wrong})


def test_elsewhere_tells_its_spread_to_who_knows_it_and_who_does_not() -> None:
    told = from_fields(to_fields(Elsewhere("in shards", spread=3)))
    assert isinstance(told, Elsewhere)
    assert told.spread == 3
    fields = to_fields(Elsewhere("there", 50, "b", "dejaq://b", "http://b"))
    del fields["fields"]["spread"]
    old = from_fields(fields)
    assert isinstance(old, Elsewhere)
    assert (old.spread, old.url) == (0, "dejaq://b")
