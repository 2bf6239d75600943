"""Covers: a relay that is killed with SIGKILL again and again while rows are committed: each row
becomes a message once, from PostgreSQL and from SQLite.

Not covered: each step at which it may end (tests/unit/outbox/test_relay.py).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

import dejaqueue
from dejaqueue.client import Client
from dejaqueue.outbox.sqlalchemy import SqlAlchemyOutbox
from dev.services import Service
from tests.crash.broker_process import BrokerProcess
from tests.patience import until
from tests.server_fixtures import served

ROWS, KILLS = 800, 3

RELAY = """
import sys
from sqlalchemy import create_engine
from dejaqueue.client import Client
from dejaqueue.outbox import Relay, relay
from dejaqueue.outbox.sqlalchemy import SqlAlchemyOutbox

relay.HOLD_MS = 300
with Client(sys.argv[1]) as client:
    Relay(client, SqlAlchemyOutbox(create_engine(sys.argv[2])), batch_rows=50).run(0.01)
"""


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Service]:
    yield from served("postgresql")


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_relay_that_is_killed_sends_each_row_once(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    if database == "postgresql":
        service: Service = request.getfixturevalue("postgresql")
        url = service.url.replace("postgresql://", "postgresql+psycopg://")
    broker = BrokerProcess(tmp_path / "data", tmp_path / "broker.log")
    broker.start()
    engine = create_engine(url, poolclass=NullPool)
    outbox = SqlAlchemyOutbox(engine)
    outbox.create()
    (tmp_path / "relay.py").write_text(RELAY)
    source = str(Path(dejaqueue.__file__).parents[1])
    relay: subprocess.Popen[bytes] | None = None
    draw, pause = random.Random(22), threading.Event()
    try:
        with Client(broker.url) as client:
            client.create_topic("mails", partitions=4)
            for number in range(KILLS + 1):
                relay = subprocess.Popen(
                    [sys.executable, "-W", "error", str(tmp_path / "relay.py"), broker.url, url],
                    env=os.environ | {"PYTHONPATH": source},
                )
                share = range(number * ROWS // (KILLS + 1), (number + 1) * ROWS // (KILLS + 1))
                before = client.counts("mails").get("scheduled", 0)
                for first in share[::10]:
                    with engine.begin() as connection:
                        for row in range(first, min(first + 10, share.stop)):
                            outbox.send(connection, "mails", str(row))
                until(lambda: client.counts("mails").get("scheduled", 0) > before)  # noqa: B023
                if number < KILLS:
                    pause.wait(draw.uniform(0, 0.1))
                    relay.kill()
                    relay.wait()
            until(lambda: left(outbox) == 0)
            found = list(scanned(client))
    finally:
        if relay is not None:
            relay.kill()
            relay.wait()
        broker.stop()
        engine.dispose()
    assert len(found) == ROWS
    assert sorted(found) == list(range(ROWS))


def left(outbox: SqlAlchemyOutbox) -> int:
    with outbox.transaction() as execute:
        return int(execute("SELECT count(*) FROM dejaq_outbox", ())[0][0])


def scanned(client: Client) -> Iterator[int]:
    """All that was sent, as each one comes."""
    for message in client.consume("mails", idle_ms=1_000):
        yield int(message.payload)
        message.ack()
