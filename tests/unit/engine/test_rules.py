"""Rules: there and back as text, and how long messages wait between attempts."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue.engine.rules import TIMELINE, Rules
from dejaqueue.model import Topic, TopicKind


def waits(rules: Rules, attempts: list[int], sequence: int = 5) -> list[int]:
    sequences = np.full(len(attempts), sequence, dtype=np.int64)
    found = rules.waits_ms(sequences, np.array(attempts, dtype=np.uint16))
    return [0] * len(attempts) if found is None else found.tolist()


def test_a_plain_topic_has_the_rules_that_need_no_saying() -> None:
    assert Rules.of(Topic("t")) == TIMELINE


def test_rules_come_back_from_their_text() -> None:
    topic = Topic("t", TopicKind.FAIR, weights={"a": 3}, backoff_ms=7, max_attempts=4).check()
    rules = Rules.of(topic, take_over_rows_max=5)
    assert rules.take_over_rows_max == 5
    assert Rules.from_text(rules.to_text()) == rules
    assert rules.kind is Rules.from_text(rules.to_text()).kind


def test_only_orders_apart_take_over_in_pieces__and_earlier_versions_know_the_text() -> None:
    assert Rules.of(Topic("t"), take_over_rows_max=5) == TIMELINE
    assert "take_over" not in Rules.of(Topic("t", TopicKind.FAIR)).to_text()


def test_whose_groups_are_in_order_takes_over_at_once__what_goes_back_comes_first() -> None:
    def piece(**settings: Any) -> int:
        topic = Topic("t", TopicKind.FAIR, **settings)
        return Rules.of(topic, take_over_rows_max=5).take_over_rows_max

    assert (piece(), piece(group_in_flight_max=2)) == (5, 5)
    assert (piece(group_in_flight_max=1), piece(group_runs=True, group_in_flight_max=9)) == (0, 0)


def test_waits_grow_by_the_factor_up_to_the_longest() -> None:
    rules = Rules(backoff_ms=100, backoff_parts=2_048, backoff_max_ms=1_000, jitter_parts=0)
    assert waits(rules, [1, 2, 3, 4, 5, 65_535]) == [100, 200, 400, 800, 1_000, 1_000]


def test_without_backoff_nobody_waits() -> None:
    assert waits(TIMELINE, [1, 9]) == [0, 0]


@given(st.integers(0, (1 << 47) - 1), st.integers(1, 65_535), st.integers(0, 1_024))
def test_jitter_takes_away_no_more_than_its_part(sequence: int, attempt: int, parts: int) -> None:
    whole = Rules(backoff_ms=10_000, jitter_parts=0)
    jittered = Rules(backoff_ms=10_000, jitter_parts=parts)
    longest = waits(whole, [attempt], sequence)[0]
    wait = waits(jittered, [attempt], sequence)[0]
    assert longest - longest * parts // 1_024 <= wait <= longest


def test_jitter_spreads_over_its_whole_part() -> None:
    sequences = np.arange(10_000)
    found = Rules(backoff_ms=10_240, jitter_parts=1_024).waits_ms(
        sequences, np.ones(10_000, dtype=np.uint16)
    )
    assert found is not None
    counts = np.histogram(found, bins=10, range=(0, 10_240))[0]
    assert counts.min() > 800
