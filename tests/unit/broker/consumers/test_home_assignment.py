"""What the home of an exclusive topic in shards decides, report by report.

How shares are cut: test_assignment.py. Over real brokers: tests/cluster/test_spread_exclusive.py.
"""

from __future__ import annotations

from dejaqueue.broker.consumers.home_assignment import (
    GRACE_US,
    SILENCE_US,
    HomeAssignment,
    ShardAssignment,
)

COUNT = 6


class Shards:
    """Two shards of six partitions that report to one home."""

    def __init__(self) -> None:
        self.home = HomeAssignment(2)
        self.now_us = 0
        self.targets: dict[int, str] = {}

    def report(
        self, shard: int, *consumers: str, kept: dict[int, str] | None = None
    ) -> ShardAssignment:
        assigned = self.home.report(shard, COUNT, consumers, kept or {}, self.now_us)
        self.targets |= assigned.targets or {}
        return assigned

    def both(self, *consumers: str) -> list[str]:
        """What both are told once both have said the same."""
        for shard in (0, 1, 0):
            self.report(shard, *consumers)
        return [self.targets[partition] for partition in range(COUNT)]


def test_consumers_of_all_shards_have_even_parts_of_the_whole() -> None:
    shards = Shards()
    assert shards.both("x", "y") == ["x", "x", "x", "y", "y", "y"]
    assert sorted(shards.both("x", "y", "z")) == ["x", "x", "y", "y", "z", "z"]


def test_as_few_as_possible_change_hands() -> None:
    shards = Shards()
    before = shards.both("x", "y", "z")
    after = shards.both("x", "z")
    assert [a for a, b in zip(after, before, strict=True) if b != "y"] == [
        b for b in before if b != "y"
    ]
    assert sorted(after) == ["x"] * 3 + ["z"] * 3


def test_a_new_home_decides_nothing_before_it_has_heard_of_all_shards() -> None:
    shards = Shards()
    assert shards.report(0, "x") == ShardAssignment(None, is_settled=False)
    assert shards.report(1, "x").targets == {1: "x", 3: "x", 5: "x"}


def test_a_new_home_does_not_wait_for_a_shard_without_an_owner_for_ever() -> None:
    shards = Shards()
    shards.report(0, "x")
    shards.now_us += GRACE_US
    assert shards.report(0, "x").targets == {0: "x", 2: "x", 4: "x"}


def test_a_new_home_leaves_partitions_where_they_are() -> None:
    shards = Shards()
    shards.report(0, "x", "y", kept={0: "y", 2: "x", 4: "y"})
    shards.report(1, "x", "y", kept={1: "y", 3: "x", 5: "x"})
    assert shards.both("x", "y") == ["y", "y", "x", "x", "y", "x"]


def test_who_is_not_at_a_shard_yet_is_waited_for_and_then_not_any_more() -> None:
    shards = Shards()
    shards.both("x", "y")
    mine = shards.report(1, "x")  # y's stream to it broke
    assert mine == ShardAssignment({1: "x", 3: "y", 5: "y"}, is_settled=False)
    shards.now_us += GRACE_US
    assert shards.report(1, "x") == ShardAssignment({1: "x", 3: "x", 5: "x"}, is_settled=True)
    assert shards.report(0, "x", "y").targets == {0: "x", 2: "x", 4: "y"}
    shards.report(1, "x", "y")
    assert sorted(shards.both("x", "y")) == ["x"] * 3 + ["y"] * 3


def test_who_is_at_no_shard_is_gone_at_once() -> None:
    shards = Shards()
    shards.both("x", "y")
    shards.report(0, "x")
    assert shards.report(1, "x").targets == {1: "x", 3: "x", 5: "x"}


def test_nobody_has_what_nobody_consumes() -> None:
    shards = Shards()
    shards.both("x")
    assert shards.both() == [""] * COUNT


def test_a_shard_that_is_silent_has_no_consumers() -> None:
    shards = Shards()
    shards.report(1, "x", "y")
    shards.report(0, "x")
    shards.now_us += SILENCE_US + 1
    assert shards.report(0, "x").targets == {0: "x", 2: "x", 4: "x"}


def test_partitions_that_were_added_are_dealt_out() -> None:
    shards = Shards()
    shards.both("x", "y")
    targets = shards.home.report(0, 8, ("x", "y"), {}, 0).targets
    assert targets is not None
    assert targets[6] in ("x", "y")
