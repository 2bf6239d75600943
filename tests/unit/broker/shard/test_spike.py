"""When leasing what is due in a hot second has to begin."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.broker.shard.spike import Spike, spike_in

FIRST_S = 1_000


@pytest.mark.parametrize(
    ("counts", "spike"),
    [
        ({}, None),
        ({10: 100}, None),
        ({10: 201}, Spike(1_007_990, 1_011_000)),
        ({10: 500}, Spike(1_005_000, 1_011_000)),
        ({9: 500, 10: 500}, Spike(1_000_000, 1_011_000)),
        ({8: 100, 10: 500}, Spike(1_004_000, 1_011_000)),
        ({3: 100, 10: 500}, Spike(1_005_000, 1_011_000)),
        ({3: 250, 12: 500}, Spike(1_000_500, 1_004_000)),
        ({11: 90, 10: 90}, None),
    ],
    ids=[
        "nothing",
        "a second's worth",
        "two seconds' worth, and one message",
        "hot",
        "two hot seconds",
        "what comes while it is leased goes first",
        "what is done before it begins does not count",
        "the first of two",
        "busy",
    ],
)
def test_the_first_spike(counts: dict[int, int], spike: Spike | None) -> None:
    seconds = np.zeros(20, dtype=np.int64)
    for second, count in counts.items():
        seconds[second] = count
    assert spike_in(seconds, FIRST_S, 100) == spike


def test_a_load_that_is_too_much_for_good_is_leased_from_the_first_second_on() -> None:
    spike = spike_in(np.full(20, 300, dtype=np.int64), FIRST_S, 100)
    assert spike is not None
    assert spike.begins_ms < FIRST_S * 1_000
    assert spike.until_ms == (FIRST_S + 20) * 1_000
