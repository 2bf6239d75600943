"""Covers: a store's own waiting, on threads of this process."""

from __future__ import annotations

import threading
from functools import partial

from dejaqueue.clock import Wake
from dejaqueue.journal.records.concurrency import Concurrency


def test_what_is_done_in_the_background_is_done_in_order_elsewhere() -> None:
    done: list[int] = []

    def note(number: int) -> int:
        done.append(number)
        return threading.get_ident()

    with Concurrency().executor() as executor:
        threads = [executor.submit(partial(note, number)) for number in range(9)]
        assert threading.get_ident() not in {one.result(10) for one in threads}
    assert done == list(range(9))


def test_a_wait_ends_at_its_instant_or_with_the_bell() -> None:
    concurrency, bell = Concurrency(), Wake()
    assert not concurrency.clock.wait_until(concurrency.clock.now_us() + 1_000, bell)
    bell.ring()
    assert concurrency.clock.wait_until(concurrency.clock.now_us() + 60_000_000, bell)


def test_a_lock_is_held_by_one() -> None:
    lock = Concurrency().lock()
    entered = threading.Event()

    def enter() -> None:
        with lock:
            entered.set()

    with lock:
        other = threading.Thread(target=enter)
        other.start()
        assert not entered.wait(0.05)
    other.join(10)
    assert entered.is_set()
