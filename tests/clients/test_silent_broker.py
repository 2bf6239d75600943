"""Covers: a broker that is paused (SIGSTOP), and the only one that a client for Go or Java knows:
calls say who is silent after ten seconds, the next ones soon, and go on when it does; a consumer is
there again.

Not covered: where there is another broker to go to (test_accidents.py); our own client
(tests/integration/test_silent_broker.py); the light client (test_light_silent_broker.py).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dejaqueue import Client
from tests.clients.drivers import ClientError, Driver
from tests.crash.broker_process import BrokerProcess, pausable

UNAVAILABLE = 32
FIRST_SECONDS_MAX = 30.0
"""Five, five, and what a busy machine takes; calls without a sign of life had a minute, or none."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with pausable(tmp_path) as process:
        yield process


def seconds_of_refusal(client: Driver, url: str, do: str, **fields: Any) -> float:
    began = time.monotonic()
    with pytest.raises(ClientError) as refused:
        client.call(do, **fields)
    assert refused.value.number == UNAVAILABLE
    assert f"the broker at {url} does not answer" in refused.value.text, do
    return time.monotonic() - began


def test_a_call_says_who_is_silent__the_next_one_soon__until_it_is_not(
    alone: Driver, broker: BrokerProcess
) -> None:
    alone.call("connect", url=broker.url, retry_ms=1_000)
    alone.call("create_topic", topic="t")
    alone.call("consume", topic="t", lease_ms=600_000)
    alone.send("t", b"before")
    (before,) = alone.receive(1)
    os.kill(broker.pid, signal.SIGSTOP)
    asked: list[tuple[str, dict[str, Any]]] = [
        ("peek", {"topic": "t"}),
        ("peek", {"topic": "t"}),
        ("create_topic", {"topic": "t"}),
        ("stats", {"topic": "t"}),  # an action, which is made once
        ("begin", {"topic": "t", "timeout_ms": 60_000}),
        ("send", {"topic": "t", "rows": [{"payload": ""}, {"payload": ""}]}),
        ("send", {"topic": "t", "rows": [{"payload": ""}]}),
        ("ack", {"ids": [before["id"]]}),
    ]
    took = [(do, seconds_of_refusal(alone, broker.url, do, **fields)) for do, fields in asked]
    print([(do, round(seconds, 1)) for do, seconds in took])
    (_, first), *others = took
    assert first < FIRST_SECONDS_MAX
    assert max(seconds for _, seconds in others) < first
    os.kill(broker.pid, signal.SIGCONT)
    with Client(broker.url) as ours:
        ours.send("t", b"after", key="after")
    while (received := alone.receive(1)[0])["key"] != "after":
        pass  # of the sends, which are carried out now
    assert received["payload"] == b"after"
    alone.call("peek", topic="t")
