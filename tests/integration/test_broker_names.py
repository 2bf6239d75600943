"""Covers: a client that finds brokers by a name: addresses at 127.0.0.x, SRV records of a DNS
server here; a broker that is lost; a name whose answer changes; TLS.

Not covered: what is made of answers (tests/unit/client/test_broker_names.py).
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.cli.ports import free_port
from dejaqueue.client import AsyncClient, Client, Tls, broker_names
from dejaqueue.errors import Unavailable
from dejaqueue.flight.server import FlightServer
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.integration.papers import Papers, server_tls
from tests.patience import PATIENCE_SECONDS, until

NAME = "dejaq.test"
HOSTS = ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
Start = Callable[..., "Place"]


class Place:
    """A broker by itself at an address of this machine, with a topic that is named after it."""

    def __init__(
        self, host: str, port: int, pair: tuple[str, str] | None = None, topic: str = ""
    ) -> None:
        self._broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
        self._broker.start()
        self._broker.create_topic(Topic(topic or f"at-{host}"))
        tls = None if pair is None else server_tls(pair)
        self._server = FlightServer(self._broker, host, port, tls=tls)
        self._server.start()

    def stop(self) -> None:
        self._server.stop()
        self._broker.stop()


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:

        def started(*arguments: Any, **named: Any) -> Place:
            place = Place(*arguments, **named)
            stack.callback(place.stop)
            return place

        yield started


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of the name: what the resolver says, as long as the list says so. The first is first."""
    known: list[str] = []

    def getaddrinfo(name: str, port: int, **_kind: int) -> list[tuple[Any, ...]]:
        if name != NAME or not known:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in known]

    monkeypatch.setattr(broker_names, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr("dejaqueue.client.broker_names.random.randrange", lambda _count: 0)
    return known


def reached(client: Client) -> str:
    """The address of the broker that answers."""
    [topic] = client.topics()
    return topic.name.removeprefix("at-")


def test_addresses_of_a_name_are_tried_in_turn__and_looked_up_again(
    start: Start, addresses: list[str]
) -> None:
    port = free_port()
    first = start(HOSTS[0], port)
    addresses += [HOSTS[2], HOSTS[0], HOSTS[1]]  # where the first is, nobody listens
    with Client(f"dejaq+dns://{NAME}:{port}") as client:
        assert reached(client) == HOSTS[0]
        client.send(f"at-{HOSTS[0]}", b"x")
        second = start(HOSTS[1], port)
        first.stop()
        assert patiently_reached(client) == HOSTS[1]
        # All brokers are replaced, as by a new release of a container.
        addresses[:] = HOSTS[2:]
        start(HOSTS[2], port)
        second.stop()
        assert patiently_reached(client) == HOSTS[2]
        client.send(f"at-{HOSTS[2]}", b"x")


def patiently_reached(client: Client) -> str:
    """The same where a call may meet a connection that breaks."""
    found: list[str] = []

    def is_reached() -> bool:
        with suppress(Unavailable):
            found.append(reached(client))
        return bool(found)

    until(is_reached)
    return found[0]


def test_a_send_goes_on_at_an_address_that_the_name_has_now(
    start: Start, addresses: list[str]
) -> None:
    port, sent = free_port(), threading.Event()
    first = start(HOSTS[0], port)
    addresses += HOSTS[:1]
    with Client(f"dejaq+dns://{NAME}:{port}", retry_ms_max=PATIENCE_SECONDS * 1_000) as client:
        client.create_topic("t")
        client.send("t", b"one")

        def send() -> None:
            client.send("t", b"two")
            sent.set()

        first.stop()
        sender = threading.Thread(target=send)
        sender.start()
        try:
            start(HOSTS[1], port, topic="t")
            addresses[:] = HOSTS[1:2]
            assert sent.wait(PATIENCE_SECONDS)
        finally:
            sender.join(PATIENCE_SECONDS)
        assert client.stats("t").ready == 1


def test_a_name_without_an_answer_is_said__and_found_later(
    start: Start, addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dejaqueue.client import routed_transport

    monkeypatch.setattr(routed_transport, "LOOK_UP_US", -1)
    port = free_port()
    with Client(f"dejaq+dns://{NAME}:{port}", retry_ms_max=0) as client:
        with pytest.raises(Unavailable, match=rf"by the name {NAME}: .*not known"):
            client.topics()
        start(HOSTS[0], port)
        addresses += HOSTS[:1]
        assert reached(client) == HOSTS[0]


def test_an_event_loop_does_not_wait_for_a_resolver(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, answers = free_port(), threading.Event()
    start(HOSTS[0], port)

    def getaddrinfo(_name: str, port: int, **_kind: int) -> list[tuple[Any, ...]]:
        assert answers.wait(60)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (HOSTS[0], port))]

    monkeypatch.setattr(broker_names, "getaddrinfo", getaddrinfo)

    async def ask() -> list[Topic]:
        async with AsyncClient(f"dejaq+dns://{NAME}:{port}") as client:
            found = asyncio.create_task(client.topics())
            await asyncio.sleep(0)  # the call is made here
            answers.set()
            return await found

    assert [topic.name for topic in asyncio.run(ask())] == [f"at-{HOSTS[0]}"]


def test_with_tls_an_address_has_to_be_that_of_the_name(
    start: Start, addresses: list[str], tmp_path: Path
) -> None:
    papers, port = Papers(tmp_path), free_port()
    start(HOSTS[0], port, papers.issue("named", NAME))
    start(HOSTS[1], port, papers.elsewhere)
    addresses += [HOSTS[1], HOSTS[0]]
    with Client(f"dejaqs+dns://{NAME}:{port}", tls=Tls(ca=papers.ca)) as client:
        assert reached(client) == HOSTS[0], "who has no certificate for the name is not believed"
        client.send(f"at-{HOSTS[0]}", b"by the lane or by Flight")


@contextmanager
def dns_server(records: dict[str, list[str]]) -> Iterator[int]:
    """A DNS server on loopback that knows these SRV records; its port."""
    import dns.message
    import dns.rcode
    import dns.rrset

    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            content, asker = server.recvfrom(4_096)
            if not content:
                return
            asked = dns.message.from_wire(content)
            answer = dns.message.make_response(asked)
            name = asked.question[0].name
            if known := records.get(name.to_text(omit_final_dot=True)):
                answer.answer.append(dns.rrset.from_text(name, 0, "IN", "SRV", *known))
            else:
                answer.set_rcode(dns.rcode.NXDOMAIN)
            server.sendto(answer.to_wire(), asker)

    thread = threading.Thread(target=serve, name="dns")
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", server.getsockname())
        thread.join()
        server.close()


def test_srv_records_say_names_and_ports(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    resolving = pytest.importorskip("dns.resolver")
    ports = [free_port(), free_port()]
    first = start(HOSTS[0], ports[0])
    start(HOSTS[1], ports[1])
    records = {
        f"_dejaq._tcp.{NAME}": [
            f"10 0 {ports[1]} {HOSTS[1]}.",  # targets are names; the resolver takes addresses too
            f"5 0 {ports[0]} {HOSTS[0]}.",
        ]
    }
    with dns_server(records) as port:
        resolver = resolving.Resolver(configure=False)
        resolver.nameservers, resolver.port = ["127.0.0.1"], port
        monkeypatch.setattr(resolving, "default_resolver", resolver)
        with Client(f"dejaq+srv://{NAME}") as client:
            assert reached(client) == HOSTS[0]
            first.stop()
            assert patiently_reached(client) == HOSTS[1]
        with (
            Client("dejaq+srv://nobody.test", retry_ms_max=0) as client,
            pytest.raises(Unavailable, match=r"_dejaq\._tcp\.nobody\.test"),
        ):
            client.topics()
