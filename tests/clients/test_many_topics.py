"""Covers: one client that sends to a thousand topics, one after the other and again: each message
is there once, and neither the broker's threads nor its descriptors grow with the topics.

Not covered: what topics that nobody uses cost (`python -m bench topics`).
"""

from __future__ import annotations

import os
import random
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dejaqueue import Client
from tests.clients.drivers import Driver
from tests.clients.light_faces import light_face
from tests.clients.own_driver import OwnDriver
from tests.crash.broker_process import BrokerProcess

TOPICS = [f"t{number}" for number in range(1_000)]
AGAIN = random.Random(17).sample(TOPICS, 300)
WAYS = [("own", False), ("go", True), ("java", True)]
"""By Flight, where each topic has a stream; a lane is one connection for all."""
GROWTH_MAX = 100
"""More threads, or descriptors, of the broker than it had before."""

pytestmark = pytest.mark.slow


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", tmp_path / "broker.log")
    process.start()
    with Client(process.url) as client, ThreadPoolExecutor(16) as makers:
        assert len(list(makers.map(client.create_topic, TOPICS))) == len(TOPICS)
    try:
        yield process
    finally:
        process.kill()


def held_by(broker: BrokerProcess) -> tuple[int, int]:
    """The broker's threads and descriptors."""
    here = Path(f"/proc/{broker.pid}")
    return len(os.listdir(here / "task")), len(os.listdir(here / "fd"))


def check(broker: BrokerProcess, before: tuple[int, int]) -> None:
    grown = [now - then for now, then in zip(held_by(broker), before, strict=True)]
    with Client(broker.url) as client:
        counts = {name: one.scheduled for name, one in client.stats().topics.items()}
    assert {topic: counts[topic] for topic in TOPICS} == {t: 1 + (t in AGAIN) for t in TOPICS}
    assert max(grown) < GROWTH_MAX


@pytest.mark.parametrize(("language", "flight_only"), WAYS)
def test_a_client_sends_to_a_thousand_topics(
    broker: BrokerProcess, tmp_path: Path, language: str, flight_only: bool
) -> None:
    client: Driver | OwnDriver = OwnDriver()
    if language != "own":
        client = Driver(language, tmp_path / "client.log", flight_only=flight_only)
    try:
        client.call("connect", url=broker.url, retry_ms=60_000)
        before = held_by(broker)
        for number, topic in enumerate([*TOPICS, *AGAIN]):
            rows = [{"payload": b64encode(b"%d" % number).decode()}]
            assert client.call("send", topic=topic, rows=rows)["statuses"] == ["OK"]
        check(broker, before)
    finally:
        client.end()


def test_a_light_client_sends_to_a_thousand_topics(broker: BrokerProcess) -> None:
    with light_face("light", f"http://127.0.0.1:{broker.http_port}") as client:
        before = held_by(broker)
        for topic in [*TOPICS, *AGAIN]:
            client.send(topic, b"x")
        check(broker, before)
