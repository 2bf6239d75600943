"""Covers: cold payloads with real clients and time, in a directory and on a server of S3's kind:
they leave, come back, and are delivered when they are due; a broker that is killed meanwhile.

Not covered: what happens when the store fails, and all else of rule 22
(tests/rules/test_rule_22_cold_payloads.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dejaqueue import Client
from dejaqueue.clock import SteadyClock
from dejaqueue.setting_groups import PayloadSettings
from tests.crash.broker_process import BrokerProcess
from tests.integration.access_fixture import Site, running
from tests.object_store import S3Server, s3_server
from tests.patience import until

COUNT = 4_200
"""Of a KiB: a little more than an object."""
AFTER_MS = 2_000
DUE_MS = 8_000


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    yield from s3_server()


def test_they_leave_and_are_back_when_they_are_due(tmp_path: Path, s3: S3Server) -> None:
    urls = [str(tmp_path / "store"), s3.new_bucket()]
    payload = os.urandom(1_024)
    with ExitStack() as stack:
        sites: list[Site] = [
            stack.enter_context(running(payloads=PayloadSettings(url=url))) for url in urls
        ]
        clients = [
            stack.enter_context(Client(f"dejaq://127.0.0.1:{site.flight.port}")) for site in sites
        ]
        due_ms = SteadyClock().utc_ms() + DUE_MS
        for client in clients:
            client.create_topic("t", cold_after_ms=AFTER_MS)
            client.send_batch("t", [{"payload": payload, "due": due_ms}] * COUNT)
        counts = [site.broker.payloads.counts for site in sites]
        until(lambda: all(one.cold_stored == COUNT for one in counts), "all have left")
        for client in clients:
            assert client.peek("t", limit=1).column("payload").to_pylist() == [payload]
        for client in clients:
            with client.consume("t", max_messages=COUNT) as messages:
                found = [(message.payload, message.ack()) for message in messages]
            assert {one for one, _ in found} == {payload}
            assert len(found) == COUNT
        assert [one.cold_returned for one in counts] == [COUNT, COUNT]


def test_a_broker_that_is_killed_has_them_all(tmp_path: Path) -> None:
    store, journal = tmp_path / "store", tmp_path / "journal"
    broker = BrokerProcess(journal, tmp_path / "log", payloads__url=store)
    broker.start()
    with Client(broker.url) as client:
        client.create_topic("t", cold_after_ms=60_000)
        due_ms = SteadyClock().utc_ms() + 3_600_000
        payloads = [number.to_bytes(4, "little") * 256 for number in range(COUNT)]
        client.send_batch("t", [{"payload": one, "due": due_ms} for one in payloads])
        until(lambda: list(store.glob("*/*/cold-*")), "an object is stored")
    broker.kill()
    broker.start()
    with Client(broker.url) as client:
        assert client.move_where("t", due=SteadyClock().utc_ms()) == COUNT
        with client.consume("t", max_messages=COUNT) as messages:
            found = [(message.payload, message.ack()) for message in messages]
        assert sorted(one for one, _ in found) == sorted(payloads)
    broker.kill()
