"""/metrics of a broker process that does real work: the numbers are what was done.

Covered: both formats, every message counter, lateness, histograms, restarts. Not covered: how
numbers are counted (tests/unit/test_metrics.py, tests/unit/broker/test_counting.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from dejaqueue.client import Client
from dejaqueue.clock import SystemClock
from dejaqueue.errors import TopicUnknown
from dejaqueue.http.catalogue import METRICS
from tests.crash.broker_process import BrokerProcess
from tests.integration.metrics_page import Page, fetch
from tests.patience import PATIENCE_SECONDS

TOPIC = {"topic": "work", "kind": "timeline"}


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "queue", tmp_path / "log")
    broker.start()
    yield broker
    broker.stop()


def work(client: Client) -> None:
    """50 of 60 are delivered: 45 acked at once, 2 after a nack, 3 die; 4 cancelled, 6 wait."""
    client.create_topic("work")
    client.create_topic("work.dead")
    rows = [{"payload": b"%d" % number, "delay": 0.02} for number in range(50)]
    client.send_batch("work", rows).ids  # noqa: B018 - raises if a row was refused
    later = client.send_batch("work", [{"payload": b"later", "delay": 1_800}] * 10).ids
    client.cancel("work", ids=later[:4])
    client.move("work", ids=later[4:6], due=SystemClock().now_ms() + 5_000_000)
    client.cancel("work", ids=later[:1])  # not found: refused
    with client.consume("work", max_messages=52, idle_ms=20_000) as consumer:
        for message in consumer:
            number = int(message.payload)
            if number < 3:
                message.nack(dead=True, reason="bad")
            elif number < 5 and message.attempt == 1:
                message.nack(delay=0)
            else:
                message.ack()


def test_numbers_are_what_was_done(process: BrokerProcess) -> None:
    with Client(process.url) as client:
        work(client)
        with client.consume("work.dead", max_messages=3, idle_ms=20_000) as letters:
            for letter in letters:
                letter.ack()
        with pytest.raises(TopicUnknown):
            client.stats("nowhere")
    page = Page.read(process.http_port)
    totals = {
        "enqueued": 60,
        "delivered": 52,
        "redelivered": 2,
        "acked": 47,
        "nacked": 5,
        "dead": 3,
        "buried": 3,
        "cancelled": 4,
        "moved": 2,
        "lease_expired": 0,
        "outlived": 0,
        "lease_ahead_misses": page.get("dejaq_lease_ahead_misses_total", **TOPIC),
    }
    found = {name: page.get(f"dejaq_{name}_total", **TOPIC) for name in totals}
    assert found == totals
    assert page.get("dejaq_acked_total", topic="work.dead") == 3
    assert page.get("dejaq_refused_total", op="cancel", status="NOT_FOUND", **TOPIC) == 1
    states = {
        state: page.get("dejaq_messages", state=state, **TOPIC)
        for state in ("scheduled", "leased", "dead", "staged", "staged_acks")
    }
    assert states == {"scheduled": 6, "leased": 0, "dead": 0, "staged": 0, "staged_acks": 0}
    assert page.get("dejaq_due_within", within="10m", **TOPIC) == 0
    assert page.get("dejaq_due_within", within="1h", **TOPIC) == 4
    assert page.get("dejaq_lateness_seconds_count", **TOPIC) == 52
    assert page.get("dejaq_ready_to_delivery_seconds_count", **TOPIC) == 52
    assert page.get("dejaq_flight_calls_total", method="do_action", status="not_found") >= 1
    assert page.get("dejaq_ready_state") == 1


def test_what_users_felt_is_known_when_their_consumer_is_closed(process: BrokerProcess) -> None:
    with Client(process.url) as client:
        work(client)
    page = Page.read(process.http_port)
    assert page.get("dejaq_felt_lateness_seconds_count", **TOPIC) == 52
    pushed = page.get("dejaq_lateness_seconds_sum", **TOPIC)
    felt = page.get("dejaq_felt_lateness_seconds_sum", **TOPIC)
    assert felt >= pushed - 52 * 0.005  # the client knows the clock within a few ms
    assert page.get("dejaq_consumers", **TOPIC) == 0


def test_histograms_add_up_and_nothing_is_below_zero(process: BrokerProcess) -> None:
    with Client(process.url) as client:
        work(client)
    page = Page.read_openmetrics(process.http_port)
    assert {name for name in page.types if name.startswith("dejaq_")} <= set(METRICS)
    assert all(page.types[name] == METRICS[name].type for name in page.types if name in METRICS)
    for (name, labels), value in page.samples.items():
        if "offset" not in name:
            assert value >= 0, (name, labels)
    histograms = [name for name, kind in page.types.items() if kind == "histogram"]
    assert "dejaq_lateness_seconds" in histograms
    assert len(histograms) >= 6
    for name in histograms:
        for labels, count in page.all(f"{name}_count").items():
            series = dict(labels)
            buckets = [
                (float(dict(having)["le"]), value)
                for having, value in page.all(f"{name}_bucket", **series).items()
            ]
            counts = [value for _, value in sorted(buckets)]
            assert counts == sorted(counts)
            assert counts[-1] == count > 0
            total = page.get(f"{name}_sum", **series)
            lower = sum(
                (after - before) * low
                for (low, before), (_, after) in zip(
                    sorted(buckets), sorted(buckets)[1:], strict=False
                )
            )
            assert total >= lower * 0.999


def test_counters_only_grow_and_a_restart_begins_at_zero(process: BrokerProcess) -> None:
    with Client(process.url) as client:
        work(client)
        before = Page.read(process.http_port).counters()
        client.send_batch("work", [{"payload": b"0"}] * 7)
        page = Page.read(process.http_port)
    after = page.counters()
    assert all(after[key] >= value for key, value in before.items())
    assert page.get("dejaq_enqueued_total", **TOPIC) == 67
    process.kill()
    process.start()
    with Client(process.url) as client:
        client.send("work", b"8")
    page = Page.read(process.http_port)
    assert page.get("dejaq_enqueued_total", **TOPIC) == 1
    assert page.get("dejaq_acked_total", **TOPIC) == 0
    assert page.get("dejaq_messages", state="scheduled", **TOPIC) == 14


def test_topics_that_nobody_uses_after_a_restart_are_looked_at(process: BrokerProcess) -> None:
    """Else nobody would know that consumers are needed."""
    with Client(process.url) as client:
        client.create_topic("work")
        client.send_batch("work", [{"payload": b"", "delay": 30}] * 5)
    process.stop()
    process.start()
    page = Page.read(process.http_port)
    assert page.get("dejaq_due_within", within="1m", **TOPIC) == 5
    assert page.get("dejaq_partitions", state="loaded", **TOPIC) == 1


def test_routes_are_counted_by_template(process: BrokerProcess) -> None:
    assert fetch(process.http_port, "/livez")[0] == 200
    assert fetch(process.http_port, "/no/such/path/1")[0] == 404
    assert fetch(process.http_port, "/no/such/path/2")[0] == 404
    page = Page.read(process.http_port)
    asked = {"method": "GET", "status": "200"}
    assert page.get("dejaq_http_requests_total", route="/livez", **asked) == 1
    assert page.get("dejaq_http_requests_total", route="unmatched", status="404") == 2
    assert page.get("dejaq_http_request_seconds_count", route="/livez") == 1
    assert page.get("dejaq_http_requests_open") == 1  # this one
    assert page.get("dejaq_http_connections_total", outcome="opened") == 4
    assert page.get("dejaq_http_connections_open") >= 1


def test_calls_past_the_router_are_counted_by_template(process: BrokerProcess) -> None:
    with Client(process.url) as client:
        client.create_topic("work")
    connection = HTTPConnection("127.0.0.1", process.http_port, timeout=PATIENCE_SECONDS)
    for path in ("/v1/topics/work/messages", "/v1/topics/none/messages"):
        body = json.dumps({"payload": "x"})
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        connection.getresponse().read()
    connection.close()
    page = Page.read(process.http_port)
    asked = {"method": "POST", "route": "/v1/topics/{topic}/messages"}
    statuses = {
        dict(labels)["status"]: count
        for labels, count in page.all("dejaq_http_requests_total", **asked).items()
    }
    assert statuses in ({"200": 1, "404": 1}, {"201": 1, "404": 1})
    assert page.get("dejaq_enqueued_total", **TOPIC) == 1
