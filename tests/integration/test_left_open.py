"""Programs that end with a consumer still open: they do end, and lose no ack."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.flight.server import FlightServer
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.patience import PATIENCE_SECONDS, until

ROWS = 5
PATIENT = f"""
from dejaqueue.client.consuming import program_end
program_end.EXIT_SECONDS_MAX = {PATIENCE_SECONDS}
"""
"""That it waits for the broker at its end is tried, and not how long: a machine may be busy."""
TAKES = """
from dejaqueue import Client
client = Client({url!r})
consumer = client.consume("t")
next(consumer).ack()
"""
LOOPS = """
from dejaqueue import Client
client = Client({url!r})
for message in client.consume("t"):
    message.ack()
    break
"""
FAILS = TAKES + "raise SystemExit(3)"
ASYNC = """
import asyncio
from dejaqueue import AsyncClient

async def main():
    client = AsyncClient({url!r})
    async for message in client.consume("t"):
        await message.ack()
        break

asyncio.run(main())
"""
BATCHES = """
from dejaqueue import Client
client = Client({url!r})
consumer = client.consume_batches("t", batch_rows=1)
next(consumer).ack(wait=False)
"""


@pytest.fixture
def server() -> Iterator[FlightServer]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    broker.create_topic(Topic("t"))
    server = FlightServer(broker)
    server.start()
    yield server
    server.stop()
    broker.stop()


@pytest.mark.parametrize("program", [TAKES, LOOPS, FAILS, ASYNC, BATCHES])
def test_a_program_that_left_its_consumer_open_ends(server: FlightServer, program: str) -> None:
    from dejaqueue.client import Client

    with Client(server.url) as client:
        client.send_batch("t", [b"x"] * ROWS)
        ended = subprocess.run(
            [sys.executable, "-c", PATIENT + program.format(url=server.url)],
            timeout=PATIENCE_SECONDS,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == (3 if program is FAILS else 0), ended.stderr
        assert ended.stderr == ""

        def all_but_the_acked_are_ready() -> bool:
            counts = client.counts("t")
            return (counts["ready"], counts["leased"]) == (ROWS - 1, 0)

        # One was acked. What it held besides is there for others at once, not when leases end.
        seconds = Topic("t").lease_ms / 2_000
        until(all_but_the_acked_are_ready, "what it held is given back", seconds)
