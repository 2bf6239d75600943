"""Covers: what the Java client sends and takes by express lanes, and what by Flight.

Lanes that are cut, that stand still, that are refused: nothing is lost, nothing is there twice.
Not covered: what clients do with messages (test_conformance.py, by both ways).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dejaqueue import Client
from dejaqueue.access.gate import Gate
from dejaqueue.access.key_ring import InMemory
from dejaqueue.broker.broker import Broker
from dejaqueue.flight.server import FlightServer
from dejaqueue.http.lane import Lane
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings, ServerSettings
from dejaqueue.testing.cutting_proxy import Cut, CuttingProxy
from tests.clients.drivers import ClientError, Driver
from tests.integration.access_fixture import Site, running
from tests.integration.papers import Papers, server_tls
from tests.integration.test_forwarding import THERE, AllElsewhere
from tests.patience import until

COUNT = 400


@pytest.fixture
def way() -> tuple[str, bool]:
    return "java", False


def lanes_of(site: Site, *, consumers: bool = False) -> list[Lane]:
    """The lanes that are open at a broker."""
    lanes = site.http.connections.lanes
    assert lanes is not None
    return [one for one in list(lanes.open) if (one._consumer is not None) == consumers]


def frame_count(site: Site) -> int:
    """SEND frames that came by the lane that is open."""
    (lane,) = lanes_of(site)
    return lane._taken


def payloads(broker: Broker, topic: str = "t") -> list[bytes]:
    """What a topic has, sorted."""
    _, [page] = broker.read("peek", {"topic": topic, "limit": 10_000})
    return sorted(bytes(one) for one in page.column("payload").to_pylist())


def outcomes(answers: list[dict[str, Any]]) -> list[str]:
    """The status or the error's name of each message that was sent alone."""
    return [one["statuses"][0] if "ids" in one else one["error"]["name"] for one in answers]


def numbers(count: int) -> list[bytes]:
    """What a flood sends, sorted."""
    return sorted(b"%d" % number for number in range(count))


@contextmanager
def proxy_before(site: Site) -> Iterator[CuttingProxy]:
    """Lanes of this broker go through a proxy; Flight does not."""
    assert site.broker.lane is not None
    with CuttingProxy(site.http.port) as proxy:
        site.broker.lane = replace(site.broker.lane, port=proxy.port)
        yield proxy


def test_small_single_messages_go_by_the_lane_and_others_by_flight(
    client: Driver, site: Site
) -> None:
    client.send("t", b"a", b"b")
    assert lanes_of(site) == []
    client.send("t", b"c")
    client.send("t", b"d", key="k", group="g", priority=3, tags=["x"], headers={"h": "v"})
    assert frame_count(site) == 2
    client.send("t", b"e" * 100_000)
    client.send("t", b"f", b"g")
    assert frame_count(site) == 2
    assert len(payloads(site.broker)) == 7
    client.call("close")
    until(lambda: not lanes_of(site))


def test_who_wants_flight_alone_gets_it(alone: Driver, site: Site) -> None:
    alone.call("connect", url=site.flight.url, flight_only=True)
    alone.call("create_topic", topic="t")
    alone.send("t", b"a")
    alone.call("consume", topic="t")
    alone.receive(1)
    assert lanes_of(site) + lanes_of(site, consumers=True) == []


def test_to_a_broker_of_before_what_has_fields_goes_by_flight(client: Driver, site: Site) -> None:
    assert site.broker.lane is not None
    site.broker.lane = replace(site.broker.lane, has_fields=False)
    client.send("t", b"plain")
    client.send("t", b"keyed", key="k")
    assert frame_count(site) == 1
    assert payloads(site.broker) == [b"keyed", b"plain"]


@pytest.mark.parametrize("why", ["no port", "another broker's", "nobody listens"])
def test_without_a_lane_of_its_broker_all_goes_by_flight(
    client: Driver, site: Site, why: str
) -> None:
    with running() as other:
        other.broker.create_topic(Topic("t"))
        place = site.broker.lane
        assert place is not None
        port = {"another broker's": other.http.port, "nobody listens": 9}.get(why)
        site.broker.lane = None if port is None else replace(place, port=port)
        assert client.send("t", b"a")["statuses"] == ["OK"]
        client.call("consume", topic="t")
        (found,) = client.receive(1)
        assert client.call("ack", ids=[found["id"]])["statuses"] == ["OK"]
        assert payloads(other.broker) == []
        assert lanes_of(other) + lanes_of(site) + lanes_of(site, consumers=True) == []


def test_what_threads_send_meanwhile_is_one_frame(client: Driver, site: Site) -> None:
    with proxy_before(site) as proxy:
        client.send("t", b"first")
        proxy.delay(100)
        answers = client.send("t", *[b"%d" % n for n in range(60)], do="send_each")["answers"]
        assert outcomes(answers) == ["OK"] * 60
        assert len({answer["ids"][0] for answer in answers}) == 60
        assert frame_count(site) <= 20
    assert len(payloads(site.broker)) == 61


def test_a_message_in_a_frame_is_refused_for_its_own_fault(client: Driver, site: Site) -> None:
    with proxy_before(site) as proxy:
        client.send("t", b"first", key="k0")
        proxy.delay(50)
        rows: list[dict[str, object]] = [{"payload": "", "key": f"k{n}"} for n in range(20)]
        rows += [{"payload": "", "due_ms": 1_700_000_000}, {"payload": "", "tags": [""]}]
        answers = client.call("send_each", topic="t", rows=rows)["answers"]
    assert outcomes(answers) == ["DUPLICATE"] + ["OK"] * 19 + ["BadRequest"] * 2
    assert len(payloads(site.broker)) == 20


@pytest.mark.parametrize("where", ["request", "answer"])
def test_lanes_that_are_cut_lose_nothing_and_bring_nothing_twice(
    client: Driver, site: Site, where: Cut
) -> None:
    with proxy_before(site) as proxy:
        client.begin("flood", topic="t", batches=COUNT // 10, single=True, wait_ms=50)
        opened: set[Lane] = set()
        for part in range(1, 8):
            until(lambda at=part * COUNT // 8: len(payloads(site.broker)) >= at)  # type: ignore[misc]
            opened |= set(lanes_of(site))
            proxy.cut_next(where)
        assert client.answer()["sent"] == COUNT
        sent = COUNT

        def made_again() -> bool:
            """A lane is made again after a pause; the flood may have been over before its end."""
            nonlocal sent
            client.send("t", b"%d" % sent)
            sent += 1
            opened.update(lanes_of(site))
            return len(opened) > 1

        until(made_again, "another lane was opened")
    assert payloads(site.broker) == numbers(sent)


def test_a_single_message_whose_reply_was_lost_is_not_there_twice(
    client: Driver, site: Site
) -> None:
    with proxy_before(site) as proxy:
        first = client.send("t", b"a")
        proxy.lose_answers()
        second = client.send("t", b"b")
        third = client.send("t", b"c")
    assert payloads(site.broker) == [b"a", b"b", b"c"]
    assert len({*first["ids"], *second["ids"], *third["ids"]}) == 3


def test_a_lane_that_stands_still_is_left(client: Driver, site: Site) -> None:
    with proxy_before(site) as proxy:
        client.call("consume", topic="t", lease_ms=2_000)
        client.send("t", b"a")
        (first,) = client.receive(1)
        assert client.call("ack", ids=[first["id"]])["statuses"] == ["OK"]
        assert len(lanes_of(site, consumers=True)) == 1
        proxy.hang()
        assert client.send("t", b"b")["statuses"] == ["OK"]
        (found,) = client.receive(1, wait_ms=60_000)  # it was sent into the lane, too
        assert found["payload"] == b"b"
        assert client.call("ack", ids=[found["id"]])["statuses"] == ["OK"]
    assert payloads(site.broker) == []


def test_a_frame_that_is_too_long_for_the_broker_goes_by_flight(tmp_path: Path) -> None:
    driver = Driver("java", tmp_path / "client.log")
    with running(server=ServerSettings(http_body_bytes_max=4_096)) as site:
        try:
            driver.call("connect", url=site.flight.url)
            driver.call("create_topic", topic="t")
            driver.send("t", b"short")
            assert frame_count(site) == 1
            assert driver.send("t", b"long" * 2_000)["statuses"] == ["OK"]
            assert driver.send("t", b"short")["statuses"] == ["OK"]
        finally:
            driver.end()
        assert payloads(site.broker) == [b"long" * 2_000, b"short", b"short"]


# --- consumers --------------------------------------------------------------------------------


def test_a_consumer_has_a_lane_of_its_own(client: Driver, site: Site, ours: Client) -> None:
    client.send("t", *[b"%d" % n for n in range(300)], group="g", tags=["x"], headers={"a": "b"})
    client.call("consume", topic="t", credit=50, lease_ms=60_000)
    found = client.receive(50)
    assert len(lanes_of(site, consumers=True)) == 1
    assert [row["payload"] for row in found] == [b"%d" % n for n in range(50)]
    assert (found[0]["group"], found[0]["tags"], found[0]["headers"]) == ("g", ["x"], {"a": "b"})
    ids = [row["id"] for row in found]
    assert client.call("extend", ids=ids[:5], lease_ms=90_000)["statuses"] == ["OK"] * 5
    assert client.call("nack", ids=ids[:1], delay_ms=600_000)["statuses"] == ["OK"]
    assert client.call("ack", ids=ids[1:])["statuses"] == ["OK"] * 49
    assert len(client.receive(50)) == 50
    client.call("close_consumer")
    until(lambda: not lanes_of(site, consumers=True))
    stats = ours.stats("t")
    assert (stats["acked"], stats["leased"], stats["scheduled"]) == (49, 0, 251)


def test_consumers_whose_lanes_are_cut_lose_nothing(
    client: Driver, site: Site, ours: Client
) -> None:
    ours.send_batch("t", [b"%d" % n for n in range(COUNT)])
    acked: Counter[bytes] = Counter()
    cuts = 0
    with proxy_before(site) as proxy:
        client.call("consume", topic="t", credit=40, lease_ms=2_000)
        while sum(acked.values()) < COUNT:
            found = client.receive(20, wait_ms=3_000)
            if cuts < 6 and len(acked) >= cuts * COUNT // 7:
                cuts += 1
                proxy.cut_next("request" if cuts % 2 else "answer")
            try:
                statuses = client.call("ack", ids=[row["id"] for row in found])["statuses"]
            except ClientError as unknown:
                assert unknown.number == 32
                if ours.stats("t")["acked"] == COUNT:
                    break  # the answer was lost, not the ack
                continue
            rows = zip(found, statuses, strict=True)
            acked.update(row["payload"] for row, status in rows if status == "OK")
            if ours.stats("t")["acked"] == COUNT:
                break
        assert len(lanes_of(site, consumers=True)) == 1
    assert cuts == 6
    assert set(acked.values()) == {1}
    stats = ours.stats("t")
    assert (stats["acked"], stats["leased"], stats["scheduled"]) == (COUNT, 0, 0)


def test_a_lane_that_is_refused_says_what_flight_says(client: Driver, site: Site) -> None:
    client.call("consume", topic="nobody")
    with pytest.raises(ClientError) as unknown:
        client.receive(1)
    assert (unknown.value.number, unknown.value.fields["field"]) == (11, "topic")
    with pytest.raises(ClientError) as sent:
        client.send("nobody", b"x")
    assert (sent.value.number, sent.value.fields["field"]) == (11, "topic")
    assert frame_count(site) == 1


def test_what_is_anothers_is_passed_on_by_flight(site: Site, tmp_path: Path) -> None:
    site.broker.create_topic(Topic(THERE))
    shared = AllElsewhere(InMemory(), site.flight.url)
    near = Broker(BrokerSettings(journal=JournalSettings(url="memory:")), node=shared)
    near.start()
    flight = FlightServer(near, gate=Gate(near.keys))
    flight.start()
    http = HttpServer(Service(near, Gate(near.keys), lambda: True), "127.0.0.1", 0)
    http.start()
    driver = Driver("java", tmp_path / "client.log")
    try:
        driver.call("connect", url=flight.url)
        assert driver.send(THERE, b"one")["statuses"] == ["OK"]
        assert driver.send(THERE, b"two")["statuses"] == ["OK"]
        assert http.connections.lanes is not None
        (lane,) = http.connections.lanes.open
        assert lane._taken == 1  # it was told that it is in vain
        driver.call("consume", topic=THERE)
        found = driver.receive(2)
        assert [row["payload"] for row in found] == [b"one", b"two"]
        acked = driver.call("ack", ids=[row["id"] for row in found])
        assert acked["statuses"] == ["OK", "OK"]
        assert payloads(site.broker, THERE) == []
    finally:
        driver.end()
        flight.stop()
        near.stop()
        http.stop()


def test_over_tls_by_the_same_papers_and_keys(tmp_path: Path) -> None:
    papers = Papers(tmp_path)
    driver = Driver("java", tmp_path / "client.log")
    with running(server_tls(papers.broker)) as site:
        site.broker.create_topic(Topic("t"))
        site.broker.keys.create("root", ["admin:*"])
        key = site.broker.keys.create("shop", ["produce:t", "consume:t"])[1]
        url = f"dejaqs://localhost:{site.flight.port}"
        try:
            driver.call("connect", url=url, ca=papers.ca, api_key=key)
            rows = [b"x" * 20_000 for _ in range(40)]
            answers = driver.send("t", *rows, do="send_each")["answers"]
            assert outcomes(answers) == ["OK"] * 40
            driver.send("t", b"y")
            assert frame_count(site) >= 1
            with pytest.raises(ClientError) as forbidden:
                driver.send("other", b"x")
            assert forbidden.value.number == 52
            driver.call("consume", topic="t")
            found = driver.receive(41)
            assert len(lanes_of(site, consumers=True)) == 1
            acked = driver.call("ack", ids=[row["id"] for row in found])
            assert acked["statuses"] == ["OK"] * 41
            driver.call("close_consumer")
            driver.call("connect", url=url, ca=papers.ca, api_key="dq_1_2")
            driver.call("consume", topic="t")
            with pytest.raises(ClientError) as nobody:
                driver.receive(1)
            assert nobody.value.number == 51
        finally:
            driver.end()
