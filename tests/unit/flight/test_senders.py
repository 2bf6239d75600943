"""Lanes send in order, by threads that they have only while there is something to send."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable

import pytest

from dejaqueue.flight.senders import WAITING_MAX, Lane, Senders

SECONDS_MAX = 10.0


def until(condition: Callable[[], object]) -> None:
    bell, turns = threading.Event(), 0
    while not condition():
        turns += 1
        assert turns < SECONDS_MAX * 1_000
        bell.wait(0.001)


class Client:
    """What a lane sends to."""

    def __init__(self, senders: Senders, *, is_open: bool = True) -> None:
        self.got: list[int] = []
        self.threads: set[int] = set()
        self.may_take = threading.Event()
        self.may_take.set()
        self.is_gone = False
        self.lane: Lane[int] = Lane(self._send, is_open=is_open, senders=senders)

    def _send(self) -> bool:
        item = self.lane.take()
        assert item is not None
        self.may_take.wait(SECONDS_MAX)
        self.threads.add(threading.get_ident())
        self.got.append(item)
        return not self.is_gone


def test_what_is_put_is_sent_in_order_whoever_puts_it() -> None:
    senders = Senders()
    clients = [Client(senders) for _ in range(20)]
    for number in range(500):
        for client in clients:
            client.lane.put(number)
    for client in clients:
        client.lane.finish()
        assert client.got == list(range(500))


def test_idle_lanes_have_no_thread() -> None:
    before = _thread._count()
    senders = Senders()
    clients = [Client(senders) for _ in range(1_000)]
    for client in clients:
        client.lane.put(1)
    for client in clients:
        client.lane.finish()
    until(lambda: senders._waiting <= WAITING_MAX)
    assert senders._waiting >= 1
    assert _thread._count() - before <= WAITING_MAX


def test_a_client_that_takes_nothing_holds_up_nobody_else() -> None:
    senders = Senders()
    stuck = [Client(senders) for _ in range(3 * WAITING_MAX)]
    for client in stuck:
        client.may_take.clear()
        client.lane.put(1)
    good = Client(senders)
    good.lane.put(1)
    good.lane.finish()
    assert good.got == [1]
    assert not any(client.got for client in stuck)
    for client in stuck:
        client.may_take.set()
        client.lane.finish()
    until(lambda: senders._waiting <= WAITING_MAX)


def test_nothing_is_sent_before_a_lane_is_open() -> None:
    client = Client(Senders(), is_open=False)
    client.lane.put(1)
    assert client.got == []
    client.lane.open()
    client.lane.put(2)
    client.lane.finish()
    assert client.got == [1, 2]


def test_what_is_put_after_the_end_is_not_sent() -> None:
    """The stream's memory is gone by then: sending would end the process."""
    client = Client(Senders())
    client.lane.put(1)
    client.lane.finish()
    client.lane.put(2)
    client.lane.finish()
    never = Client(Senders(), is_open=False)
    never.lane.put(1)
    never.lane.finish()
    never.lane.open()
    assert (client.got, never.got) == ([1], [])


def test_a_client_that_is_gone_is_sent_nothing_more() -> None:
    client = Client(Senders())
    client.may_take.clear()
    for number in range(3):
        client.lane.put(number)
    client.is_gone = True
    client.may_take.set()
    client.lane.finish()
    client.lane.put(3)
    client.lane.finish()
    assert client.got == [0]


def test_a_fault_ends_its_lane_and_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    senders = Senders()

    def fail() -> bool:
        raise ZeroDivisionError("a bug")

    broken: Lane[int] = Lane(fail, senders=senders)
    broken.put(1)
    broken.finish()
    until(lambda: "a bug" in caplog.text)
    client = Client(senders)
    client.lane.put(1)
    client.lane.finish()
    assert client.got == [1]


def test_what_is_put_back_comes_first() -> None:
    client = Client(Senders(), is_open=False)
    client.lane.put(1)
    client.lane.put(2)
    first = client.lane.take()
    assert first == 1
    client.lane.put_back(first)
    client.lane.open()
    client.lane.finish()
    assert client.got == [1, 2]
