"""Covers: the address that processes have in turn: who is named opens it, also if it is late.

Not covered: the parent, which names them (tests/crash/test_processes_kill.py).
"""

from __future__ import annotations

import threading

from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.flight.shared_address import KEY, OPEN, SharedAddress
from tests.patience import PATIENCE_SECONDS, until


class Server:
    """Notes the port that it was to open."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.port = 0

    def enter(self, port: int) -> None:
        self.port = port
        self.entered.set()


def test_who_is_named_opens_the_port__and_nobody_else() -> None:
    facts = ProcessFacts()
    servers = [Server(), Server()]
    entries = [
        SharedAddress(server.enter, facts.open(), name, 7464)
        for name, server in zip("ab", servers, strict=True)
    ]
    facts.put(KEY, b"", None, None)
    for entry in entries:
        entry.start()
    facts.put(KEY, b"b", None, None)
    assert servers[1].entered.wait(PATIENCE_SECONDS)
    assert servers[1].port == 7464
    assert not servers[0].entered.is_set()
    facts.put(KEY, b"a", None, None)
    assert servers[0].entered.wait(PATIENCE_SECONDS)
    until(lambda: [fact.value for fact in facts.find(OPEN)] == [b"a"], "it says so")
    for entry in entries:
        entry.stop()
    facts.close()


class Slow(Server):
    """Opens the port when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.called, self.let = threading.Event(), threading.Event()

    def enter(self, port: int) -> None:
        self.called.set()
        assert self.let.wait(PATIENCE_SECONDS)
        super().enter(port)


def test_a_port_is_said_to_be_open_once_it_is() -> None:
    facts, server = ProcessFacts(), Slow()
    facts.put(KEY, b"a", None, None)
    entry = SharedAddress(server.enter, facts.open(), "a", 1)
    entry.start()
    assert server.called.wait(PATIENCE_SECONDS)
    assert facts.find(OPEN) == []
    server.let.set()
    until(lambda: bool(facts.find(OPEN)), "it says so")
    entry.stop()
    facts.close()


def test_a_coordinator_that_is_away_is_asked_again() -> None:
    facts, server = ProcessFacts(), Server()
    facts.put(KEY, b"a", None, None)
    coordinator = facts.open()
    coordinator.cut()
    entry = SharedAddress(server.enter, coordinator, "a", 1)
    entry.start()
    coordinator.mend()
    assert server.entered.wait(PATIENCE_SECONDS)
    entry.stop()
    facts.close()
