"""Covers: what stats() makes of a broker's answer: typed, read-only, tolerant of other versions.

Not covered: what each number means (docs/reference/metrics.md); that all of them are known here
(tests/docs/test_pages.py).
"""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from dejaqueue.client.stats import BrokerStats, ConsumerStats, TopicStats

ANSWER: dict[str, Any] = {
    "topic": "t",
    "acked": 3,
    "next_due_ms": 12,
    "of_a_newer_broker": 1,
    "consumers": [{"consumer": "c", "credit": 9, "of_a_newer_broker": 1}],
    "partitions": [{"acked": 1, "position": 4}, {"acked": 2, "ahead_ms": 7}],
}


def test_the_numbers_are_attributes() -> None:
    stats = TopicStats.from_answer(ANSWER)
    assert (stats.topic, stats.acked, stats.next_due_ms) == ("t", 3, 12)
    assert stats.consumers == (ConsumerStats(consumer="c", credit=9),)
    assert [one.acked for one in stats.partitions] == [1, 2]
    assert (stats.partitions[0].position, stats.partitions[1].ahead_ms) == (4, 7)


def test_what_an_older_broker_does_not_say_is_nothing() -> None:
    stats = TopicStats.from_answer({"topic": "t"})
    assert (stats.acked, stats.next_due_ms, stats.partitions) == (0, -1, ())


def test_they_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        TopicStats.from_answer(ANSWER).acked = 4  # type: ignore[misc]


def test_a_name_in_brackets_gives_the_same__and_no_other_attribute() -> None:
    stats = TopicStats.from_answer(ANSWER)
    assert stats["acked"] == 3
    assert stats["partitions"][1]["acked"] == 2
    for name in ("from_answer", "of_a_newer_broker"):
        with pytest.raises(KeyError):
            stats[name]


def test_a_broker_has_topics_and_silent_nodes() -> None:
    stats = BrokerStats.from_answer({"uptime_ms": 5, "topics": {"t": ANSWER}, "silent": ["n"]})
    assert (stats.uptime_ms, stats.topics["t"].acked, stats.silent) == (5, 3, ("n",))
    assert BrokerStats.from_answer({"uptime_ms": 5, "topics": {}}).silent == ()


def test_all_of_it_is_json() -> None:
    stats = BrokerStats.from_answer({"uptime_ms": 5, "topics": {"t": ANSWER}})
    said = json.loads(json.dumps(stats.to_dict()))
    assert said["topics"]["t"]["partitions"][1]["acked"] == 2
    assert BrokerStats.from_answer(said) == stats
