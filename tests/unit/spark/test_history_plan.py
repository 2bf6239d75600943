"""Covers: what several brokers recorded is put together, each position once, without false gaps."""

from __future__ import annotations

import random
from typing import Any

from dejaqueue.spark.history_plan import Recorded, Share, plan


def file(first: int, last: int, *gaps: tuple[int, int], partition: int = 0) -> dict[str, Any]:
    return {"partition": partition, "first": first, "last": last, "gaps": [list(g) for g in gaps]}


def shown(shares: list[Share]) -> list[tuple[str, list[tuple[int, int]], list[int]]]:
    return sorted((share.url, share.positions, share.gaps) for share in shares)


def told(brokers: list[Recorded]) -> list[tuple[str, int]]:
    return [(share.url, place) for share in plan(brokers) for place in share.gaps]


def test_a_broker_alone_is_read_as_it_is() -> None:
    alone = Recorded("a", [file(1, 10), file(11, 20, (11, 14))], {0: 20})
    assert shown(plan([alone])) == [("a", [(1, 10)], []), ("a", [(15, 20)], [14])]


def test_who_took_over_read_some_of_it_again__that_comes_once_and_its_gap_is_none() -> None:
    before = Recorded("a", [file(1, 10), file(11, 30)], {0: 33})
    after = Recorded("b", [file(1, 50, (1, 20))], {0: 50})
    assert shown(plan([before, after])) == [
        ("a", [(1, 10)], []),
        ("a", [(11, 30)], []),
        ("b", [(31, 50)], []),
    ]


def test_positions_at_which_nothing_happened_are_no_gap() -> None:
    before = Recorded("a", [file(1, 10)], {0: 20})  # a mark says so, no file
    after = Recorded("b", [file(1, 50, (1, 20))], {0: 50})
    assert [share.gaps for share in plan([before, after])] == [[], []]


def test_what_nobody_has_is_told_once() -> None:
    # Whoever had 11 to 20 is away.
    first = Recorded("a", [file(1, 10), file(11, 40, (11, 30))], {0: 40})
    third = Recorded("c", [file(1, 60, (1, 40))], {0: 60})
    second = Recorded("b", [file(1, 30, (1, 20))], {0: 30})
    assert told([first, third]) == [("a", 30)]
    assert told([first, third, second]) == [("b", 20)]


def test_partitions_are_apart() -> None:
    one = Recorded("a", [file(1, 10, partition=0)], {0: 10})
    two = Recorded("b", [file(1, 10, partition=1)], {1: 10})
    assert [share.positions for share in plan([one, two])] == [[(1, 10)], [(1, 10)]]


def test_of_any_brokers_each_position_that_one_has_is_read_once__and_holes_are_told() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        brokers, known = [], set()
        for url in "abc":
            files, end = [], 0
            for _ in range(chance.randrange(4)):
                first, last = end + 1, end + chance.randrange(1, 15)
                cut = chance.randrange(first, last + 1)
                gaps = [(first, cut)] if chance.random() < 0.5 else []
                files.append(file(first, last, *gaps))
                known |= set(range(cut + 1 if gaps else first, last + 1))
                end = last
            brokers.append(Recorded(url, files, {0: end}))
        read = [
            position
            for share in plan(brokers)
            for first, last in share.positions
            for position in range(first, last + 1)
        ]
        assert sorted(read) == sorted(known), seed
        places = [place for _, place in told(brokers)]
        holes = set(range(1, max(broker.recorded[0] for broker in brokers) + 1)) - known
        assert bool(places) == bool(holes), seed
        assert len(places) == len(set(places)), seed
