"""Shares of partitions: balanced, with the fewest moves, the same for the same arguments."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dejaqueue.broker.consumers.assignment import NOBODY, assign

HOLDERS = st.lists(st.integers(NOBODY, 9), max_size=40)
CONSUMERS = st.lists(st.integers(0, 9), unique=True)


@given(HOLDERS, CONSUMERS)
def test_shares_differ_by_one_at_most_and_few_partitions_move(
    holders: list[int], consumers: list[int]
) -> None:
    given_to = assign(holders, consumers)
    assert given_to == assign(holders, consumers)
    if not consumers:
        assert given_to == [NOBODY] * len(holders)
        return
    counts = Counter(dict.fromkeys(consumers, 0))
    counts.update(given_to)
    assert set(counts) == set(consumers)
    assert max(counts.values()) - min(counts.values()) <= 1
    had = sorted((holders.count(consumer) for consumer in consumers), reverse=True)
    share, more = divmod(len(holders), len(consumers))
    stay_at_most = sum(min(n, share + (rank < more)) for rank, n in enumerate(had))
    stays = sum(old == new for old, new in zip(holders, given_to, strict=True))
    assert stays == stay_at_most


def test_more_consumers_than_partitions_stand_by() -> None:
    assert assign([NOBODY, NOBODY], [4, 5, 6]) == [4, 5]
    assert assign([4, 5], [4, 5, 6]) == [4, 5]
    assert assign([4, 5], [5, 6]) == [6, 5]
