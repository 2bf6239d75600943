"""Messages by the express lane: chosen by the client by itself, and as safe as by Flight.

Byte by byte, and hostile guests: tests/unit/http/test_lane.py, test_lane_consumer.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dejaqueue import Client
from dejaqueue.access.gate import Gate
from dejaqueue.access.key_ring import InMemory
from dejaqueue.broker.broker import Broker
from dejaqueue.client.credentials import Tls
from dejaqueue.client.lane import Lane
from dejaqueue.errors import BadRequest, DejaQError, DuplicateKey, Forbidden, Unauthenticated
from dejaqueue.flight.server import FlightServer
from dejaqueue.http.lane import Lane as ServersLane
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.model import Assignment, RowStatus, Topic, TopicKind
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.integration.access_fixture import Site, running
from tests.integration.papers import Papers, server_tls
from tests.integration.test_forwarding import THERE, AllElsewhere
from tests.patience import PATIENCE_SECONDS, until


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture
def site() -> Iterator[Site]:
    with running() as site:
        site.broker.create_topic(Topic("t", partitions=3))
        yield site


def lanes_of(client: Any) -> list[Lane]:
    """The lanes that a client has open."""
    found = [one._lane for one in client._core.transport._open.values()]
    return [one for one in found if one is not None and not one.is_over]


def payloads(broker: Broker, topic: str = "t") -> list[bytes]:
    _, [page] = broker.read("peek", {"topic": topic, "limit": 10_000})
    return sorted(bytes(one) for one in page.column("payload").to_pylist())


def test_a_single_message_goes_by_the_lane_and_a_batch_by_flight(site: Site) -> None:
    assert site.http.connections.lanes is not None
    with Client(site.flight.url) as client:
        client.send_batch("t", [b"batch"])
        assert lanes_of(client) == []
        first = client.send("t", b"one")
        second = client.send("t", b"two", delay=3_600)
        keyed = client.send("t", b"three", key="k")
        assert len(lanes_of(client)) == 1
        assert len({first, second, keyed}) == 3
        assert client.cancel("t", id=second) is RowStatus.OK
        got = {bytes(one.payload) for one in client.consume("t", max_messages=3)}
    assert got == {b"batch", b"one", b"three"}
    until(lambda: not site.http.connections.lanes.open)  # type: ignore[union-attr]


MORE: dict[str, dict[str, Any]] = {
    "key": {"key": "k\u00e4"},
    "group": {"group": "tenant.user"},
    "priority": {"priority": 7},
    "tags": {"tags": ["red", "blue"]},
    "headers": {"headers": {"a": "1", "b": ""}},
    "ttl": {"ttl": 3_600},
    "all": {"key": "k", "group": "g", "priority": 0, "tags": ["t"], "headers": {"n": "v"}},
}


@pytest.mark.parametrize("kind", ["timeline", "fair"])
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("fields", MORE.values(), ids=list(MORE))
def test_what_a_message_has_comes_by_the_lane_as_by_flight(
    site: Site, fields: dict[str, Any], partitions: int, kind: str
) -> None:
    for name in ("lane", "flight"):
        site.broker.create_topic(Topic(name, kind=TopicKind(kind), partitions=partitions))
    place = site.broker.lane
    assert place is not None
    with Client(site.flight.url) as client:
        client.send("lane", b"p", **fields)
        assert len(lanes_of(client)) == 1
    site.broker.lane = None
    with Client(site.flight.url) as client:
        client.send("flight", b"p", **fields)
        assert lanes_of(client) == []
    both = []
    for name in ("lane", "flight"):
        _, [page] = site.broker.read("peek", {"topic": name, "limit": 10})
        [row] = page.drop_columns(["id", "due"]).to_pylist()
        both.append(row)
    assert both[0] == both[1]


@pytest.mark.parametrize("partitions", [1, 3])
def test_rows_with_fields_share_a_batch_and_are_judged_alone(site: Site, partitions: int) -> None:
    site.broker.create_topic(Topic("keyed", partitions=partitions))
    with Client(site.flight.url) as client:
        first = client.send("keyed", b"one", key="k")
        with pytest.raises(DuplicateKey) as refused:
            client.send("keyed", b"two", key="k")
        assert refused.value.id == first
        with pytest.raises(BadRequest, match="key of row 0: at most 256 bytes"):
            client.send("keyed", b"three", key="x" * 257)
        with pytest.raises(BadRequest, match="no empty tag"):
            client.send("keyed", b"four", tags=[""])
        ids = [client.send("keyed", f"{n}".encode(), key=f"k{n}") for n in range(64)]
        assert len(lanes_of(client)) == 1
        assert len(set(ids)) == 64
        assert client.cancel("keyed", key="k7") is RowStatus.OK
    assert len(payloads(site.broker, "keyed")) == 64


def test_to_a_broker_of_before_what_has_fields_goes_by_flight(site: Site) -> None:
    assert site.broker.lane is not None
    site.broker.lane = replace(site.broker.lane, has_fields=False)
    with Client(site.flight.url) as client:
        client.send("t", b"plain")
        assert len(lanes_of(client)) == 1
        taken = lanes_of(client)[0]._numbers
        before = repr(taken)
        client.send("t", b"keyed", key="k")
        assert repr(taken) == before  # nothing more was sent by the lane
    assert payloads(site.broker) == [b"keyed", b"plain"]


def test_groups_stay_together_over_the_lane(site: Site) -> None:
    site.broker.create_topic(Topic("apart", partitions=5, assignment=Assignment.EXCLUSIVE))
    with Client(site.flight.url) as client:
        found = {
            group: {client.send("apart", b"p", group=group) >> 47 for _ in range(5)}
            for group in map(str, range(12))
        }
        assert len(lanes_of(client)) == 1
    assert all(len(partitions) == 1 for partitions in found.values())
    assert len(set.union(*found.values())) > 1


def test_keys_are_found_in_a_topic_that_grew(site: Site) -> None:
    with Client(site.flight.url) as client:
        ids = {n: client.send("t", b"p", key=f"k{n}") for n in range(20)}
        site.broker.alter_topic("t", {"partitions": 5})
        for n in range(20):
            with pytest.raises(DuplicateKey) as refused:
                client.send("t", b"p", key=f"k{n}")
            assert refused.value.id == ids[n]
        client.send("t", b"new", key="new", group="g")
    assert len(payloads(site.broker)) == 21


def test_without_an_http_port_it_goes_by_flight(site: Site) -> None:
    site.broker.lane = None
    with Client(site.flight.url) as client:
        client.send("t", b"one")
        assert lanes_of(client) == []
    assert payloads(site.broker) == [b"one"]


def test_a_port_that_is_another_brokers_gets_nothing(site: Site) -> None:
    with running() as other:
        other.broker.create_topic(Topic("t"))
        assert site.broker.lane is not None
        site.broker.lane = replace(site.broker.lane, port=other.http.port)
        with Client(site.flight.url) as client:
            client.send("t", b"one")
            assert lanes_of(client) == []
        assert payloads(site.broker) == [b"one"]
        assert payloads(other.broker) == []


def test_lanes_that_break_lose_nothing_and_bring_nothing_twice(site: Site) -> None:
    lanes = site.http.connections.lanes
    assert lanes is not None
    done: list[bytes] = []
    wrong: list[DejaQError] = []
    with Client(site.flight.url) as client:

        def send_all(thread: int) -> None:
            for index in range(150):
                payload = f"{thread}-{index}".encode()
                try:
                    client.send("t", payload)
                except DejaQError as error:
                    wrong.append(error)
                done.append(payload)

        threads = [threading.Thread(target=send_all, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        cuts = 0
        while any(thread.is_alive() for thread in threads):
            target = cuts * 60 + 30
            until(lambda at=target: len(done) >= min(at, 600))  # type: ignore[misc]
            for one in list(lanes.open):
                assert lanes._loop is not None  # which alone may touch a connection
                lanes._loop.call_soon_threadsafe(one._transport.abort)  # type: ignore[attr-defined]
                cuts += 1
            if len(done) >= 600:
                break
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
    assert wrong == []
    assert cuts >= 3
    assert payloads(site.broker) == sorted(done)


def consumers_lanes(site: Site) -> list[ServersLane]:
    lanes = site.http.connections.lanes
    assert lanes is not None
    return [one for one in list(lanes.open) if one._consumer is not None]


def test_small_deliveries_come_by_the_lane_and_large_ones_by_flight(site: Site) -> None:
    with Client(site.flight.url) as client:
        client.send_batch("t", [f"{n}".encode() for n in range(3_000)])
        batches = client.consume_batches("t", batch_rows=2_000, max_messages=1_000)
        got = [(len(batch), batch.ack(), len(consumers_lanes(site))) for batch in batches]
        assert (sum(rows for rows, _, _ in got), {lanes for _, _, lanes in got}) == (1_000, {0})
        single = [
            (one.ack(wait=False), len(consumers_lanes(site)))
            for one in client.consume("t", max_messages=2_000)
        ]
        assert {lanes for _, lanes in single} == {1}
    until(lambda: payloads(site.broker) == [] and not consumers_lanes(site))


def test_consumers_whose_lanes_break_lose_nothing(site: Site) -> None:
    count, got = 2_000, set()
    with Client(site.flight.url) as client:
        client.send_batch("t", [f"{n}".encode() for n in range(count)])
        cuts = 0
        for message in client.consume("t", prefetch=100):
            got.add(bytes(message.payload))
            message.ack(wait=False)
            if len(got) >= 400 * (cuts + 1) and cuts < 3:
                cuts += 1
                for one in consumers_lanes(site):
                    assert site.http._loop is not None  # which alone may touch a connection
                    site.http._loop.call_soon_threadsafe(one._transport.abort)  # type: ignore[attr-defined]
            if len(got) == count:
                break
    assert cuts == 3
    until(lambda: payloads(site.broker) == [])


def test_over_tls_by_the_same_papers_and_keys(papers: Papers) -> None:
    with running(server_tls(papers.broker, papers.ca)) as site:
        site.broker.create_topic(Topic("t"))
        site.broker.keys.create("root", ["admin:*"])
        key = site.broker.keys.create("shop", ["produce:t"])[1]
        tls = Tls(papers.ca, *papers.client, server_name="localhost")
        done: list[int] = []
        with Client(site.flight.url, api_key=key, tls=tls) as client:

            def send_all() -> None:
                done.extend(client.send("t", b"x" * 20_000) for _ in range(20))

            threads = [threading.Thread(target=send_all) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE_SECONDS)
            assert len(lanes_of(client)) == 1
            with pytest.raises(Forbidden):
                client.send("other", b"x")
        assert len(set(done)) == 80
        reader = site.broker.keys.create("till", ["consume:t"])[1]
        with Client(site.flight.url, api_key=reader, tls=tls, retry_ms_max=100) as client:
            with pytest.raises(Forbidden):
                next(iter(client.consume("other")))
            messages = iter(client.consume("t", prefetch=1, auto_ack=False))
            assert len(next(messages).payload) == 20_000
            assert len(consumers_lanes(site)) == 1
            site.broker.keys.revoke(reader.split("_")[1])
            with pytest.raises(Unauthenticated):
                for _ in messages:
                    pass
        assert payloads(site.broker) == [b"x" * 20_000] * 80
        with (
            Client(site.flight.url, api_key="dq_1_2", tls=tls, retry_ms_max=100) as client,
            pytest.raises(Unauthenticated),
        ):
            client.send("t", b"x")


def test_it_follows_a_topic_to_its_broker(site: Site) -> None:
    site.broker.create_topic(Topic(THERE))
    shared = AllElsewhere(InMemory(), site.flight.url)
    near_broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")), node=shared)
    near_broker.start()
    near = FlightServer(near_broker, gate=Gate(near_broker.keys))
    near.start()
    http = HttpServer(Service(near_broker, Gate(near_broker.keys), lambda: True), "127.0.0.1", 0)
    http.start()
    try:
        with Client(near.url) as client:
            client.send(THERE, b"one")
            client.send(THERE, b"two")
            assert len(lanes_of(client)) == 2
            for message in client.consume(THERE, max_messages=1):
                assert len(consumers_lanes(site)) == 1
                message.nack(delay=0)
        assert payloads(site.broker, THERE) == [b"one", b"two"]
    finally:
        near.stop()
        near_broker.stop()
        http.stop()


def test_a_broker_that_starts_again_elsewhere_is_found_and_repeats_its_answer(
    tmp_path: Path,
) -> None:
    settings = BrokerSettings(journal=JournalSettings(url=str(tmp_path / "data")))
    port = 0
    for turn in range(2):
        broker = Broker(settings)
        broker.start()
        gate = Gate(broker.keys)
        flight = FlightServer(broker, "127.0.0.1", port, gate=gate)
        http = HttpServer(Service(broker, gate, lambda: True), "127.0.0.1", 0)
        flight.start()
        http.start()
        port = flight.port
        if turn == 0:
            client = Client(flight.url)
            broker.create_topic(Topic("t"))
        client.send("t", f"{turn}".encode())
        assert len(lanes_of(client)) == 1
        if turn == 1:
            assert payloads(broker) == [b"0", b"1"]
            client.close()
        flight.stop()
        broker.stop()
        http.stop()
