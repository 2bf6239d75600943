"""The journal in a bucket: the broker is killed under load, and the way to the bucket fails; then
rules are checked.

Covered: rules 1 to 6 over SIGKILL of the broker, answers that are lost, a bucket that is away for a
while. Not covered: a bucket that loses something (tests/conformance/test_records_bucket.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dejaqueue.testing.cutting_proxy import CuttingProxy
from tests.crash.broker_process import BrokerProcess
from tests.crash.test_broker_kill import check_under_load
from tests.object_store import S3Server, s3_server

pytestmark = [pytest.mark.crash]


@pytest.fixture
def server() -> Iterator[S3Server]:
    yield from s3_server()


@pytest.fixture
def proxy(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[CuttingProxy]:
    port = urlsplit(server.endpoint).port
    assert port is not None
    with CuttingProxy(port) as made:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{made.port}")
        yield made


@pytest.fixture
def broker(server: S3Server, proxy: CuttingProxy, tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        f"{server.new_bucket()}/queues?between_ms=5",
        tmp_path / "broker.log",
        journal__snapshot_entries=150,
    )
    process.start()
    yield process
    process.kill()


def test_nothing_is_lost_early_or_twice__broker_killed_and_bucket_away(
    broker: BrokerProcess, proxy: CuttingProxy
) -> None:
    def kill() -> None:
        broker.kill()
        broker.start()

    def away() -> None:
        proxy.cut()
        threading.Event().wait(1.0)
        proxy.mend()

    def lose() -> None:
        proxy.lose_answers()
        threading.Event().wait(0.5)
        proxy.mend()

    turns = (kill, lose, away, kill)
    check_under_load(broker, len(turns), lambda turn: turns[turn]())
    assert broker.stop() == 0
