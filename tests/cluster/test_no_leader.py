"""A broker that starts while the servers of its journals have no leader.

Covered: three real servers of which two are away, so that the one that is left answers "temporarily
unavailable"; a real broker that starts meanwhile, and is stopped meanwhile.
Not covered: what each answer means (tests/unit/connections/nats/test_answers.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue import Client
from dejaqueue.connections.nats.answers import NO_LEADER, read_answer
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.connections.nats.url import read_url
from dejaqueue.errors import Unavailable
from tests.crash.broker_process import BrokerProcess
from tests.patience import PATIENCE_SECONDS, until
from tests.record_servers import NatsServers

pytestmark = [pytest.mark.slow]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[NatsServers]:
    pytest.importorskip("nats")
    made = NatsServers(tmp_path, 3)
    try:
        yield made
    finally:
        made.stop()


def says_that_nobody_leads(server: str) -> bool:
    """Whether a server answers so; in its first seconds without a leader it is silent."""
    try:
        connection = NatsConnection(read_url(server))
    except Unavailable:
        return False
    try:
        (reply,) = connection.publish_all("$JS.API.INFO", [({}, b"")], 1)
        if reply is not None:
            read_answer("it", reply)
    except Unavailable as reason:
        return str(NO_LEADER) in str(reason)
    finally:
        connection.close()
    return False


def test_a_broker_waits_for_a_leader_of_its_journals(servers: NatsServers, tmp_path: Path) -> None:
    url = servers.servers["a"].url
    settings = {"cluster__node": "x", "cluster__coordinator": f"sqlite:///{tmp_path}/facts"}
    broker = BrokerProcess(url, tmp_path / "x.log", **settings)
    (tmp_path / "x.log").touch()
    for name in ("b", "c"):
        servers.servers[name].stop()
    until(lambda: says_that_nobody_leads(url), "the server that is left says that nobody leads")
    failures: list[BaseException] = []

    def start() -> None:
        try:
            broker.start()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    starting = threading.Thread(target=start)
    starting.start()
    try:
        waits = "waiting for the servers of the cluster"
        until(lambda: failures or waits in broker.log_text(), "the broker waits")
        assert failures == []
        assert str(NO_LEADER) in broker.log_text()
        for name in ("b", "c"):
            servers.servers[name].start(wait=False)
        starting.join(PATIENCE_SECONDS)
        assert failures == []
        with Client(broker.url) as client:
            client.create_topic("orders")
            client.send("orders", b"1")
    finally:
        broker.kill()
        starting.join(PATIENCE_SECONDS)
