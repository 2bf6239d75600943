"""Numbers of all topics, asked of any broker: each says its own, who is away is named."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import pytest

import dejaqueue
from dejaqueue.access.gate import Gate
from dejaqueue.access.key_ring import InMemory
from dejaqueue.broker.broker import Broker
from dejaqueue.cli.ports import free_port
from dejaqueue.client import BrokerStats
from dejaqueue.client.flight_transport import FlightTransport
from dejaqueue.clock import SteadyClock
from dejaqueue.errors import Unavailable
from dejaqueue.flight.gathering import _answers, stats_of_all
from dejaqueue.flight.server import FlightServer
from dejaqueue.flight.silence import AGAIN_SECONDS, ASK_SECONDS, Silence
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.integration.test_forwarding import THERE, AllElsewhere
from tests.patience import PATIENCE_SECONDS, until


@dataclass
class Many(AllElsewhere):
    """A broker that serves nothing: two others are there, and one of them does not answer."""

    def describe(self, topic: str) -> dict[str, Any]:
        nodes = {"a": "dejaq://127.0.0.1:1", "b": self.url, "c": f"dejaq://127.0.0.1:{free_port()}"}
        listed = [{"node": node, "url": url} for node, url in nodes.items()]
        return {"node": "a", "coordinator": "", "nodes": listed, "topics": []}


@dataclass
class Brokers:
    """One that serves the topic, and one that is asked."""

    far: Broker
    near: Broker
    url: str
    http_url: str
    shared: Many


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    settings = BrokerSettings(journal=JournalSettings(url="memory:"))
    with ExitStack() as stack:
        far = Broker(settings)
        far.start()
        stack.callback(far.stop)
        for name in (THERE, "hidden"):
            far.create_topic(Topic(name))
        served = FlightServer(far, gate=Gate(far.keys))
        served.start()
        stack.callback(served.stop)
        shared = Many(InMemory(), served.url)
        near = Broker(settings, node=shared)
        near.start()
        stack.callback(near.stop)
        gate = Gate(near.keys)
        flight = FlightServer(near, gate=gate)
        flight.start()
        stack.callback(flight.stop)
        gather = partial(stats_of_all, near, flight.forwarding)
        http = HttpServer(Service(near, gate, lambda: True, True, None, gather), "127.0.0.1", 0)
        http.start()
        stack.callback(http.stop)
        yield Brokers(far, near, flight.url, f"http://127.0.0.1:{http.port}", shared)


def timeless(topics: dict[str, Any]) -> dict[str, Any]:
    """Numbers of topics but for those of partitions, of which one is the time."""
    return {
        name: topic | {"partitions": len(topic["partitions"])} for name, topic in topics.items()
    }


@pytest.mark.parametrize("follows", [False, True])
def test_any_broker_tells_of_all_topics(brokers: Brokers, follows: bool) -> None:
    transport = FlightTransport(brokers.url, follows=follows)
    with dejaqueue.Client(transport=transport) as client:
        found = client.stats()
    assert timeless(found.to_dict()["topics"]) == timeless(
        BrokerStats.from_answer(brokers.far.call("stats")).to_dict()["topics"]
    )
    assert found.silent == ("c",)


def test_over_http_too(brokers: Brokers) -> None:
    for path in ("/v1/stats", "/stats"):
        found = httpx.get(brokers.http_url + path, timeout=20).json()
        assert (sorted(found["topics"]), found["silent"]) == (["hidden", THERE], ["c"])


def test_each_broker_shows_what_the_callers_own_key_may_see(brokers: Brokers) -> None:
    brokers.near.keys.create("root", ["admin:*"])
    secret = brokers.near.keys.create("one", [f"manage:{THERE}"])[1]
    brokers.far.keys.open(brokers.shared.documents)
    with dejaqueue.Client(transport=FlightTransport(brokers.url, secret)) as client:
        assert list(client.stats()["topics"]) == [THERE]
    headers = {"authorization": f"Bearer {secret}"}
    refused = httpx.get(f"{brokers.http_url}/v1/stats", headers=headers, timeout=20)
    assert refused.status_code == 403


def test_nobody_waits_long_twice_for_a_broker_that_hangs__and_it_comes_back_by_itself() -> None:
    silence, clock, hangs = Silence(), SteadyClock(), threading.Event()
    asked: list[str] = []

    def ask(url: str) -> dict[str, Any]:
        asked.append(url)
        if url == "hangs" and not hangs.wait(PATIENCE_SECONDS):
            raise Unavailable("nobody let it go")
        return {url: {}}

    silence.ended("hangs", answered=False)
    for _ in range(3):  # it would wait for good, if it waited
        assert _answers(["hangs", "b"], ask, silence, clock) == [None, {"b": {}}]
    assert sorted(asked) == ["b", "b", "b", "hangs"], "it is asked once, until it answers"
    hangs.set()
    until(lambda: silence.begins("hangs") == ASK_SECONDS)
    assert _answers(["hangs", "b"], ask, silence, clock) == [{"hangs": {}}, {"b": {}}]


def test_who_is_away_is_silent__who_refuses_is_not(brokers: Brokers) -> None:
    with dejaqueue.Client(transport=FlightTransport(brokers.url)) as client:
        client.stats()
        assert client.stats().silent == ("c",)
    silence = Silence()

    def away(url: str) -> dict[str, Any]:
        raise Unavailable("away")

    assert _answers(["a"], away, silence, SteadyClock()) == [None]
    assert silence.begins("a") == AGAIN_SECONDS
    assert _answers(["b"], lambda _url: None, silence, SteadyClock()) == [None]
    assert silence.begins("b") == ASK_SECONDS


def test_whom_quotas_refused_at_any_broker_is_told__with_the_broker(brokers: Brokers) -> None:
    for broker, name in ((brokers.near, "10.0.0.1"), (brokers.far, "10.0.0.2")):
        broker.quotas.of_address(name).refused("streams_max", 5, 6)
    with dejaqueue.Client(transport=FlightTransport(brokers.url)) as client:
        found = client.stats().refused_lately
    assert [(one.node, one.principal, one.count) for one in found] == [
        ("a", "10.0.0.1", 1),
        ("b", "10.0.0.2", 1),
    ]
