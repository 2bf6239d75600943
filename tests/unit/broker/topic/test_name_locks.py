"""One lock for each topic's name: who waits for whom, and what is left afterwards.

Brokers whose journals hang: tests/integration/test_hanging_journals.py.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dejaqueue.broker.topic.name_locks import NameLocks

SECONDS_MAX = 20.0


def hold(locks: NameLocks, name: str, entered: threading.Event, leave: threading.Event) -> None:
    with locks.held(name):
        entered.set()
        assert leave.wait(SECONDS_MAX)


def test_another_name_is_not_waited_for() -> None:
    locks = NameLocks(threading.Lock)
    with locks.held("a"), locks.held("b"):
        assert set(locks._locks) == {"a", "b"}
    assert not locks._locks


def test_the_same_name_is_waited_for_and_forgotten_after_the_last() -> None:
    locks, entered, leave = NameLocks(threading.Lock), threading.Event(), threading.Event()
    second_entered, second_leave = threading.Event(), threading.Event()
    second_leave.set()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(hold, locks, "a", entered, leave)
        assert entered.wait(SECONDS_MAX)
        second = threads.submit(hold, locks, "a", second_entered, second_leave)
        assert not second_entered.wait(0.05)
        leave.set()
        assert second_entered.wait(SECONDS_MAX)
        first.result(SECONDS_MAX)
        second.result(SECONDS_MAX)
    assert not locks._locks


def test_a_call_that_fails_lets_go() -> None:
    locks = NameLocks(threading.Lock)
    with pytest.raises(ValueError, match="no"), locks.held("a"):
        raise ValueError("no")
    with locks.held("a"):
        pass


def test_wait_returns_when_those_who_held_a_lock_have_let_go() -> None:
    locks, entered, leave = NameLocks(threading.Lock), threading.Event(), threading.Event()
    with ThreadPoolExecutor(2) as threads:
        threads.submit(hold, locks, "a", entered, leave)
        assert entered.wait(SECONDS_MAX)
        waiting = threads.submit(locks.wait)
        with pytest.raises(TimeoutError):
            waiting.result(0.05)
        leave.set()
        waiting.result(SECONDS_MAX)
