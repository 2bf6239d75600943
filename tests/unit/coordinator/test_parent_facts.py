"""Covers: the end of the parent, and one that does not answer.

Not covered: the contract of a coordinator (tests/conformance/test_coordinator_parent_facts.py).
"""

from __future__ import annotations

import os
import socket
import threading
from multiprocessing.connection import Connection

import pytest

from dejaqueue.coordinator import parent_facts
from dejaqueue.coordinator.facts_server import FactsServer
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.coordinator.parent_facts import ParentCoordinator, open_url
from dejaqueue.errors import BadRequest, Unavailable
from tests.patience import PATIENCE_SECONDS


def test_a_parent_that_ends_is_heard_of__whoever_asks_then_is_told() -> None:
    facts = ProcessFacts()
    server = FactsServer(facts)
    coordinator = open_url(f"inherited:{server.connect().detach()}")
    ended = threading.Event()
    coordinator.when_ended(ended.set)
    coordinator.put("a", b"1", 0)
    assert not ended.is_set()
    server.close()
    assert ended.wait(PATIENCE_SECONDS)
    with pytest.raises(Unavailable, match="the parent process has ended"):
        coordinator.get("a")
    late = threading.Event()
    coordinator.when_ended(late.set)
    assert late.is_set()
    facts.close()


def test_a_parent_that_does_not_answer_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent_facts, "ANSWER_S", 0.01)
    mine, theirs = socket.socketpair()
    coordinator = ParentCoordinator(Connection(mine.detach()))
    with pytest.raises(Unavailable, match="does not answer"):
        coordinator.get("a")
    theirs.close()


def test_what_is_no_socket_is_refused() -> None:
    for url in ("inherited:", "inherited:x", "inherited:9999"):
        with pytest.raises(BadRequest, match="number of a socket"):
            open_url(url)


def test_the_socket_is_not_inherited_further() -> None:
    mine, theirs = socket.socketpair()
    os.set_inheritable(mine.fileno(), True)
    number = mine.detach()
    open_url(f"inherited:{number}")
    assert not os.get_inheritable(number)
    theirs.close()
