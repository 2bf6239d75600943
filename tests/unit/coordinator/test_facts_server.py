"""Covers: a child that hears nothing for a while, and one that ends.

Not covered: the contract of a coordinator (tests/conformance/test_coordinator_parent_facts.py).
"""

from __future__ import annotations

import json
import socket
from multiprocessing.connection import Connection

from dejaqueue.coordinator.facts_server import FactsServer
from dejaqueue.coordinator.in_process import ProcessFacts
from tests.patience import until


def asked(connection: Connection, *request: object) -> list[object]:
    """What it answers; bells that come before are left out."""
    connection.send_bytes(json.dumps(request).encode())
    while True:
        told = json.loads(connection.recv_bytes())
        if told[0]:
            found: list[object] = told
            return found


def test_a_child_that_reads_nothing_holds_nobody() -> None:
    facts = ProcessFacts()
    server = FactsServer(facts)
    sleeper = Connection(server.connect().detach())
    awake = Connection(server.connect().detach())
    assert asked(sleeper, 1, "watch", "a/") == [1, "", None]
    for number in range(1, 5_000):
        facts.put("a/b", b"x" * 100, None, None)
        if number % 500 == 0:
            assert asked(awake, number, "get", "no")[1:] == ["", None]
    assert asked(sleeper, 7, "get", "a/b")[:2] == [7, ""]
    server.close()
    server.close()
    sleeper.close()
    awake.close()
    facts.close()


def test_what_is_refused_is_named__and_the_connection_goes_on() -> None:
    facts = ProcessFacts()
    server = FactsServer(facts)
    child = Connection(server.connect().detach())
    assert asked(child, 1, "put", "a", "eA==", 3, None)[:2] == [1, "Conflict"]
    assert asked(child, 2, "put", "a b", "", 0, None)[:2] == [2, "BadRequest"]
    assert asked(child, 3, "put", "a", "eA==", 0, None)[:2] == [3, ""]
    server.close()
    child.close()
    facts.close()


def test_a_child_that_ends_leaves_its_seat() -> None:
    facts = ProcessFacts()
    server = FactsServer(facts)
    end = server.connect()
    assert not facts.is_unused()
    end.shutdown(socket.SHUT_RDWR)
    until(facts.is_unused)
    end.close()
    server.close()
    facts.close()
