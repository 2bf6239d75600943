"""Where keys belong, and what parts of a batch are called. Growing topics: tests/rules."""

from __future__ import annotations

import numpy as np

from dejaqueue.broker.topic.route import Route, key_partitions, part_name, split_rows


def test_rows_are_split_by_partition__in_their_order() -> None:
    parts = split_rows(np.array([2, 0, 2, 0, 5], dtype=np.int64))
    assert [(number, rows.tolist()) for number, rows in parts] == [
        (0, [1, 3]),
        (2, [0, 2]),
        (5, [4]),
    ]


def test_the_low_bits_of_a_hash_choose__of_negative_ones_too() -> None:
    hashes = np.array([5, 5 | 1 << 40, -1], dtype=np.int64)
    assert key_partitions(hashes, 4).tolist() == [1, 1, 3]


def test_a_part_is_called_as_its_producer__until_the_topic_grew() -> None:
    route = Route((2, 4))
    assert (route.count, route.has_grown, Route((2,)).has_grown) == (4, True, False)
    assert part_name(route, "p", 2) == "p"
    assert part_name(route, "", 4, 3) == ""
    names = {part_name(route, "p", count, turn) for count in route.counts for turn in range(3)}
    assert len(names) == 6
