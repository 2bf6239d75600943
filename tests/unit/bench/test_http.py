"""Covers: the figures of the question `http`, and the load that measures it, for a moment."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from bench import http_load
from bench.questions.http import outcome_of
from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings


def test_ratios_are_those_of_a_round() -> None:
    rates = {
        "nothing": [100.0, 200.0, 50.0],
        "send": [50.0, 120.0, 40.0],
        "ndjson": [7.0, 9.0, 8.0],
    }
    rows = {row.case: row for row in outcome_of(rates).rows}
    assert (rows["send"].value, rows["send"].ratio, rows["send"].ratio_to) == (50.0, 0.6, "fastapi")
    assert (rows["nothing"].system, rows["nothing"].ratio) == ("fastapi", None)
    assert (rows["ndjson"].value, rows["ndjson"].unit) == (8.0, "messages/s")


@pytest.fixture
def run() -> Any:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    broker.create_topic(Topic("t"))
    server = HttpServer(Service(broker, Gate(), lambda: True), "127.0.0.1", 0)
    server.start()
    held: http_load.Held = deque()

    def run(case: str, rows: int) -> dict[str, Any]:
        values = {"port": server.port, "case": case, "topic": "t", "seconds": 30, "rows": rows}
        return asyncio.run(http_load.run(values, 3, held))

    yield run
    broker.stop()
    server.stop()


def test_the_load_asks_as_often_as_it_should(run: Callable[[str, int], dict[str, Any]]) -> None:
    for case, rows in (("send", 20), ("lease", 20), ("ack", 20), ("ndjson", 2)):
        found = run(case, rows)
        assert (found["requests"], found["failed"]) == (rows, 0), case
    assert run("nothing", 5)["failed"] == 5  # a broker has no such route
