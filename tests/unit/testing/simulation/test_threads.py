"""Threads that are none: work is done later, in order, or at once by who waits for it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dejaqueue.journal.interface import Append
from dejaqueue.testing.simulation.threads import SimulatedCommitter, SimulatedThreads
from dejaqueue.testing.simulation.world import Life, SimulatedClock, World


def test_an_executor_works_later_and_in_order() -> None:
    world = World(1)
    executor = SimulatedThreads(world, Life()).executor("x")
    seen: list[int] = []
    for number in range(10):
        executor.submit(seen.append, number)
    assert seen == []
    while world.step():
        pass
    assert seen == list(range(10))


def test_who_waits_for_a_future_makes_it_happen() -> None:
    executor = SimulatedThreads(World(1), Life()).executor("x")
    seen: list[int] = []
    executor.submit(seen.append, 1)
    assert executor.submit(lambda: 42).result() == 42
    assert seen == [1]
    with pytest.raises(ZeroDivisionError):
        executor.submit(lambda: 1 // 0).result()


def test_a_closed_executor_finishes_or_forgets() -> None:
    seen: list[int] = []
    for forget in (False, True):
        executor = SimulatedThreads(World(1), Life()).executor("x")
        executor.submit(seen.append, 1)
        executor.shutdown(cancel_futures=forget)
        with pytest.raises(RuntimeError, match="closed"):
            executor.submit(seen.append, 2)
    assert seen == [1]


class Ends:
    """A log that keeps nothing."""

    def append_all(self, appends: Sequence[Append]) -> None:
        pass


def test_a_committer_appends_later_and_at_once_for_who_waits() -> None:
    world = World(1)
    committer = SimulatedCommitter("c", world, Life())
    seen: list[int] = []
    committer.start()
    journal: Any = SimpleNamespace(log=Ends())
    for number in (1, 2):
        append = Append(journal, [], number, 1, lambda append: seen.append(append.after))
        committer.submit(append)
    committer.wait(threading.Condition(), lambda: bool(seen))
    assert seen == [1]
    committer.stop()
    assert seen == [1, 2]
    while world.step():
        pass
    assert seen == [1, 2]


def test_a_worker_runs_calls_at_once() -> None:
    world, life = World(1), Life()
    worker = SimulatedThreads(world, life).worker("w", SimulatedClock(world))
    seen: list[int] = []
    worker.start()
    worker.call(lambda: seen.append(1))
    assert seen == [1]
    worker.stop()


def test_nothing_starts_in_a_life_that_is_over() -> None:
    world, life = World(1), Life()
    seen: list[int] = []
    SimulatedThreads(world, life).start("x", lambda: seen.append(1))
    life.end()
    assert not world.step()
    assert seen == []
