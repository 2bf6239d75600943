"""A broker that is paused (SIGSTOP), and the only one that a client knows: calls that may be made
twice, and scans, say who is silent, the next ones soon, and go on when it does.

Not covered: brokers of a cluster, where there is somewhere to go (tests/cluster/test_kill.py).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from dejaqueue import Client
from dejaqueue.client.flight_transport import CALL_SECONDS_MAX
from dejaqueue.client.routed_transport import connect
from dejaqueue.errors import Unavailable
from tests.crash.broker_process import BrokerProcess, pausable


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with pausable(tmp_path) as process:
        yield process


def seconds_of_refusal(client: Client, url: str) -> float:
    began = time.monotonic()
    with pytest.raises(Unavailable, match=f"the broker at {url} does not answer"):
        client.stats()
    return time.monotonic() - began


def test_a_call_says_who_is_silent__the_next_one_soon__until_it_is_not(
    broker: BrokerProcess,
) -> None:
    with Client(broker.url, retry_ms_max=0) as client:
        client.create_topic("a")
        os.kill(broker.pid, signal.SIGSTOP)
        first = seconds_of_refusal(client, broker.url)
        again = [seconds_of_refusal(client, broker.url) for _ in range(3)]
        print(f"first={first:.1f} s again={[round(one, 1) for one in again]}")
        assert first < CALL_SECONDS_MAX / 2
        assert max(again) < first
        os.kill(broker.pid, signal.SIGCONT)
        with Client(broker.url) as other:
            other.stats()  # it is awake
        assert client.stats()
        client.send("a", b"1")


def test_a_scan_says_who_is_silent__on_its_way_and_at_its_beginning(broker: BrokerProcess) -> None:
    ticket = {"topic": "a", "partition": 0}
    with Client(broker.url) as client:
        client.create_topic("a", partitions=1)
        for _ in range(20):  # much more than is on its way at once
            client.send_batch("a", pa.table({"payload": [b"x" * 2_000] * 2_000}))
    transport = connect(broker.url)
    try:
        assert sum(batch.num_rows for batch in transport.scan(ticket)) == 40_000
        begun = transport.scan(ticket)
        next(begun)
        os.kill(broker.pid, signal.SIGSTOP)
        took = []
        for scan in (begun, transport.scan(ticket), transport.scan(ticket)):
            began = time.monotonic()
            with pytest.raises(Unavailable, match=f"the broker at {broker.url} does not answer"):
                sum(batch.num_rows for batch in scan)
            took.append(time.monotonic() - began)
        print(f"took {[round(one, 1) for one in took]} s")
        assert took[0] < CALL_SECONDS_MAX / 2
        assert max(took[1:]) < took[0]
        os.kill(broker.pid, signal.SIGCONT)
        with Client(broker.url) as other:
            other.stats()  # it is awake
        assert sum(batch.num_rows for batch in transport.scan(ticket)) == 40_000
    finally:
        transport.close()
