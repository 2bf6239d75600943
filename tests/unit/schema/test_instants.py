"""Due times: 0, or from 1973 to 9999; what looks like seconds says so."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.schema.instants import FEW, check_instant, check_instants


@pytest.mark.parametrize("instant_ms", [0, limits.INSTANT_MS_MIN, limits.INSTANT_MS_MAX])
def test_instants_are_taken(instant_ms: int) -> None:
    check_instant("due", instant_ms)
    check_instants("due", np.array([instant_ms, limits.INSTANT_MS_MIN]))


@pytest.mark.parametrize(
    "instant_ms", [-1, 1, limits.INSTANT_MS_MIN - 1, limits.INSTANT_MS_MAX + 1]
)
def test_others_are_refused__a_column_names_its_row(instant_ms: int) -> None:
    with pytest.raises(BadRequest, match=rf"^due: UTC milliseconds.*got: {instant_ms}$") as alone:
        check_instant("due", instant_ms)
    with pytest.raises(BadRequest, match=rf"^due of row 2: .*got: {instant_ms}$"):
        check_instants("due", np.array([0, limits.INSTANT_MS_MIN, instant_ms]))
    looks_like_seconds = 0 < instant_ms < limits.INSTANT_MS_MIN
    assert ("looks like seconds" in str(alone.value)) is looks_like_seconds


@pytest.mark.parametrize("count", [1, FEW - 1, FEW, FEW + 1])
@pytest.mark.parametrize("wrong_ms", [1, -1, limits.INSTANT_MS_MAX + 1])
def test_of_few_and_of_many_the_first_that_is_wrong_is_named(count: int, wrong_ms: int) -> None:
    instants_ms = np.full(count, limits.INSTANT_MS_MIN)
    check_instants("due", instants_ms)
    instants_ms[-1] = wrong_ms
    with pytest.raises(BadRequest, match=rf"^due of row {count - 1}: .*got: {wrong_ms}$"):
        check_instants("due", instants_ms)


def test_no_row_is_no_fault() -> None:
    check_instants("due", np.zeros(0, dtype=np.int64))
