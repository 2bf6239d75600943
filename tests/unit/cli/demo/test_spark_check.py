"""The check of the demo on Spark: what it calls good. The join: tests/spark/test_demo_spark.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from dejaqueue.cli.demo.spark_check import COUNTS, Check, over_rate

GOOD = Check(5, 5, 0, 0, 0, 0, 0, 0, np.array([1, 2, 3]), np.array([10, 20, 30]))


def test_good_is_good_and_any_fault_is_not() -> None:
    assert GOOD.is_good
    for name in COUNTS[2:]:
        assert not replace(GOOD, **cast(Any, {name: 1})).is_good
    assert GOOD.figures()["lateness_max_ms"] == 3.0
    nothing = np.zeros(0, dtype=np.int64)
    assert replace(GOOD, latenesses_ms=nothing, dues_ms=nothing).figures()["lateness_p50_ms"] == 0


@pytest.mark.parametrize(
    ("dues_ms", "rate", "over"),
    [([], 1, 0), ([0, 1_000, 2_000], 1, 0), ([0, 999], 1, 1), ([5, 5, 5, 900], 2, 2)],
)
def test_the_rate_is_counted_wherever_a_second_begins(
    dues_ms: list[int], rate: int, over: int
) -> None:
    assert over_rate(np.array(dues_ms, dtype=np.int64), rate) == over
