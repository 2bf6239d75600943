"""Covers: every client on three brokers, and on several processes of one, that speak TLS and want
API keys: all operations; keys that are made and revoked while they run.

Not covered: what a key may do (tests/integration); certificates that are no good
(test_conformance.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from dejaqueue import Tls
from dev.services import registry
from tests.clients.conftest import LANGUAGES
from tests.clients.drivers import ClientError, Drivers, Speaker
from tests.clients.operations import RETRY_MS
from tests.clients.own_driver import OwnDriver
from tests.clients.places import BrokersOnRedis, Place, Processes
from tests.clients.stages import OWN, staged, topics_of
from tests.integration.papers import Papers
from tests.patience import until

pytestmark = [pytest.mark.crash]

UNAUTHENTICATED = 51


class Secured:
    """Brokers with certificates, and their papers; the first key is ours."""

    def __init__(self, place: Place, papers: Papers) -> None:
        self.place, self.papers = place, papers
        place.api_key = self.make_key("ours")

    def make_key(self, name: str) -> str:
        """A key that may do everything."""
        with self.place.client() as client:
            return str(client.create_key(name, ["admin:*"])["api_key"])


@pytest.fixture(scope="module", params=["brokers", "processes"])
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    papers = Papers(tmp_path_factory.mktemp("papers"))
    certificate, key = papers.broker
    settings = {
        "server__tls_certificate": certificate,
        "server__tls_key": key,
        "cluster__tls_ca": papers.ca,
    }
    folder, tls = tmp_path_factory.mktemp("place"), Tls(ca=papers.ca)
    with ExitStack() as stack:
        if request.param == "processes":
            place: Place = Processes(folder, tls, **settings)
        else:
            if lacking := registry.missing("redis"):
                pytest.skip(lacking)
            server = registry.start("redis")
            stack.callback(server.stop)
            place = BrokersOnRedis(folder, server.url, tls, **settings)
        yield Secured(stack.enter_context(place), papers)


def test_each_operation_is_done_with_tls_and_a_key(
    secured: Secured, programs: dict[str, Drivers]
) -> None:
    secret: dict[str, Any] = {
        "ca": secured.papers.ca,
        "api_key": secured.make_key("everybody"),
    }
    with staged(secured.place, secured.place.nodes[1], programs, "follows", **secret) as stage:
        stage.each(lambda one: one.begin())
        stage.each(lambda one: one.end())
        with secured.place.client() as ours:
            stage.each(lambda one: one.check(ours))
        stage.each(lambda one: one.close())


@pytest.mark.parametrize("language", [OWN, *LANGUAGES])
def test_a_key_that_is_revoked_ends_what_goes_on__and_another_one_goes_on(
    secured: Secured, programs: dict[str, Drivers], language: str
) -> None:
    client: Speaker | OwnDriver = OwnDriver() if language == OWN else programs[language].make()
    name = f"revoked-{language}"
    secret = {"ca": secured.papers.ca, "retry_ms": RETRY_MS, "url": secured.place.url}
    topics = topics_of(secured.place, f"{name}-{os.urandom(4).hex()}")
    topic = next(found for found, owner in topics if owner != secured.place.entry)
    client.call("connect", api_key=secured.make_key(name), **secret)
    client.call("consume", topic=topic, credit=10_000)
    client.begin("flood", topic=topic, batches=400, wait_ms=20, mixed=True, keyed=True)
    with secured.place.client() as ours:
        until(lambda: ours.stats(topic)["enqueued"] > 100, "it is in the middle")
        ours.revoke_key(name)
        with pytest.raises(ClientError) as sending:
            client.answer()
        assert sending.value.number == UNAUTHENTICATED
        with pytest.raises(ClientError) as again:
            client.call("send", topic=topic, rows=[{"payload": "", "key": "late"}])
        assert again.value.number == UNAUTHENTICATED
        sent = ours.stats(topic)["enqueued"]
        client.call("connect", api_key=secured.make_key(f"{name}-again"), **secret)
        client.call("send", topic=topic, rows=[{"payload": "", "key": "on"}])
        assert ours.stats(topic)["enqueued"] == sent + 1
    client.call("close")
