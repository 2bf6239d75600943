"""Problems: each is found, and a topic that does what it should has none."""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.console import problems
from dejaqueue.console.rows import SHOWN, Pace

NOW_MS = 1_000_000
FINE = dict.fromkeys((*SHOWN, "consumers", "credit"), 0) | {"next_due_ms": -1}
LATE = {"ready": 5, "next_due_ms": NOW_MS - 5_000, "consumers": 1}


@pytest.mark.parametrize(
    ("name", "numbers", "settings", "title"),
    [
        ("t", {"ready": 5}, {}, "5 messages are due and nobody consumes"),
        ("t", {"ready": 5}, {"paused": True}, "Paused, with 5 messages due"),
        ("t", LATE, {}, "Late by 5 s: no consumer has credit"),
        ("t", LATE | {"credit": 1}, {}, "Late by 5 s"),
        ("t.dead", {"scheduled": 2, "ready": 2}, {}, "2 dead letters wait"),
        ("t", {"ahead_ms": 2_000}, {}, "Its time is 2 s ahead of the clock"),
        ("t", {"dead": 3}, {}, "3 dead messages are on their way to their topic"),
        (
            "t",
            {"scheduled": 95},
            {"max_backlog_count": 100},
            "The backlog is 95 % of what it may be",
        ),
    ],
)
def test_a_problem_is_found(
    name: str, numbers: dict[str, int], settings: dict[str, Any], title: str
) -> None:
    found = problems.of_topic(name, FINE | numbers, settings, NOW_MS)
    assert [one.title for one in found] == [title]
    assert found[0].remedy.endswith(".")


@pytest.mark.parametrize(
    "numbers",
    [{}, {"scheduled": 5, "next_due_ms": NOW_MS + 1}, LATE | {"next_due_ms": NOW_MS - 10}],
)
def test_a_topic_that_does_what_it_should_has_none(numbers: dict[str, int]) -> None:
    assert problems.of_topic("t", FINE | numbers, {"max_backlog_count": 100}, NOW_MS) == []


def test_the_worst_comes_first() -> None:
    found = problems.of_broker({"warnings": ["a disk is nearly full"]})
    found += problems.of_topic("t", FINE | {"ready": 5}, {}, NOW_MS)
    found += problems.of_broker({"reasons": ["it starts"]})
    assert [one.weight for one in problems.in_order(found)] == [3, 3, 2]


def test_dead_letters_that_grow_weigh_more() -> None:
    row = FINE | {"scheduled": 5, "consumers": 0}
    [waits] = problems.of_topic("t.dead", row, {}, NOW_MS)
    [grows] = problems.of_topic("t.dead", row, {}, NOW_MS, Pace(rate_in=0.5))
    assert (waits.weight, waits.title) == (1, "5 dead letters wait")
    assert (grows.weight, grows.title) == (2, "5 dead letters wait, and 30 a minute come")


def test_brokers_that_are_away_or_sick_are_named() -> None:
    nodes = [
        {"node": "a", "leaving": False},
        {"node": "b", "leaving": False, "short": True},
        {"node": "c", "leaving": False, "clock": {"apart": True}},
    ]
    assert [one.title for one in problems.of_cluster(nodes, ["d"])] == [
        "The broker d does not answer",
        "The disk of the broker b is short: its producers wait",
        "The clock of the broker c is off: it takes no topics",
    ]
    assert problems.of_cluster([], ()) == []


def test_a_group_that_waits_while_others_are_served_is_named() -> None:
    pace = Pace(rate_out=40.0)
    oldest: list[dict[str, Any]] = [
        {"group": "slow", "due": NOW_MS - 300_000},
        {"group": "slow", "due": NOW_MS - 90_000},
        {"group": "quick", "due": NOW_MS - 10},
        {"due": NOW_MS - 61_000},
    ]
    titles = [one.title for one in problems.of_groups("t", oldest, NOW_MS, pace)]
    assert titles == [
        "What has no group starves: its oldest message waits for 1 min 1 s, and 40 a second are "
        "done",
        "The group slow starves: its oldest message waits for 5 min, and 40 a second are done",
    ]


def test_only_where_something_waits_and_something_is_done_a_group_may_starve() -> None:
    fair, pace = {"kind": "fair"}, Pace(rate_out=1.0)
    row = FINE | {"ready": 3, "consumers": 1}
    assert problems.may_starve(row, fair, pace)
    for less in (
        (row, {"kind": "timeline"}, pace), (row, fair | {"paused": True}, pace),
        (row, fair, Pace()), (row | {"ready": 0}, fair, pace), (row | {"consumers": 0}, fair, pace),
    ):  # fmt: skip
        assert not problems.may_starve(*less)


def test_whom_a_quota_refuses_is_named__with_what_to_change() -> None:
    shop = {"principal": "shop", "quota": "rows_per_s", "limit": 5_000, "count": 1}
    till = {
        "principal": "10.0.0.7",
        "quota": "streams_max",
        "limit": 3,
        "count": 2_000,
        "node": "b",
    }
    found = problems.of_quotas([shop, till])
    assert [one.title for one in found] == [
        "shop was refused once in five minutes by its quota rows_per_s, 5,000",
        "10.0.0.7 was refused 2,000 times in five minutes at the broker b by its quota "
        "streams_max, 3",
    ]
    assert "quotas.rows_per_s" in found[0].remedy
    assert problems.of_quotas([]) == []
