"""Requests to a broker that does not serve the topic: passed on over HTTP, and back.

Two real servers. Which topics are elsewhere is said by the test.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.access.key_ring import InMemory, KeyRing
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.catalogue import Catalogue
from dejaqueue.broker.topic.cluster_port import Disks
from dejaqueue.broker.topic.lone_catalogue import LoneCatalogue
from dejaqueue.clock import SystemClock, Wake
from dejaqueue.errors import DejaQError, Elsewhere
from dejaqueue.http import forwarding
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.journal.interface import JournalStore
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.cutting_proxy import CuttingProxy
from tests.patience import PATIENCE_SECONDS, until

CLOCK = SystemClock()
THERE = "there"
MESSAGES, LEASE, ACK = (f"/v1/topics/{THERE}/{name}" for name in ("messages", "lease", "ack"))


@dataclass
class AllElsewhere:
    """A broker that serves nothing: what it knows of the cluster."""

    documents: InMemory = field(default_factory=InMemory)
    http_url: str = ""
    clock_apart_us: int = 0
    disks: Disks = field(default_factory=Disks)
    store: MemoryStore = field(default_factory=MemoryStore)

    def catalogue(self, store: JournalStore, *_: object) -> Catalogue:
        topics = LoneCatalogue(self.store)
        topics.create(Topic(THERE), exist_ok=True)
        return topics

    def elsewhere(self, topic: str) -> DejaQError:
        return Elsewhere(f"topic {topic} is served by b", 50, "b", "", self.http_url)

    def refusal(self, topic: str, *, begins: bool = False) -> DejaQError | None:
        return self.elsewhere(topic)

    def fenced(self, topic: str) -> None: ...

    def placed(self, topic: str) -> None: ...

    def settled(self, topic: str) -> None: ...

    def act(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        raise self.elsewhere("")

    def describe(self, topic: str) -> dict[str, Any]:
        return {}

    def open_keys(self, keys: KeyRing) -> None:
        keys.open(self.documents)


@dataclass
class Pair:
    """`near` is connected to; `far` serves the topic; between them a network that may fail."""

    near: httpx.Client
    far: httpx.Client
    near_broker: Broker
    far_broker: Broker
    proxy: CuttingProxy
    shared: AllElsewhere


@pytest.fixture
def pair() -> Iterator[Pair]:
    settings = BrokerSettings(journal=JournalSettings(url="memory:"))
    far_broker = Broker(settings)
    far_broker.start()
    far_broker.create_topic(Topic(THERE))
    far = HttpServer(Service(far_broker, Gate(far_broker.keys), lambda: True), "127.0.0.1", 0)
    far.start()
    proxy = CuttingProxy(far.port)
    shared = AllElsewhere(http_url=f"http://127.0.0.1:{proxy.port}")
    near_broker = Broker(settings, node=shared)
    near_broker.start()
    gate = Gate(near_broker.keys)
    near = HttpServer(Service(near_broker, gate, lambda: True, forwards=True), "127.0.0.1", 0)
    near.start()
    with (
        httpx.Client(base_url=f"http://127.0.0.1:{near.port}", timeout=PATIENCE_SECONDS) as to_near,
        httpx.Client(base_url=f"http://127.0.0.1:{far.port}", timeout=PATIENCE_SECONDS) as to_far,
    ):
        yield Pair(to_near, to_far, near_broker, far_broker, proxy, shared)
    near_broker.stop()
    near.stop()
    proxy.close()
    far_broker.stop()
    far.stop()


def test_a_message_goes_there_and_comes_back(pair: Pair) -> None:
    sent = pair.near.post(MESSAGES, json={"payload": "one"})
    assert (sent.status_code, sent.json()["status"]) == (201, "OK")
    leased = pair.near.post(LEASE, json={"max": 10, "wait_ms": 10_000}).json()["messages"]
    assert [message["payload"] for message in leased] == ["one"]
    mine = [{"id": message["id"], "attempt": message["attempt"]} for message in leased]
    acked = pair.near.post(ACK, json={"messages": mine})
    assert acked.status_code == 200
    assert pair.far_broker.call("stats", {"topic": THERE})["ready"] == 0
    assert pair.near.get(f"/v1/topics/{THERE}/stats").json() == (
        pair.far.get(f"/v1/topics/{THERE}/stats").json()
    )


def test_large_bodies_go_through_both_ways(pair: Pair) -> None:
    texts = [f"{n:06}" + "x" * 50_000 for n in range(60)]
    sent = pair.near.post(MESSAGES, json={"messages": [{"payload": text} for text in texts]})
    assert sent.status_code in {200, 201}

    def pieces() -> Iterator[bytes]:  # without a length, in pieces
        yield b'{"payload": "'
        yield b"y" * 100_000
        yield b'"}'

    headers = {"content-type": "application/json"}
    assert pair.near.post(MESSAGES, content=pieces(), headers=headers).status_code == 201
    got: list[str] = []
    while len(got) < 61:
        leased = pair.near.post(LEASE, json={"max": 100, "wait_ms": 10_000, "auto_ack": True})
        got.extend(message["payload"] for message in leased.json()["messages"])
    assert sorted(got) == sorted([*texts, "y" * 100_000])


def test_what_the_other_broker_refuses_comes_back_in_its_words(pair: Pair) -> None:
    for body in ({"payload": 7}, {"payload": "x", "due": "tomorrow"}):
        near, far = pair.near.post(MESSAGES, json=body), pair.far.post(MESSAGES, json=body)
        assert near.status_code == far.status_code >= 400
        assert near.json() == far.json()
        assert near.headers["content-type"] == far.headers["content-type"]
    pair.far_broker.delete_topic(THERE)
    assert pair.near.post(MESSAGES, json={"payload": "x"}).status_code == 404


def test_the_callers_own_key_goes_along(pair: Pair) -> None:
    keys = pair.near_broker.keys
    keys.create("root", ["admin:*"])
    key, secret = keys.create("sender", [f"produce:{THERE}"])
    pair.far_broker.keys.open(pair.shared.documents)
    headers = {"authorization": f"Bearer {secret}"}
    assert pair.near.post(MESSAGES, json={"payload": "1"}, headers=headers).status_code == 201
    assert pair.near.post(LEASE, json={"max": 1}, headers=headers).status_code == 403
    assert pair.near.post(MESSAGES, json={"payload": "1"}).status_code == 401
    pair.far_broker.keys.revoke(key.id)  # on the other broker alone
    assert pair.near.post(MESSAGES, json={"payload": "1"}, headers=headers).status_code == 401


def test_a_request_is_passed_on_once_and_not_for_who_goes_himself(pair: Pair) -> None:
    told = pair.near.post(MESSAGES, json={"payload": "1"}, headers={"x-dejaq-follows": "1"})
    assert told.status_code == 503
    assert told.json()["title"] == "Elsewhere"
    assert told.json()["http_url"] == pair.shared.http_url
    pair.shared.http_url = str(pair.near.base_url)  # each would pass it on to the other for ever
    assert pair.near.post(MESSAGES, json={"payload": "1"}).json()["title"] == "Elsewhere"


def test_a_broker_that_is_gone_is_said_and_comes_back(pair: Pair) -> None:
    pair.proxy.cut()
    gone = pair.near.post(MESSAGES, json={"payload": "1"})
    assert (gone.status_code, gone.json()["title"]) == (503, "Unavailable")
    pair.proxy.mend()
    assert pair.near.post(MESSAGES, json={"payload": "1"}).status_code == 201
    pair.proxy.lose_answers()
    lost = pair.near.post(MESSAGES, json={"payload": "2"})
    assert lost.status_code == 503
    assert "the outcome is unknown" in lost.json()["detail"]


def test_what_may_be_made_twice_leaves_an_owner_that_says_nothing__what_may_not_waits(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SILENT_SECONDS_MAX", "ANSWER_SECONDS_MAX", "AGAIN_SECONDS_MAX"):
        monkeypatch.setattr(forwarding, name, 0.3)
    stats, named = f"/v1/topics/{THERE}/stats", {"idempotency-key": "once"}
    pair.proxy.hang()
    for _ in range(2):
        looked = pair.near.get(stats)
        assert (looked.status_code, looked.json()["title"]) == (503, "Unavailable")
        assert f"the broker at {pair.shared.http_url} does not answer" in looked.json()["detail"]
    sent = pair.near.post(MESSAGES, json={"payload": "1"}, headers=named)
    assert (sent.status_code, sent.json()["title"]) == (503, "Unavailable")
    with pytest.raises(httpx.ReadTimeout):
        pair.near.post(MESSAGES, json={"payload": "2"}, timeout=2)
    pair.proxy.mend()
    monkeypatch.undo()
    until(lambda: pair.near.get(stats).status_code == 200, "it is asked again")
    assert pair.near.post(MESSAGES, json={"payload": "1"}, headers=named).status_code == 201


def test_an_owner_that_takes_its_time_is_waited_for(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "SILENT_SECONDS_MAX", 0.05)
    pair.proxy.delay(300)
    assert pair.near.get(f"/v1/topics/{THERE}/stats").status_code == 200


def await_credit(broker: Broker, credit: int) -> None:
    """Return when the consumer that requests share waits for so many messages."""
    until = CLOCK.now_us() + PATIENCE_SECONDS * 1_000_000
    while [consumer["credit"] for consumer in broker.consumers(THERE)] != [credit]:
        assert CLOCK.now_us() < until, broker.consumers(THERE)
        CLOCK.wait_until(CLOCK.now_us() + 5_000, Wake())


def test_who_goes_away_leases_nothing_there_either(pair: Pair) -> None:
    body = json.dumps({"max": 1, "wait_ms": 60_000}).encode()
    head = f"POST {LEASE} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", pair.near.base_url.port or 0)) as impatient:
        impatient.sendall(head.encode() + body)
        await_credit(pair.far_broker, 1)
    await_credit(pair.far_broker, 0)
    assert pair.near.post(MESSAGES, json={"payload": "one"}).status_code == 201
    leased = pair.near.post(LEASE, json={"max": 1, "wait_ms": 10_000}).json()["messages"]
    assert [message["payload"] for message in leased] == ["one"]


def test_many_at_once(pair: Pair) -> None:
    wrong: list[object] = []

    def send(name: int) -> None:
        with httpx.Client(base_url=pair.near.base_url, timeout=PATIENCE_SECONDS) as client:
            for n in range(20):
                answer = client.post(MESSAGES, json={"payload": f"{name}-{n}"})
                if answer.status_code != 201:
                    wrong.append(answer.text)

    threads = [threading.Thread(target=send, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert wrong == []
    assert pair.far_broker.call("stats", {"topic": THERE})["ready"] == 160
