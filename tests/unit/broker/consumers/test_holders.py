"""Who holds which partition. How shares are cut: test_assignment.py; leases: tests/rules."""

from __future__ import annotations

from dejaqueue.broker.consumers.assignment import NOBODY
from dejaqueue.broker.consumers.holders import Holders


def takes(holders: Holders, *, free: bool) -> list[int]:
    return [holders.take(number, free=free) for number in range(holders.partition_count)]


def test_nobody_gets_anything_before_there_are_consumers() -> None:
    assert takes(Holders(range(3)), free=True) == [NOBODY] * 3


def test_a_lone_consumer_has_all_partitions() -> None:
    holders = Holders(range(3))
    assert holders.share({"7": 7})
    assert takes(holders, free=True) == [7, 7, 7]


def test_the_same_consumers_again_change_nothing() -> None:
    holders = Holders(range(3))
    assert holders.share({"7": 7, "8": 8})
    assert not holders.share({"7": 7, "8": 8})


def test_a_partition_changes_hands_only_when_nothing_of_it_is_leased() -> None:
    holders = Holders(range(1))
    holders.share({"7": 7})
    assert holders.take(0, free=True) == 7
    holders.share({"8": 8})
    assert holders.take(0, free=False) == NOBODY
    assert holders.pairs() == {0: (7, 8)}
    assert holders.take(0, free=True) == 8
    assert holders.pairs() == {0: (8, 8)}


def test_who_holds_a_partition_gets_more_while_it_is_leased() -> None:
    holders = Holders(range(2))
    holders.share({"7": 7})
    takes(holders, free=True)
    assert takes(holders, free=False) == [7, 7]


def test_new_partitions_belong_to_nobody_until_they_are_shared() -> None:
    holders = Holders(range(1))
    holders.share({"7": 7})
    holders.take(0, free=True)
    holders.grow(range(3))
    assert holders.partition_count == 3
    assert takes(holders, free=True) == [7, NOBODY, NOBODY]
    assert holders.share({"7": 7})
    assert takes(holders, free=True) == [7, 7, 7]


def test_a_partition_that_is_not_known_yet_waits() -> None:
    holders = Holders(range(1))
    holders.share({"7": 7})
    assert holders.take(1, free=True) == NOBODY


def test_a_shard_shares_by_what_it_is_told() -> None:
    holders = Holders(range(1, 7, 3), is_told=True)
    assert holders.share({"x": 7, "y": 8})
    assert [holders.take(number, free=True) for number in (1, 4)] == [NOBODY, NOBODY]
    assert holders.tell({1: "y", 4: "x"})
    assert not holders.tell({1: "y", 4: "x"})
    assert [holders.take(number, free=True) for number in (1, 4)] == [8, 7]
    assert holders.tell({1: "x", 4: "x"})
    assert holders.take(1, free=False) == NOBODY
    assert holders.take(1, free=True) == 7


def test_who_is_told_of_and_is_not_here_gets_it_when_it_comes() -> None:
    holders = Holders([1], is_told=True)
    holders.tell({1: "y"})
    assert holders.share({"x": 7})
    assert holders.take(1, free=True) == NOBODY
    assert holders.share({"x": 7, "y": 8})
    assert holders.take(1, free=True) == 8
