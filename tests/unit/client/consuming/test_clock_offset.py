"""The clock offset: what is believed, and what is certain (rules 2 and 16)."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from dejaqueue.client.consuming.clock_offset import (
    BROKERS_APART_US,
    DRIFT_PPM,
    SAMPLES_KEPT,
    UNKNOWN,
    ClockOffset,
)
from dejaqueue.testing.virtual_clock import VirtualClock


def test_nothing_is_known_at_first() -> None:
    offset = ClockOffset()
    assert offset.at(5) == (0, UNKNOWN)
    assert offset.earliest_us(5) is None
    assert offset.release_us(10, 5) is None


def test_a_shared_clock_is_certain() -> None:
    offset = ClockOffset(shared=VirtualClock())
    assert offset.at(5) == (0, 0)
    assert offset.earliest_us(5) == 5
    assert offset.release_us(10, 5) == 10


def test_half_the_round_trip_is_uncertain() -> None:
    offset = ClockOffset()
    offset.add_pong(sent_us=1_000, received_us=1_400, broker_us=9_000)
    assert offset.at(1_400) == (9_000 - 1_200, 200)
    assert offset.earliest_us(1_400) == 1_400 + 7_800 - 200


def test_the_shortest_round_trip_counts_until_it_is_old() -> None:
    offset = ClockOffset()
    offset.add_pong(sent_us=0, received_us=100, broker_us=50)
    offset.add_pong(sent_us=1_000, received_us=9_000, broker_us=5_500)
    assert offset.at(9_000) == (0, 50)
    for at in range(SAMPLES_KEPT):
        start = 10_000 + 10_000 * at
        offset.add_pong(sent_us=start, received_us=start + 8_000, broker_us=start + 4_700)
    assert offset.at(200_000)[0] == 700


def test_uncertainty_grows_with_age() -> None:
    offset = ClockOffset()
    offset.add_pong(sent_us=0, received_us=100, broker_us=50)
    assert offset.at(100)[1] == 50
    assert offset.at(100 + 10_000_000)[1] == 550


def test_what_goes_back_before_the_next_broker_is_heard_goes_by_the_one_before() -> None:
    offset = ClockOffset()
    assert offset.reached_us(5) == 0
    offset.add_pong(sent_us=1_000, received_us=1_400, broker_us=9_000)
    offset.add_head(received_us=2_000, broker_us=9_500)  # lower than what the pong says
    assert offset.reached_us(2_000) == offset.earliest_us(2_000) == 2_000 + 7_600
    offset.forget()
    offset.forget()  # another one that says nothing
    assert offset.reached_us(2_000) == 2_000 + 7_600 - BROKERS_APART_US
    drifted_us = 10_000_000 * DRIFT_PPM // 1_000_000
    assert offset.reached_us(10_001_400) == 10_001_400 + 7_600 - drifted_us - BROKERS_APART_US
    offset.add_head(received_us=20_000_000, broker_us=3_000)
    assert offset.reached_us(20_000_000) == 3_000
    offset.forget()
    assert offset.reached_us(20_000_000) == 3_000 - BROKERS_APART_US


def test_a_delivery_is_a_lower_bound() -> None:
    offset = ClockOffset()
    offset.add_head(received_us=1_000, broker_us=8_000)
    assert offset.earliest_us(1_000) == 8_000
    offset.add_head(received_us=2_000, broker_us=8_500)  # it took longer: tells less
    assert offset.earliest_us(2_000) == 9_000
    offset.forget()
    assert offset.earliest_us(2_000) is None


@given(st.integers(0, 2**32), st.integers(-(10**9), 10**9))
def test_the_broker_clock_is_never_overestimated(seed: int, true_offset_us: int) -> None:
    rolls = random.Random(seed)
    offset, now_us = ClockOffset(), 10**10
    for _ in range(40):
        there_us, back_us = rolls.randrange(1, 5_000), rolls.randrange(1, 5_000)
        sent_us = now_us
        broker_us = sent_us + there_us + true_offset_us
        now_us = sent_us + there_us + back_us
        if rolls.random() < 0.5:
            offset.add_pong(sent_us, now_us, broker_us)
        else:
            offset.add_head(now_us, broker_us)
        earliest_us = offset.earliest_us(now_us)
        assert earliest_us is not None
        assert earliest_us <= now_us + true_offset_us
        now_us += rolls.randrange(0, 2_000_000)


def test_a_broker_whose_clock_was_put_back_is_measured_anew() -> None:
    offset = ClockOffset()
    offset.add_pong(sent_us=1_000, received_us=1_010, broker_us=3_600_000_000)
    offset.add_head(received_us=1_500, broker_us=3_600_000_400)
    offset.add_pong(sent_us=2_000, received_us=2_400, broker_us=9_000)
    assert offset.at(2_400) == (9_000 - 2_200, 200)
    assert offset.earliest_us(2_400) == 9_000


def test_of_another_broker_the_clock_is_guessed__and_nothing_is_handed_over_by_that() -> None:
    """With a clock that is an hour off, leases would seem to have ended, or never to end."""
    hour_us = 3_600_000_000
    offset = ClockOffset()
    offset.add_pong(1_000, 1_200, 5_100 - hour_us)
    offset.forget()
    offset.forget()
    assert offset.broker_us(2_000) == 6_000 - hour_us
    assert offset.at(2_000)[1] == UNKNOWN
    assert offset.earliest_us(2_000) is None
