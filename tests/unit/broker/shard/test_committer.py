"""Threads that append: in order, all before they stop, beside each other where they may hang."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from dejaqueue.broker.shard.committer import ApartCommitter, Committer

SECONDS_MAX = 20


def test_what_was_submitted_is_done_in_order_before_it_stops() -> None:
    committer = Committer("test-committer")
    done: list[int] = []
    committer.start()
    assert committer.is_alive
    for number in range(100):
        committer.submit(lambda number=number: done.append(number))  # type: ignore[misc]
    committer.stop()
    committer.stop()
    assert done == list(range(100))
    assert not committer.is_alive


def test_who_waits_goes_on_when_it_has_landed() -> None:
    committer, landed = Committer("test-committer"), threading.Condition()
    done: list[int] = []
    committer.start()

    def append() -> None:
        with landed:
            done.append(1)
            landed.notify_all()

    committer.submit(append)
    committer.wait(landed, lambda: bool(done))
    assert done == [1]
    committer.stop()


def test_an_append_that_hangs_holds_no_other__where_each_has_a_thread() -> None:
    apart = ApartCommitter(ThreadPoolExecutor(2))
    may, others = threading.Event(), threading.Event()
    apart.start()

    def hangs() -> None:
        assert may.wait(SECONDS_MAX)

    apart.submit(hangs)
    apart.submit(others.set)
    assert others.wait(SECONDS_MAX)
    may.set()
    apart.stop()
