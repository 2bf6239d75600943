"""Covers: what the Go client sends and takes by express lanes: chosen by itself, as safe as Flight.

Not covered: what both ways do alike (test_conformance.py, which has the client go by both), and the
broker's side (tests/integration/test_express_lane.py).
"""

from __future__ import annotations

import socket
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dejaqueue import Client
from dejaqueue.http.lane import Lane
from dejaqueue.testing.cutting_proxy import CuttingProxy
from tests.clients.drivers import ClientError, Driver
from tests.crash.broker_process import BrokerProcess
from tests.integration.access_fixture import Site, give_keys, make_topics, running
from tests.integration.papers import Papers, server_tls
from tests.patience import until

MESSAGES = 2_000
CUTS = 5
LEASE_MS = 6_000


@pytest.fixture
def way() -> tuple[str, bool]:
    """Only this client has lanes."""
    return "go", False


def open_lanes(site: Site) -> list[Lane]:
    lanes = site.http.connections.lanes
    assert lanes is not None
    return list(lanes.open)


def senders(site: Site) -> int:
    return sum(one._consumer is None for one in open_lanes(site))


def consumers(site: Site) -> int:
    return sum(one._consumer is not None for one in open_lanes(site))


def at_part(ours: Client, count: str, part: int) -> None:
    """Wait until so many of the messages are there that it is the middle."""
    least = part * MESSAGES // (CUTS + 2)
    until(lambda: ours.stats("t")[count] >= least, f"{least} are {count}")


def rows_of(*payloads: bytes, **fields: Any) -> list[dict[str, Any]]:
    return [{"payload": b64encode(payload).decode()} | fields for payload in payloads]


@contextmanager
def proxied(site: Site) -> Iterator[CuttingProxy]:
    """The lanes of a broker, and nothing else of it, through a proxy."""
    place = site.broker.lane
    assert place is not None
    with CuttingProxy(place.port) as proxy:
        site.broker.lane = replace(place, port=proxy.port)
        yield proxy


def test_single_messages_and_consumers_go_by_lanes_and_batches_by_flight(
    client: Driver, site: Site
) -> None:
    client.send("t", b"a", b"b")
    client.send("t", b"x" * 100_000)
    assert (senders(site), consumers(site)) == (0, 0)
    client.send("t", b"c")
    client.send("t", b"d", key="k", group="g", tags=["t"], headers={"h": "v"})
    assert (senders(site), consumers(site)) == (1, 0)
    client.call("consume", topic="t")
    rows = client.receive(5)
    assert {len(row["payload"]) for row in rows} == {1, 100_000}
    assert (senders(site), consumers(site)) == (1, 1)
    client.call("close_consumer")
    client.call("close")
    until(lambda: not open_lanes(site), "the lanes are closed")


def test_who_wants_flight_alone_has_no_lane(site: Site, tmp_path: Path) -> None:
    driver = Driver("go", tmp_path / "client.log", flight_only=True)
    try:
        driver.call("connect", url=site.flight.url)
        driver.call("create_topic", topic="t")
        driver.send("t", b"a")
        driver.call("consume", topic="t")
        assert [row["payload"] for row in driver.receive(1)] == [b"a"]
        assert open_lanes(site) == []
    finally:
        driver.end()


def test_what_is_sent_together_is_refused_alone(client: Driver, site: Site, ours: Client) -> None:
    first = client.send("t", b"first", key="taken")
    rows = rows_of(*[b"%d" % n for n in range(200)])
    rows += rows_of(b"bad", key="k" * 257) + rows_of(b"again", key="taken")
    rows += rows_of(b"late", due_ms=1_700_000_000) + rows_of(b"rich", group="g", tags=["a"])
    answers = client.call("send_each", topic="t", rows=rows)["answers"]
    assert [one["statuses"] for one in answers[:200]] == [["OK"]] * 200
    bad, again, late, rich = answers[200:]
    assert (bad["number"], late["number"]) == (10, 10)
    assert (again["statuses"], again["ids"]) == (["DUPLICATE"], first["ids"])
    assert rich["statuses"] == ["OK"]
    ids = {one["ids"][0] for one in answers if "ids" in one}
    assert len(ids) == 202
    assert ours.stats("t")["enqueued"] == 202
    peeked = {str(row["id"]): row["payload"] for row in ours.peek("t", limit=1_000).to_pylist()}
    assert [peeked[one["ids"][0]] for one in answers[:200]] == [b"%d" % n for n in range(200)]
    assert senders(site) == 1


def test_a_full_backlog_is_told_to_each_that_it_does_not_take(
    alone: Driver, site: Site, ours: Client
) -> None:
    alone.call("connect", url=site.flight.url, retry_ms=2_000)
    alone.call("create_topic", topic="small", settings={"max_backlog_count": 3})
    answers = alone.call("send_each", topic="small", rows=rows_of(*[b"x"] * 10))["answers"]
    # What the broker takes together it refuses together: not all that there is room for need be in.
    taken = sum(one.get("statuses") == ["OK"] for one in answers)
    refused = sum(one.get("number") == 31 for one in answers)
    # Of one that was on its way again when time was up it is not known, and told.
    unknown = sum(one.get("number") == 32 for one in answers)
    assert taken + refused + unknown == 10
    assert refused > 0
    enqueued = ours.stats("small")["enqueued"]
    assert taken <= enqueued <= min(3, taken + unknown)
    for left in range(3 - enqueued, -1, -1):  # what there is room for is taken, one by one
        [answer] = alone.call("send_each", topic="small", rows=rows_of(b"y"))["answers"]
        assert answer.get("statuses" if left else "number") == (["OK"] if left else 31), answer


def test_acks_that_nobody_waits_for_are_there_when_flush_or_close_returns(
    client: Driver, ours: Client
) -> None:
    client.call("flood", topic="t", batches=50)
    client.call("consume", topic="t", credit=100)
    assert len(client.call("take", count=300)["payloads"]) == 300
    client.call("flush")
    assert ours.stats("t")["acked"] == 300
    assert len(client.call("take", count=100)["payloads"]) == 100
    client.call("close_consumer")
    stats = ours.stats("t")
    assert (stats["acked"], stats["leased"], stats["ready"]) == (400, 0, 100)


def test_an_ack_that_came_too_late_is_told_later(client: Driver) -> None:
    client.send("t", b"a", b"b")
    client.call("consume", topic="t")
    ids = [row["id"] for row in client.receive(2)]
    client.call("ack", ids=ids)
    client.call("ack_async", ids=ids[:1])
    with pytest.raises(ClientError) as lost:
        client.call("flush")
    assert lost.value.number == 20
    client.call("flush")  # it was told
    client.call("ack_async", ids=ids[1:])
    with pytest.raises(ClientError) as closed:
        client.call("close_consumer")
    assert closed.value.number == 20


def test_a_lane_that_is_cut_loses_nothing_and_sends_nothing_twice(
    client: Driver, site: Site, ours: Client
) -> None:
    with proxied(site) as proxy:
        client.begin("flood", topic="t", batches=MESSAGES // 10, single=True, wait_ms=10)
        for cut in range(1, CUTS + 1):
            at_part(ours, "enqueued", cut)
            proxy.cut_next("answer" if cut % 2 else "request")
        assert client.answer()["sent"] == MESSAGES
        until(lambda: senders(site) == 1, "it is opened anew")
    found = [row["payload"] for row in ours.peek("t", limit=10_000).to_pylist()]
    assert sorted(found, key=int) == [b"%d" % n for n in range(MESSAGES)]


def test_a_consumers_lane_that_is_cut_goes_on_where_it_was(
    client: Driver, site: Site, ours: Client
) -> None:
    client.call("flood", topic="t", batches=MESSAGES // 10)
    with proxied(site) as proxy:
        # What was delivered and did not arrive comes again when its lease is over.
        client.call("consume", topic="t", lease_ms=LEASE_MS, credit=200)
        client.begin("take", count=MESSAGES, wait_ms=1)
        for cut in range(1, CUTS + 1):
            at_part(ours, "acked", cut)
            proxy.cut_next("answer" if cut % 2 else "request")
        payloads = client.answer()["payloads"]
        client.call("flush")  # acks whose answer was lost have been sent again
        until(lambda: consumers(site) == 1, "it is opened anew")
    assert sorted(payloads, key=int) == [str(n) for n in range(MESSAGES)]
    stats = ours.stats("t")
    assert (stats["acked"], stats["leased"], stats["ready"]) == (MESSAGES, 0, 0)


def test_closing_gives_back_what_came_by_an_earlier_lane(
    client: Driver, site: Site, ours: Client
) -> None:
    client.send("t", b"a", b"b")
    with proxied(site) as proxy:
        client.call("consume", topic="t", lease_ms=600_000)
        client.receive(1)
        (before,) = open_lanes(site)
        proxy.cut_next("request")  # the next ping
        until(lambda: open_lanes(site) not in ([], [before]), "it is opened anew")
        client.send("t", b"c", b"d")
        client.receive(2)
        client.call("close_consumer")
    found = sorted(message.payload for message in ours.consume("t", max_messages=4))
    assert found == [b"a", b"b", b"c", b"d"]


def test_a_lane_out_of_reach_leaves_all_with_flight(client: Driver, site: Site) -> None:
    assert site.broker.lane is not None
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    site.broker.lane = replace(site.broker.lane, port=port)
    client.send("t", b"a")
    client.call("consume", topic="t")
    assert [row["payload"] for row in client.receive(1)] == [b"a"]
    assert open_lanes(site) == []


def test_another_brokers_lane_refuses__and_all_goes_by_flight(client: Driver, site: Site) -> None:
    with running() as other:
        assert site.broker.lane is not None
        assert other.broker.lane is not None
        site.broker.lane = replace(site.broker.lane, port=other.broker.lane.port)
        client.send("t", b"a")
        client.call("consume", topic="t")
        assert [row["payload"] for row in client.receive(1)] == [b"a"]
        assert open_lanes(other) == []


def test_to_a_broker_of_before_what_has_fields_goes_by_flight(client: Driver, site: Site) -> None:
    assert site.broker.lane is not None
    site.broker.lane = replace(site.broker.lane, has_fields=False)
    assert client.send("t", b"a")["statuses"] == ["OK"]
    assert senders(site) == 1
    assert client.send("t", b"b", key="k")["statuses"] == ["OK"]
    assert client.send("t", b"c", key="k")["statuses"] == ["DUPLICATE"]


def test_a_frame_that_a_lane_finds_too_long_goes_by_flight(tmp_path: Path) -> None:
    with ExitStack() as ends:
        broker = BrokerProcess(
            tmp_path / "data", tmp_path / "broker.log", server__http_body_bytes_max=2_048
        )
        broker.start()
        ends.callback(broker.kill)
        driver = Driver("go", tmp_path / "client.log")
        ends.callback(driver.end)
        driver.call("connect", url=broker.url)
        driver.call("create_topic", topic="t")
        assert driver.send("t", b"small")["statuses"] == ["OK"]
        assert driver.send("t", b"x" * 10_000)["statuses"] == ["OK"]
        assert driver.call("stats", topic="t")["enqueued"] == 2


def test_lanes_have_the_keys_and_the_certificates_of_flight(alone: Driver, tmp_path: Path) -> None:
    papers = Papers(tmp_path)
    with running(tls=server_tls(papers.broker)) as secured:
        make_topics(secured.broker)
        give_keys(secured)
        url = f"dejaqs://localhost:{secured.flight.port}"
        known = secured.keys["manage mine"]
        alone.call("connect", url=url, ca=papers.ca, api_key=secured.keys["produce mine"])
        assert alone.send("mine", b"a")["statuses"] == ["OK"]
        assert senders(secured) == 1
        with pytest.raises(ClientError) as forbidden:
            alone.send("theirs", b"a")
        assert forbidden.value.number == 52
        alone.call("connect", url=url, ca=papers.ca, api_key=secured.keys["consume mine"])
        alone.call("consume", topic="mine")
        assert [row["payload"] for row in alone.receive(1)] == [b"a"]
        assert consumers(secured) == 1
        alone.call("close_consumer")
        alone.call("connect", url=url, ca=papers.other_ca, api_key=known, retry_ms=300)
        with pytest.raises(ClientError) as stranger:
            alone.send("mine", b"a")
        assert stranger.value.number == 32
