"""Covers: calls are made a few at a time, in their order; one that was left ends at once, and takes
no place from others. With a broker that hangs: tests/cluster/test_hanging_calls.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from dejaqueue.client import call_threads
from dejaqueue.client.call_threads import AT_ONCE_MAX, CallThreads
from dejaqueue.errors import Unavailable
from tests.patience import PATIENCE_SECONDS, until


class Hanging:
    """Calls that wait until the test lets them."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.begun: list[int] = []

    def call(self, number: int) -> Any:
        def make() -> int:
            self.begun.append(number)
            assert self.may.wait(PATIENCE_SECONDS)
            return number

        return make


@pytest.fixture
def hanging() -> Hanging:
    return Hanging()


@pytest.fixture
def threads(hanging: Hanging) -> Iterator[CallThreads]:
    made = CallThreads()
    yield made
    hanging.may.set()
    made.close()


def fails() -> None:
    raise Unavailable("no broker")


def test_a_call_ends_with_what_it_returns_or_raises(threads: CallThreads) -> None:
    assert threads.submit(lambda: 7).result(PATIENCE_SECONDS) == 7
    with pytest.raises(Unavailable, match="no broker"):
        threads.submit(fails).result(PATIENCE_SECONDS)
    until(lambda: not threads._under_way)
    assert threads._thread_count in {1, 2}, "threads are used again"


def test_few_are_made_at_once__the_others_in_their_order(
    threads: CallThreads, hanging: Hanging
) -> None:
    answers = [threads.submit(hanging.call(number)) for number in range(AT_ONCE_MAX + 3)]
    until(lambda: len(hanging.begun) == AT_ONCE_MAX)
    assert not any(answer.done() for answer in answers)
    hanging.may.set()
    assert [answer.result(PATIENCE_SECONDS) for answer in answers] == list(range(AT_ONCE_MAX + 3))
    assert hanging.begun[:AT_ONCE_MAX] == sorted(hanging.begun[:AT_ONCE_MAX])
    assert threads._thread_count == AT_ONCE_MAX


def test_a_call_that_was_left_ends__and_others_take_its_place(
    threads: CallThreads, hanging: Hanging
) -> None:
    left = [threads.submit(hanging.call(n), may_be_left=True) for n in range(AT_ONCE_MAX)]
    kept = threads.submit(lambda: "kept")
    until(lambda: len(hanging.begun) == AT_ONCE_MAX)
    calls = threads.may_be_left()
    assert len(calls) == AT_ONCE_MAX
    assert all(call.waits_since_us() is not None for call in calls)
    for call in calls:
        call.ended(Unavailable("it hangs"))
        call.ended(Unavailable("twice is fine"))
    for answer in left:
        with pytest.raises(Unavailable, match="it hangs"):
            answer.result(PATIENCE_SECONDS)
    assert kept.result(PATIENCE_SECONDS) == "kept"
    assert threads.may_be_left() == []
    assert [call.waits_since_us() for call in calls] == [None] * AT_ONCE_MAX


def test_a_call_in_the_queue_can_be_left__and_is_not_made(
    threads: CallThreads, hanging: Hanging
) -> None:
    for number in range(AT_ONCE_MAX):
        threads.submit(hanging.call(number))
    answer = threads.submit(hanging.call(99), may_be_left=True)
    [call] = threads.may_be_left()
    call.ended(None)
    with pytest.raises(Unavailable, match="given up"):
        answer.result(PATIENCE_SECONDS)
    hanging.may.set()
    until(lambda: not threads._under_way)
    assert 99 not in hanging.begun


def test_an_answer_that_came_first_stays(threads: CallThreads, hanging: Hanging) -> None:
    answer = threads.submit(hanging.call(1), may_be_left=True)
    [call] = threads.may_be_left()
    hanging.may.set()
    assert answer.result(PATIENCE_SECONDS) == 1
    call.ended(Unavailable("too late"))
    assert answer.result() == 1


def test_closing_waits_for_calls_that_are_made__and_makes_no_others(hanging: Hanging) -> None:
    threads = CallThreads()
    made = [threads.submit(hanging.call(number)) for number in range(AT_ONCE_MAX)]
    until(lambda: len(hanging.begun) == AT_ONCE_MAX)
    queued: Future[int] = threads.submit(hanging.call(99))
    closing = threading.Thread(target=threads.close)
    closing.start()
    with pytest.raises(Unavailable, match="closed"):
        queued.result(PATIENCE_SECONDS)
    assert closing.is_alive()
    hanging.may.set()
    closing.join(PATIENCE_SECONDS)
    assert not closing.is_alive()
    assert [answer.result(PATIENCE_SECONDS) for answer in made] == list(range(AT_ONCE_MAX))
    threads.close()
    with pytest.raises(Unavailable, match="closed"):
        threads.submit(lambda: None)


def test_closing_does_not_wait_for_what_was_left(hanging: Hanging) -> None:
    threads = CallThreads()
    threads.submit(hanging.call(1), may_be_left=True)
    until(lambda: hanging.begun == [1])
    threads.may_be_left()[0].ended(Unavailable("it hangs"))
    closing = threading.Thread(target=threads.close)
    closing.start()
    closing.join(PATIENCE_SECONDS)
    assert not closing.is_alive()
    hanging.may.set()


def test_a_thread_that_has_nothing_to_do_ends(
    monkeypatch: pytest.MonkeyPatch, threads: CallThreads
) -> None:
    monkeypatch.setattr(call_threads, "IDLE_SECONDS", 0.0)
    assert threads.submit(lambda: 1).result(PATIENCE_SECONDS) == 1
    until(lambda: threads._thread_count == 0)
    assert threads.submit(lambda: 2).result(PATIENCE_SECONDS) == 2
