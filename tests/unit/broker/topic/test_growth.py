"""Which rows of a batch a part has. Asking partitions: tests/rules/test_growing.py."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.broker.topic.growth import Stored, rows_of
from dejaqueue.engine.producers import Answer
from dejaqueue.errors import BadRequest

HOMES = np.array([0, 1, 0, 1, 1], dtype=np.int64)


def part(partition: int, rows: int, *strays: int) -> Stored:
    return Stored(partition, "p", 2, Answer(10, rows, strays=strays))


def test_a_part_has_the_rows_whose_home_it_was() -> None:
    assert rows_of(part(0, 2), HOMES, 1).tolist() == [0, 2]
    assert rows_of(part(1, 3), HOMES, 1).tolist() == [1, 3, 4]


def test_strays_are_rows_that_came_though_their_home_is_elsewhere__or_went() -> None:
    assert rows_of(part(0, 3, 1), HOMES, 1).tolist() == [0, 1, 2]
    assert rows_of(part(0, 1, 2), HOMES, 1).tolist() == [0]
    assert rows_of(part(0, 2, 0, 4), HOMES, 1).tolist() == [2, 4]


@pytest.mark.parametrize("other", [part(0, 3), part(1, 2), part(0, 3, 5), part(0, 2, 1)])
def test_another_batch_with_the_number_is_refused(other: Stored) -> None:
    with pytest.raises(BadRequest, match=r"other rows were sent with this number before, got: 9"):
        rows_of(other, HOMES, 9)
