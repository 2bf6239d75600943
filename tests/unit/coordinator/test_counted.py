"""Bells over a server that counts: what is told rings its prefix, what is not told rings all."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from dejaqueue.coordinator.bells import Bells
from dejaqueue.coordinator.counted import Channel, CountedChanges, Told
from dejaqueue.errors import Unavailable

WAIT_S = 10.0


class Server:
    """Counts changes; tells of them, unless it is silent or away."""

    def __init__(self) -> None:
        self.number = 0
        self.away = False
        self.opened = 0
        self.told: queue.SimpleQueue[Told] = queue.SimpleQueue()
        self.asked = threading.Semaphore(0)

    def count(self) -> int:
        self.asked.release()
        if self.away:
            raise Unavailable("away")
        return self.number

    def listen(self) -> Channel:
        if self.away:
            self.asked.release()
            raise Unavailable("away")
        self.opened += 1
        self.told = queue.SimpleQueue()
        return self

    def hear(self, seconds: float) -> Told | None:
        try:
            return self.told.get(timeout=seconds)
        except queue.Empty:
            return None

    def close(self) -> None:
        pass

    def change(self, key: str, *, tells: bool = True, is_change: bool = True) -> None:
        self.number += 1
        if tells:
            self.told.put(Told(self.number, key, is_change))

    def wait_until_asked_anew(self) -> None:
        """Until the thread has asked and looked at the answer."""
        while self.asked.acquire(blocking=False):
            pass
        for _ in range(2):
            assert self.asked.acquire(timeout=WAIT_S)


class Ear:
    """Counts rings."""

    def __init__(self) -> None:
        self.rings: queue.SimpleQueue[None] = queue.SimpleQueue()

    def __call__(self) -> None:
        self.rings.put(None)

    def hears(self) -> bool:
        try:
            self.rings.get(timeout=WAIT_S)
        except queue.Empty:
            return False
        return True

    def is_silent(self) -> bool:
        return self.rings.empty()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def bells() -> Bells:
    return Bells()


@pytest.fixture
def changes(server: Server, bells: Bells) -> Iterator[CountedChanges]:
    running = CountedChanges(bells, server.count, server.listen, poll_ms=20)
    yield running
    running.stop()


def test_what_is_told_rings_its_prefix_alone(
    server: Server, bells: Bells, changes: CountedChanges
) -> None:
    members, owners = Ear(), Ear()
    bells.add("member/", members)
    bells.add("owner/", owners)
    changes.start()
    assert members.hears()
    assert owners.hears()  # both hear that listening began
    server.change("member/a")
    assert members.hears()
    server.wait_until_asked_anew()
    assert owners.is_silent()


def test_what_counts_without_a_change_rings_nobody(
    server: Server, bells: Bells, changes: CountedChanges
) -> None:
    ear = Ear()
    bells.add("", ear)
    changes.start()
    assert ear.hears()
    server.change("member/a", is_change=False)
    server.wait_until_asked_anew()
    assert ear.is_silent()


def test_what_is_not_told_rings_all_when_it_is_counted(
    server: Server, bells: Bells, changes: CountedChanges
) -> None:
    ear = Ear()
    bells.add("member/", ear)
    changes.start()
    assert ear.hears()
    server.change("owner/a", tells=False)
    assert ear.hears()
    server.change("owner/b", tells=False)
    server.change("owner/c")  # its number is two more: something was missed
    assert ear.hears()


def test_a_channel_that_tells_nothing_is_opened_anew(
    server: Server, bells: Bells, changes: CountedChanges
) -> None:
    ear = Ear()
    bells.add("", ear)
    changes.start()
    assert ear.hears()
    while server.opened == 1:
        server.change("a", tells=False)
        assert ear.hears()
    server.wait_until_asked_anew()
    server.change("a")
    assert ear.hears()


def test_a_server_that_comes_back_rings_all(
    server: Server, bells: Bells, changes: CountedChanges
) -> None:
    ear = Ear()
    bells.add("", ear)
    changes.start()
    assert ear.hears()
    server.away = True
    server.wait_until_asked_anew()
    assert ear.is_silent()
    server.away = False
    assert ear.hears()
    changes.ring_again()
    assert ear.hears()


def test_a_counter_that_went_back_rings_all(
    server: Server, bells: Bells, changes: CountedChanges
) -> None:
    ear = Ear()
    bells.add("", ear)
    server.number = 7
    changes.start()
    assert ear.hears()
    server.number = 3
    assert ear.hears()
    server.change("a")
    assert ear.hears()


def test_without_a_channel_the_counter_is_enough(server: Server, bells: Bells) -> None:
    ear = Ear()
    bells.add("", ear)
    changes = CountedChanges(bells, server.count, None, poll_ms=20)
    changes.start()
    assert ear.hears()
    server.change("a", tells=False)
    assert ear.hears()
    changes.stop()
    changes.stop()
