"""Covers: a broker that is paused (SIGSTOP), and the only one that the light client knows: requests
that may be made twice say who is silent, the next ones soon, and go on when it does; a broker that
is merely slow is waited for.

Not covered: clients that speak Flight (test_silent_broker.py, tests/integration).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dejaqueue_client._aio.connection
import dejaqueue_client._aio.waiting
import dejaqueue_client._sync.connection
from dejaqueue_client import Unavailable
from tests.clients.light_faces import light_face
from tests.crash.broker_process import BrokerProcess, pausable

CONNECTIONS = {
    "light": dejaqueue_client._sync.connection,
    "light-async": dejaqueue_client._aio.connection,
}


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request waits for messages for a second, not for twenty."""
    monkeypatch.setattr(dejaqueue_client._aio.waiting, "POLL_MS", 1_000)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with pausable(tmp_path) as process:
        yield process


def seconds_of_refusal(url: str, call: Callable[[], object]) -> float:
    began = time.monotonic()
    with pytest.raises(Unavailable, match=f"the broker at {url} does not answer"):
        call()
    return time.monotonic() - began


@pytest.mark.parametrize("kind", CONNECTIONS)
def test_a_request_says_who_is_silent__the_next_one_soon__until_it_is_not(
    broker: BrokerProcess, kind: str
) -> None:
    url = f"http://127.0.0.1:{broker.http_port}"
    with light_face(kind, url, retry_ms_max=0) as client:
        client.create_topic("t", lease_ms=600_000)
        client.send("t", "before")
        consumer = client.consume("t")
        assert next(consumer).payload == b"before"
        os.kill(broker.pid, signal.SIGSTOP)
        asked: list[Callable[[], object]] = [
            client.stats,
            lambda: client.peek("t"),
            lambda: client.create_topic("t", lease_ms=600_000),
            lambda: client.send("t", "during"),
        ]
        first, *others = [seconds_of_refusal(url, call) for call in asked]
        print(f"first={first:.1f} s others={[round(one, 1) for one in others]}")
        assert first < CONNECTIONS[kind].SILENCE_SECONDS
        assert max(others) < first
        # A request that waits for messages is tried again for as long as it would have waited.
        seconds_of_refusal(url, lambda: next(consumer))
        os.kill(broker.pid, signal.SIGCONT)
        client.send("t", "after")
        payloads = {next(consumer).payload}
        while b"after" not in payloads:  # the send without an answer may be there, too
            payloads.add(next(consumer).payload)
        assert payloads <= {b"during", b"after"}


@pytest.mark.parametrize("kind", CONNECTIONS)
def test_what_comes_when_nobody_waits_any_more_is_leased_to_nobody(
    broker: BrokerProcess, kind: str
) -> None:
    url = f"http://127.0.0.1:{broker.http_port}"
    with (
        light_face(kind, url, retry_ms_max=0) as taker,
        light_face("light", url) as other,
        light_face("light", url) as third,
    ):
        other.create_topic("t", lease_ms=600_000)
        other.send("t", "before")
        consumer = taker.consume("t")
        next(consumer).ack(wait=True)
        os.kill(broker.pid, signal.SIGSTOP)
        seconds_of_refusal(url, lambda: next(consumer))
        os.kill(broker.pid, signal.SIGCONT)
        other.send("t", "later")
        (found,) = third.consume("t", max_messages=1, idle_ms=60_000)
        assert found.payload == b"later"


@pytest.mark.parametrize("kind", CONNECTIONS)
def test_a_broker_that_takes_its_time_is_waited_for(
    broker: BrokerProcess, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CONNECTIONS[kind], "SILENT_SECONDS_MAX", 0.05)
    url = f"http://127.0.0.1:{broker.http_port}"
    with light_face(kind, url, retry_ms_max=0) as client:
        client.create_topic("t")
        client.send("t", "later", delay=0.9)
        (found,) = client.consume("t", max_messages=1)
        assert found.payload == b"later"
