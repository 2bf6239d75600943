"""Covers: the setting `history` by the command line and over HTTP, and what it then does.

Not covered: what is recorded (tests/rules/test_history.py).
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dejaqueue import Client
from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.flight.server import FlightServer
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.settings import BrokerSettings, HistorySettings, JournalSettings
from tests.cli.conftest import invoke
from tests.integration.access_fixture import Site
from tests.patience import PATIENCE_SECONDS


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A broker with a directory for history, behind both servers."""
    settings = BrokerSettings(
        journal=JournalSettings(url="memory:"),
        history=HistorySettings(directory=str(tmp_path / "history")),
    )
    broker = Broker(settings)
    broker.start()
    gate = Gate(broker.keys)
    flight = FlightServer(broker, "127.0.0.1", 0, gate=gate)
    http = HttpServer(Service(broker, gate, lambda: True), "127.0.0.1", 0)
    flight.start()
    http.start()
    try:
        yield Site(broker, flight, http)
    finally:
        flight.stop()
        broker.stop()
        http.stop()


def url(site: Site) -> str:
    return f"dejaq://127.0.0.1:{site.flight.port}"


def changes(site: Site, topic: str) -> list[str]:
    """What was recorded of a topic."""
    found = []
    for file in site.broker.call("history_files", {"name": topic})["files"]:
        named = {"topic": topic, "partition": file["partition"], "file": file["name"]}
        for batch in site.broker.read("history", named)[1]:
            found += batch.column("change").to_pylist()
    return found


def send(site: Site, topic: str) -> None:
    with Client(url(site)) as client:
        client.send(topic, b"x")


def ask(site: Site, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer of the HTTP API."""
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{site.http_url}{path}", content, method=method)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


def test_the_command_line_turns_history_on_and_off(site: Site) -> None:
    made = invoke("topic", "create", "kept", "--history", "--json", url=url(site))
    assert json.loads(made.stdout)["history"] is True
    send(site, "kept")
    assert changes(site, "kept") == ["enqueued"]
    off = invoke("topic", "alter", "kept", "--no-history", url=url(site))
    assert "history no\n" in _words(off.stdout)
    send(site, "kept")
    assert changes(site, "kept") == ["enqueued"]
    assert "history no\n" in _words(invoke("topic", "show", "kept", url=url(site)).stdout)
    on = invoke("topic", "alter", "kept", "--history", "--json", url=url(site))
    assert json.loads(on.stdout)["history"] is True
    send(site, "kept")
    assert changes(site, "kept") == ["enqueued", "gap", "enqueued"]


def _words(text: str) -> str:
    """Lines with one space between words."""
    return "".join(" ".join(line.split()) + "\n" for line in text.splitlines())


def test_http_turns_history_on_and_off(site: Site) -> None:
    assert ask(site, "POST", "/v1/topics", {"name": "kept", "history": True})["history"] is True
    send(site, "kept")
    assert changes(site, "kept") == ["enqueued"]
    assert ask(site, "PATCH", "/v1/topics/kept", {"history": False})["history"] is False
    send(site, "kept")
    assert changes(site, "kept") == ["enqueued"]
    assert ask(site, "GET", "/v1/topics/kept")["history"] is False
    ask(site, "PATCH", "/v1/topics/kept", {"history": True})
    send(site, "kept")
    assert changes(site, "kept") == ["enqueued", "gap", "enqueued"]
    assert ask(site, "POST", "/v1/topics", {"name": "plain"})["history"] is False
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(site, "PATCH", "/v1/topics/kept", {"history": "sometimes"})
    with refused.value as answer:
        assert answer.code in (400, 422)
        assert "history" in answer.read().decode()


def test_a_broker_that_has_no_place_for_it_refuses_it() -> None:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    server = FlightServer(broker, "127.0.0.1", 0)
    server.start()
    try:
        where = f"dejaq://127.0.0.1:{server.port}"
        refused = invoke("topic", "create", "kept", "--history", url=where)
        assert refused.exit_code != 0
        assert "history.directory" in refused.output
        assert broker.topics() == []
    finally:
        server.stop()
        broker.stop()
