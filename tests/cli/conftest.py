"""A broker in this process behind a real port, and the command run against it."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from dejaqueue.broker.broker import Broker
from dejaqueue.cli.main import main
from dejaqueue.flight.server import FlightServer
from dejaqueue.settings import BrokerSettings, JournalSettings

Run = Callable[..., Result]


@pytest.fixture
def url() -> Iterator[str]:
    """Where a fresh broker listens."""
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    server = FlightServer(broker, "127.0.0.1", 0)
    server.start()
    yield f"dejaq://127.0.0.1:{server.port}"
    server.stop()
    broker.stop()


def invoke(*arguments: str, stdin: bytes = b"", url: str | None = None) -> Result:
    """Run `dejaq` in this process; no settings of the shell around it reach it."""
    environment = {name: None for name in os.environ if name.startswith("DEJAQ_")}
    runner = CliRunner(env=environment | {"DEJAQ_URL": url})
    found = runner.invoke(main, arguments, input=io.BytesIO(stdin), catch_exceptions=False)
    assert "Traceback" not in found.output
    return found


@pytest.fixture
def run(url: str) -> Run:
    """`dejaq` against the fresh broker."""
    return lambda *arguments, stdin=b"": invoke(*arguments, stdin=stdin, url=url)
