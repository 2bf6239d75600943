"""Covers: a limit is felt in the thread that works, and in no other; none after its block.

Not covered: coroutines (test_execution.py), hard limits (worker/test_supervisor.py).
"""

from __future__ import annotations

import threading

import pytest

from dejaqueue.tasks import TimeLimitExceeded
from dejaqueue.tasks.time_limit import TimeLimits


def works_for_ever() -> None:
    pause = threading.Event()
    while True:
        pause.wait(0.001)


def test_each_thread_feels_its_own_limit() -> None:
    limits, felt = TimeLimits(), []

    def works(seconds: float) -> None:
        try:
            with limits.within(seconds, f"{seconds}"):
                works_for_ever()
        except TimeLimitExceeded as error:
            felt.append(str(error))

    threads = [threading.Thread(target=works, args=(seconds,)) for seconds in (0.3, 0.02)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert felt == ["0.02: at most 0.02 s", "0.3: at most 0.3 s"]


def test_what_ends_in_time_feels_nothing() -> None:
    limits = TimeLimits()
    for _ in range(200):
        with limits.within(0.5, "short"):
            pass
    threading.Event().wait(0.6)
    with limits.within(60, "long"):
        assert sum(range(1_000)) == 499_500


def test_where_it_was_raised_is_in_the_traceback() -> None:
    with pytest.raises(TimeLimitExceeded) as raised, TimeLimits().within(0.01, "slow"):
        works_for_ever()
    assert "works_for_ever" in {entry.name for entry in raised.traceback}
