"""GET /metrics: both formats, before the broker is started too, and only for who may manage.

Not covered: the numbers (tests/unit/http/test_exposition.py, tests/integration/test_metrics.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI

from dejaqueue.access.gate import Gate
from dejaqueue.access.roles import Grant, Principal, Role
from dejaqueue.broker.broker import Broker
from dejaqueue.http.app import build_app
from dejaqueue.http.service import Service
from dejaqueue.settings import BrokerSettings, JournalSettings


class OneGate(Gate):
    """Lets everybody in as one and the same."""

    def __init__(self, role: Role, pattern: str) -> None:
        self._principal = Principal("somebody", (Grant(role, pattern),))

    def principal(self, api_key: str | None, certificate: str = "") -> Principal:
        return self._principal


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    yield made
    made.stop()


def get(app: FastAPI, path: str, **headers: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(ask())


def test_format_is_the_one_that_was_asked_for(broker: Broker) -> None:
    broker.start()
    app = build_app(Service(broker, Gate(), lambda: True))
    text = get(app, "/metrics")
    assert text.headers["content-type"].startswith("text/plain; version=")
    assert text.headers["cache-control"] == "no-store"
    open_metrics = get(app, "/metrics", accept="application/openmetrics-text")
    assert open_metrics.headers["content-type"].startswith("application/openmetrics-text")
    assert open_metrics.text.endswith("# EOF\n")


def test_broker_that_starts_is_shown_as_not_ready(broker: Broker) -> None:
    app = build_app(Service(broker, Gate(), lambda: False))
    found = get(app, "/metrics")
    assert found.status_code == 200
    assert "dejaq_ready_state 0\n" in found.text
    assert "dejaq_topics 0\n" in found.text


def test_two_brokers_in_one_process_do_not_mix(broker: Broker) -> None:
    first = build_app(Service(broker, Gate(), lambda: True))
    second = build_app(Service(broker, Gate(), lambda: True))
    get(first, "/livez")
    assert 'route="/livez"' in get(first, "/metrics").text
    assert 'route="/livez"' not in get(second, "/metrics").text


@pytest.mark.parametrize(
    ("role", "pattern", "status"),
    [
        (Role.MANAGE, "*", 200),
        (Role.ADMIN, "*", 200),
        (Role.MANAGE, "orders.*", 403),
        (Role.CONSUME, "*", 403),
        (Role.PRODUCE, "*", 403),
    ],
)
def test_only_who_may_manage_everything_sees_everything(
    broker: Broker, role: Role, pattern: str, status: int
) -> None:
    app = build_app(Service(broker, OneGate(role, pattern), lambda: True))
    assert get(app, "/metrics").status_code == status
