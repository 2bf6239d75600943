"""Percentiles and medians of what was measured.

Room: bench. Numbers in, numbers out.
Holds: a percentile is a value that was measured (nearest rank), never one between two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def percentile(values: npt.ArrayLike, percent: float) -> float:
    """The smallest measured value that at least `percent` % of all values do not exceed.

    >>> percentile([1, 2, 3, 4], 50)
    2.0
    """
    ordered = np.sort(np.asarray(values), kind="stable")
    if len(ordered) == 0:
        raise ValueError("no values: nothing was measured")
    if not 0 < percent <= 100:
        raise ValueError(f"percent: above 0 and up to 100, got: {percent}")
    # Rounded first: 99.9 % of 1,000 is 999.0000000000001 in binary, and must not be rank 1,000.
    rank = math.ceil(round(percent / 100 * len(ordered), 6))
    return float(ordered[max(rank, 1) - 1])


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median, least and most of the rounds, and all of them in order."""
    return {
        "median": float(np.median(np.asarray(values))),
        "low": min(values),
        "high": max(values),
        "rounds": list(values),
    }
