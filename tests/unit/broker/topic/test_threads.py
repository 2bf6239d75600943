"""Threads of this process: in order, and under their names; loops that go on."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from dejaqueue.broker.topic import threads
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


def test_a_loop_that_breaks_off_begins_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threads, "BEGIN_AGAIN_SECONDS", 0.01)
    left = [KeyError("t53"), RuntimeError("a bug")]

    def loop() -> None:
        if left:
            raise left.pop(0)

    Threads().start_for_ever("dejaq-test", loop).join()
    assert left == []
    assert [one.message for one in caplog.records] == ["dejaq-test broke off, and begins again"] * 2
