"""The journal on PostgreSQL: broker and server are killed under load; then rules are checked.

Covered: rules 1 to 6 over SIGKILL of the server, of both, and a server that is silent for a while.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.services import Service
from tests.crash.broker_process import BrokerProcess
from tests.crash.test_broker_kill import check_under_load
from tests.server_fixtures import served

pytestmark = [pytest.mark.crash]


@pytest.fixture
def postgresql() -> Iterator[Service]:
    yield from served("postgresql")


@pytest.fixture
def broker(postgresql: Service, tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        postgresql.url,
        tmp_path / "broker.log",
        journal__mirror=tmp_path / "mirror",
        journal__segment_bytes=1 << 18,
        journal__snapshot_entries=150,
    )
    process.start()
    yield process
    process.kill()


def test_nothing_is_lost_early_or_twice__server_and_broker_killed(
    postgresql: Service, broker: BrokerProcess
) -> None:
    def kill_server() -> None:
        postgresql.kill()
        postgresql.start()

    def kill_both() -> None:
        broker.kill()
        postgresql.kill()
        postgresql.start()
        broker.start()

    def silence() -> None:
        postgresql.pause()
        threading.Event().wait(1.0)
        postgresql.resume()

    turns = (kill_server, silence, kill_both)
    check_under_load(broker, len(turns), lambda turn: turns[turn]())
    assert broker.stop() == 0
