"""How threads wait: woken once, and in order after an interruption."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from dejaqueue.client._sync import waiting as waits_sync
from dejaqueue.client.sending.gather import Gathered


class OneBatch:
    """A gather whose batch the test ends."""

    def __init__(self, interrupts: bool = False) -> None:
        self.gathered = Gathered()
        self.interrupts = interrupts

    def add(self, row: Any, lock: Any, future: Any) -> tuple[Gathered, int]:
        self.gathered.locks.append(lock)
        return self.gathered, 0

    def pump(self) -> None:
        if self.interrupts:
            raise KeyboardInterrupt
        threading.Timer(0.01, self.finish).start()

    def finish(self) -> None:
        from dejaqueue.wire.frames import Reply

        self.gathered.reply = Reply(1, 1, first_id=5)
        self.gathered.wake()


def test_a_send_sleeps_until_its_batch_is_done() -> None:
    gathers: list[Any] = [OneBatch() for _ in range(3)]
    assert [waits_sync.send_row(gather, (b"x",)) for gather in gathers] == [5, 5, 5]  # type: ignore[arg-type]


def test_an_interrupted_send_does_not_disturb_the_next() -> None:
    interrupted: Any = OneBatch(interrupts=True)
    with pytest.raises(KeyboardInterrupt):
        waits_sync.send_row(interrupted, (b"x",))  # type: ignore[arg-type]
    interrupted.finish()  # releases the lock of the send that was given up
    following: Any = OneBatch()
    assert waits_sync.send_row(following, (b"x",)) == 5  # type: ignore[arg-type]


def test_results_and_calls() -> None:
    future: Future[int] = Future()
    future.set_result(3)
    assert waits_sync.result(future) == 3
    assert waits_sync.run(lambda a, b: a + b, 1, 2) == 3
    window = threading.Semaphore(1)
    waits_sync.acquire(window)
    assert not window.acquire(blocking=False)
