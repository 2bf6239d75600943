"""Bindings: what one process binds another finds; what a dead process left is removed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dejaqueue.celery import routes
from dejaqueue.celery.link import LocalLink
from dejaqueue.celery.routes import Route, Routes
from dejaqueue.client import Client
from dejaqueue.errors import TopicUnknown
from tests.patience import until

LASTING = Route("orders", "eu", "orders-eu", True)
PASSING = Route("control", "", "worker.pidbox", False)


@pytest.fixture
def pair(url: str, request: pytest.FixtureRequest) -> Iterator[tuple[Routes, Routes]]:
    link = LocalLink(url, {})
    made = Routes(link, request.node.name[:80]), Routes(link, request.node.name[:80])

    yield made
    for one in made:
        one.close()
    link.close()


def test_a_binding_is_found_by_others(pair: tuple[Routes, Routes]) -> None:
    here, there = pair
    assert there.of("orders", 0) == []
    here.add(LASTING)
    here.add(LASTING)
    here.add(PASSING)
    assert there.of("orders", 0) == [LASTING]
    assert there.lasting_queues() == {"orders-eu"}
    assert there.is_lasting("orders-eu")
    assert not there.is_lasting("worker.pidbox")


def test_what_is_known_is_asked_again_after_a_while(pair: tuple[Routes, Routes]) -> None:
    here, there = pair
    assert there.of("orders", 0) == []
    here.add(LASTING)
    assert there.of("orders", 10**9) == []
    until(lambda: there.of("orders") == [LASTING], "the binding")


def test_a_binding_can_be_taken_away(pair: tuple[Routes, Routes]) -> None:
    here, there = pair
    here.add(LASTING)
    here.add(Route("orders", "us", "orders-eu", True))
    here.unbind(LASTING)
    assert [route.routing_key for route in there.of("orders", 0)] == ["us"]
    there.remove("orders-eu")
    assert here.of("orders", 0) == []


def test_what_a_dead_process_left_is_removed_with_its_topic(
    pair: tuple[Routes, Routes], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "LIFE_MS", 50)
    here, there = pair
    client.create_topic("worker.pidbox")
    here.add(PASSING)
    until(lambda: there.of("control", 0) == [], "the binding to end")
    with pytest.raises(TopicUnknown, match="existing topic"):
        client.topic("worker.pidbox")


def test_a_binding_lasts_while_its_queue_is_consumed(
    pair: tuple[Routes, Routes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "LIFE_MS", 600)
    here, there = pair
    here.add(PASSING)
    here.keep(PASSING.queue)
    renewals: list[int] = []
    renew = LocalLink.renew

    def counted(link: LocalLink, topic: str, keys: list[str], life_ms: int) -> list[bool]:
        renewals.append(life_ms)
        return renew(link, topic, keys, life_ms)

    monkeypatch.setattr(LocalLink, "renew", counted)
    until(lambda: len(renewals) >= 6, "six renewals")
    assert there.of("control", 0) == [PASSING]
    here.release(PASSING.queue)
    until(lambda: there.of("control", 0) == [], "the binding to end")
