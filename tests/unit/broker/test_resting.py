"""Covers: when a partition has its tail proved. What it is for: tests/crash/test_tail_damage.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dejaqueue.broker.resting import REST_US, Rest


class Place:
    """What Rest asks of a partition."""

    def __init__(self) -> None:
        self.position = 0
        self.now_us = 1_000_000
        self.proofs: list[int] = []
        self.commits = SimpleNamespace(in_flight=False)
        self.clock = SimpleNamespace(now_us=lambda: self.now_us)
        self.journal: Any = self
        self.rest = Rest()

    @property
    def is_proved(self) -> bool:
        return self.proofs[-1:] == [self.position]

    def prove(self) -> None:
        self.proofs.append(self.position)

    def step(self, *, after_us: int = 0, appends: int = 0) -> int | None:
        """Time passes, something may be appended, then it is stepped. When it wants to be next."""
        self.now_us += after_us
        self.position += appends
        self.rest.step(self)  # type: ignore[arg-type]
        wake_us = self.rest.next_us()
        return None if wake_us is None else wake_us - self.now_us


def test_a_tail_is_proved_once__when_nothing_was_appended_for_a_while() -> None:
    place = Place()
    assert place.step(appends=1) == REST_US
    assert place.step(after_us=REST_US // 2) == REST_US // 2
    assert place.proofs == []
    assert place.step(after_us=REST_US // 2) is None
    assert place.proofs == [1]
    assert place.step(after_us=10 * REST_US) is None
    assert place.proofs == [1]


def test_while_appends_follow_each_other_there_is_one_wake_for_many_and_no_proof() -> None:
    place = Place()
    first_us = place.now_us + REST_US
    for _ in range(79):
        wake_us = place.step(after_us=1_000 if place.position else 0, appends=1)
        assert wake_us is not None
        assert place.now_us + wake_us == first_us
    place.step(after_us=1_000, appends=1)
    place.step(after_us=1_000, appends=1)
    assert place.proofs == []
    assert place.rest.next_us() == place.now_us + REST_US
    place.step(after_us=REST_US)
    assert place.proofs == [81]


def test_what_is_on_its_way_is_waited_for__and_a_clock_that_steps_back_delays_nothing() -> None:
    place = Place()
    place.step(appends=1)
    place.commits.in_flight = True
    assert place.step(after_us=10 * REST_US) is None
    place.commits.in_flight = False
    place.step(after_us=-100 * REST_US)
    assert place.proofs == [1]
