"""Threads of this process: in order, and under their names."""

from __future__ import annotations

import threading
from functools import partial

from dejaqueue.broker.topic.threads import Threads
from dejaqueue.clock import SystemClock
from dejaqueue.journal.interface import Append
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.testing.journal_conformance import make_ack


def test_an_executor_works_in_order_on_a_thread_of_its_name() -> None:
    executor = Threads().executor("dejaq-test")
    seen: list[tuple[int, str]] = []

    def note(number: int) -> None:
        seen.append((number, threading.current_thread().name))

    for number in range(20):
        executor.submit(partial(note, number))
    executor.shutdown()
    assert [number for number, _ in seen] == list(range(20))
    assert {name for _, name in seen} == {"dejaq-test_0"}


def test_a_function_runs_once_and_a_worker_has_its_committer() -> None:
    done = threading.Event()
    Threads().start("dejaq-test", done.set)
    assert done.wait(10)
    worker = Threads().worker("w", SystemClock())
    worker.start()
    ran = threading.Event()
    journal = MemoryStore().open("t", 0)
    worker.committer.submit(Append(journal, [make_ack(1)], 0, 1, lambda _: ran.set()))
    assert ran.wait(10)
    worker.stop()
