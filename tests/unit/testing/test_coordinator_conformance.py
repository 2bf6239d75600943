"""Covers: the conformance suite finds coordinators that break a duty.

Not covered: the duties that take a server or time (tests/conformance), the keys' own suite
(test_keys_conformance.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dejaqueue.clock import SystemClock
from dejaqueue.coordinator.in_process import ProcessCoordinator, ProcessFacts
from dejaqueue.coordinator.interface import Coordinator, Fact
from dejaqueue.errors import BadRequest
from dejaqueue.testing import coordinator_conformance
from dejaqueue.testing.coordinator_conformance import Bell, CoordinatorConformance, refuses

One = ProcessCoordinator
GET, PUT, LIST, WATCH = One.get, One.put, One.list, One.watch


class Suite(CoordinatorConformance):
    is_shared = False
    race_times = 10

    def url(self) -> str:
        raise AssertionError("not asked: the facts are made in `opened`")

    @contextmanager
    def opened(self, count: int) -> Iterator[list[Coordinator]]:
        facts = ProcessFacts(SystemClock())
        coordinators: list[Coordinator] = [facts.open() for _ in range(count)]
        yield coordinators
        for one in coordinators:
            one.close()


Suite.__test__ = False  # type: ignore[attr-defined]


def _blind(
    self: One, key: str, value: bytes, revision: int | None = None, *, ttl_ms: int | None = None
) -> int:
    threading.Event().wait(0.001)  # in one process two hardly meet
    return PUT(self, key, value, None, ttl_ms=ttl_ms)


def _same_revision(self: One, key: str) -> Fact | None:
    fact = GET(self, key)
    return None if fact is None else Fact(key, fact.value, 1)


def _small_letters(
    self: One, key: str, value: bytes, revision: int | None = None, *, ttl_ms: int | None = None
) -> int:
    return PUT(self, key.lower(), value, revision, ttl_ms=ttl_ms)


def _first_ten(self: One, prefix: str) -> list[Fact]:
    return LIST(self, prefix)[:10]


def _anything(self: One, key: str) -> bool:
    return GET(self, key) is not None


def _deaf(self: One, prefix: str, bell: Callable[[], None]) -> object:
    return WATCH(self, prefix, lambda: None)


def _for_ever(self: One, prefix: str, bell: Callable[[], None]) -> object:
    class Watch:
        def close(self) -> None:
            """It rings on."""

    WATCH(self, prefix, bell)
    return Watch()


BREACHES: list[tuple[str, Callable[..., object], str]] = [
    ("put", _blind, "test_2_a_change_upon_another_revision_changes_nothing"),
    ("put", _blind, "test_2_of_racing_threads_one_wins_each_time"),
    ("get", _same_revision, "test_1_a_fact_comes_back_as_it_was_put"),
    ("put", _small_letters, "test_1_keys_are_told_apart_to_the_letter"),
    ("list", _first_ten, "test_3_a_list_of_many_is_whole"),
    ("renew", _anything, "test_4_only_who_put_a_fact_renews_it"),
    ("watch", _deaf, "test_5_a_bell_rings_after_every_change_below_its_prefix"),
    ("watch", _for_ever, "test_5_a_closed_watch_rings_no_more"),
]


@pytest.mark.parametrize(("method", "breach", "test"), BREACHES)
def test_a_breach_is_found(
    monkeypatch: pytest.MonkeyPatch, method: str, breach: Callable[..., object], test: str
) -> None:
    # A bell that does not ring is waited for; here nothing is slow.
    monkeypatch.setattr(coordinator_conformance, "PATIENCE_S", 0.05)
    monkeypatch.setattr(One, method, breach)
    with pytest.raises(Exception):  # noqa: B017 - whichever duty it breaks first
        getattr(Suite(), test)()


@pytest.mark.parametrize("test", sorted({one[2] for one in BREACHES}))
# tidy: allow no-assert, because the suite's own test asserts
def test_a_coordinator_that_keeps_its_duties_passes(test: str) -> None:
    check_duty = getattr(Suite(), test)
    check_duty()


def test_a_bell_that_rang_before_is_heard__until_it_is_forgotten() -> None:
    bell = Bell()
    bell()
    assert bell.rings_within(0)
    bell.forget()
    assert not bell.rings_within(0)


def test_only_the_refusal_that_is_meant_counts() -> None:
    def refused() -> None:
        raise BadRequest("key", "at least one character", "")

    assert refuses(BadRequest, refused)
    assert not refuses(BadRequest, lambda: None)
    with pytest.raises(BadRequest):
        refuses(ValueError, refused)
