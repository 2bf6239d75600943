"""Stretches of positions of a journal, and what is left of them without others.

Room: schema. Values in, values out.
See: spark/history_plan.py and broker/calls/message_history.py, which put together what several
brokers recorded.
"""

from __future__ import annotations

from collections.abc import Iterable

Stretch = tuple[int, int]
"""Positions of a journal: the first and the last."""


def without(stretches: Iterable[Stretch], taken: Iterable[Stretch]) -> list[Stretch]:
    """What is left of stretches without others.

    >>> without([(1, 10)], [(3, 4), (8, 20)])
    [(1, 2), (5, 7)]
    """
    left = [one for one in stretches if one[0] <= one[1]]
    for low, high in taken:
        parts = []
        for first, last in left:
            if high < first or last < low:
                parts.append((first, last))
                continue
            if first < low:
                parts.append((first, low - 1))
            if high < last:
                parts.append((high + 1, last))
        left = parts
    return left
