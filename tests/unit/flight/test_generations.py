"""Which server listens, which only end. With gRPC: tests/integration/test_rotation.py."""

from __future__ import annotations

import threading

from dejaqueue import limits
from dejaqueue.flight.generations import Generations


class Server:
    """A server whose calls end when they are told to."""

    def __init__(self, port: int) -> None:
        self.port = port or 1_234
        self.closed, self.told = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.closed.wait(20)

    def shutdown(self) -> None:
        self.closed.wait(20)

    def end_streams(self) -> None:
        self.told.set()


def made(refusals: int = 0) -> tuple[Generations, list[Server], list[int]]:
    servers: list[Server] = []
    refused: list[int] = []

    def make(port: int) -> Server:
        if servers and len(refused) < refusals:
            refused.append(port)
            raise OSError("in use")
        servers.append(Server(port))
        return servers[-1]

    return Generations(make), servers, refused


def test_a_new_server_takes_the_port_and_the_old_one_ends_in_its_own_time() -> None:
    generations, servers, refused = made(refusals=3)
    generations.start(0)
    generations.renew()
    assert [server.port for server in servers] == [1_234, 1_234]
    assert refused == [1_234] * 3, "it tries until the port is free"
    assert not servers[0].told.is_set()
    for server in servers:
        server.closed.set()
    assert generations.stop(20)
    assert all(server.told.is_set() for server in servers)
    assert generations.stop(20), "twice is fine"


def test_of_too_many_old_servers_the_oldest_tells_its_streams() -> None:
    generations, servers, _ = made()
    generations.start(0)
    for _ in range(limits.FLIGHT_GENERATIONS_MAX + 1):
        generations.renew()
    assert [server.told.is_set() for server in servers].index(False) == 1
    for server in servers:
        server.closed.set()
    assert generations.stop(20)


def test_streams_that_do_not_end_are_given_up() -> None:
    generations, servers, _ = made()
    generations.start(0)
    generations.renew()
    assert not generations.stop(0.01)
    for server in servers:
        server.closed.set()


def test_streams_that_wait_for_their_clients_are_not_waited_for__those_that_owe_something_are() -> (
    None
):
    generations, servers, _ = made()
    generations.start(0)
    answers_left = [True, True, False]
    assert not generations.stop(20, lambda: answers_left.pop(0))
    assert answers_left == [], "it looked until nothing was owed, and no longer"
    servers[0].closed.set()


def test_a_client_that_closes_its_stream_when_told_is_waited_for() -> None:
    generations, servers, _ = made()
    generations.start(0)

    def close() -> None:
        servers[0].told.wait(20)
        servers[0].closed.set()

    closing = threading.Thread(target=close)
    closing.start()
    assert generations.stop(20, lambda: False)
    closing.join(20)


def test_stopping_ends_the_wait_for_the_port() -> None:
    generations, servers, _ = made(refusals=1 << 30)
    generations.start(0)
    renewing = threading.Thread(target=generations.renew)
    renewing.start()
    servers[0].closed.set()
    assert generations.stop(20)
    renewing.join(20)
    assert not renewing.is_alive()
    generations.renew()
    assert len(servers) == 1
