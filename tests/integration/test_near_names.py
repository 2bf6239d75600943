"""A topic's name with a slip in it: whoever names the topic by any door is told what was meant, of
what the caller may see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import httpx
import pytest

import dejaqueue
from dejaqueue import Client
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import TopicUnknown
from dejaqueue.model import Topic
from tests.integration.access_fixture import Site, running

CALLS: dict[str, Callable[[Client, str], object]] = {
    "send": lambda client, name: client.send(name, b"x"),
    "send_batch": lambda client, name: client.send_batch(name, [b"x"]).raise_for_status(),
    "producer": lambda client, name: _send_by_producer(client, name),
    "consume": lambda client, name: _first(client.consume(name, idle_ms=5_000)),
    "consume_batches": lambda client, name: _first(client.consume_batches(name, idle_ms=5_000)),
    "describe": lambda client, name: client.topic(name),
    "stats": lambda client, name: client.stats(name),
    "peek": lambda client, name: client.peek(name),
    "cancel": lambda client, name: client.cancel(name, ids=[1]).raise_for_status(),
}


def _send_by_producer(client: Client, name: str) -> None:
    with client.producer(name) as producer:
        producer.send_batch([b"x"]).result().raise_for_status()


def _first(consumer: object) -> None:
    with closing(consumer):  # type: ignore[type-var]
        next(iter(consumer))  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running() as found:
        _make(found.broker)
        make = found.broker.keys.create
        found.keys["all"] = make("root", ["admin:*", "manage:*", "produce:*", "consume:*"])[1]
        yield found


def _make(broker: Broker) -> None:
    for name in ("orders", "invoice-1", "secretss"):
        broker.create_topic(Topic(name))
    broker.create_topic(Topic("letters", subscriptions={"billing": {}}))


@pytest.mark.parametrize("door", ["wire", "in the process"])
@pytest.mark.parametrize("call", CALLS)
def test_the_name_that_was_meant_is_told(site: Site, door: str, call: str) -> None:
    if door == "wire":
        client = Client(site.flight.url, api_key=site.keys["all"])
    else:
        client = dejaqueue.open("memory:")
        for name in ("orders", "invoice-1"):
            client.create_topic(name)
    with client, pytest.raises(TopicUnknown, match=r"did you mean orders\?"):
        CALLS[call](client, "order")


@pytest.mark.parametrize("path", ["/v1/topics/{}", "/v1/topics/{}/stats"])
def test_the_name_that_was_meant_is_told_over_http(site: Site, path: str) -> None:
    found = _get(site, path.format("order"), "all")
    assert found.status_code == 404
    assert "(did you mean orders?)" in found.json()["detail"]


def test_a_subscription_has_a_near_name_too(site: Site) -> None:
    client = Client(site.flight.url, api_key=site.keys["all"])
    with client, pytest.raises(TopicUnknown, match=r"did you mean letters@billing\?"):
        _first(client.consume("letters@biling", idle_ms=5_000))


def test_a_name_that_is_near_to_none_is_told_alone(site: Site) -> None:
    client = Client(site.flight.url, api_key=site.keys["all"])
    with client, pytest.raises(TopicUnknown) as found:
        client.stats("xyz")
    assert "did you mean" not in str(found.value)


def test_a_name_that_the_caller_may_not_see_is_not_told(site: Site) -> None:
    key = site.broker.keys.create("near", ["manage:secrets", "produce:secrets", "consume:secrets"])
    site.keys["near"] = key[1]
    for call in ("send", "send_batch", "consume", "describe", "stats", "peek"):
        client = Client(site.flight.url, api_key=key[1])
        with client, pytest.raises(TopicUnknown) as found:
            CALLS[call](client, "secrets")
        assert "did you mean" not in str(found.value), call
    told = _get(site, "/v1/topics/secrets", "near")
    assert told.status_code == 404
    assert "secretss" not in told.text
    seen = _get(site, "/v1/topics/secrets", "all")
    assert "secretss" in seen.text  # who may see it is told, so the test can fail


def _get(site: Site, path: str, key: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {site.keys[key]}"}
    return httpx.get(f"{site.http_url}{path}", headers=headers)
