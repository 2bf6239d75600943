"""The switch interval in a crowd of waiting threads, and after it.

Not covered: what it is good for; tests/hostile/crowd.py measures that.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import pytest

from dejaqueue.access.crowding import CALM, CROWD, CROWDED_SECONDS, Crowding

BEFORE_SECONDS = 0.0005


@pytest.fixture(autouse=True)
def _as_the_server_sets_it() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(BEFORE_SECONDS)
    yield
    sys.setswitchinterval(before)


def waiting(crowding: Crowding, count: int) -> list[contextlib.ExitStack]:
    waits = [contextlib.ExitStack() for _ in range(count)]
    for one in waits:
        one.enter_context(crowding)
    return waits


def test_few_that_wait_change_nothing() -> None:
    waits = waiting(Crowding(), CROWD - 1)
    assert sys.getswitchinterval() == pytest.approx(BEFORE_SECONDS, rel=0.01)
    for one in waits:
        one.close()
    assert sys.getswitchinterval() == pytest.approx(BEFORE_SECONDS, rel=0.01)


def test_a_crowd_widens_the_interval_until_it_is_nearly_gone() -> None:
    waits = waiting(Crowding(), CROWD)
    assert sys.getswitchinterval() == pytest.approx(CROWDED_SECONDS, rel=0.01)
    for one in waits[CALM + 1 :]:
        one.close()
    assert sys.getswitchinterval() == pytest.approx(CROWDED_SECONDS, rel=0.01)
    waits[0].close()
    assert sys.getswitchinterval() == pytest.approx(BEFORE_SECONDS, rel=0.01)


def test_a_wider_interval_than_that_of_a_crowd_stays() -> None:
    sys.setswitchinterval(2 * CROWDED_SECONDS)
    waits = waiting(Crowding(), CROWD)
    assert sys.getswitchinterval() == pytest.approx(2 * CROWDED_SECONDS, rel=0.01)
    for one in waits:
        one.close()
    assert sys.getswitchinterval() == pytest.approx(2 * CROWDED_SECONDS, rel=0.01)


def test_a_crowd_may_come_again() -> None:
    crowding = Crowding()
    for one in waiting(crowding, CROWD):
        one.close()
    waits = waiting(crowding, CROWD)
    assert sys.getswitchinterval() == pytest.approx(CROWDED_SECONDS, rel=0.01)
    for one in waits:
        one.close()
    assert sys.getswitchinterval() == pytest.approx(BEFORE_SECONDS, rel=0.01)
