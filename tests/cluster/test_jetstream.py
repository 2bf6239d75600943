import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue.cli.ports import free_port
from dejaqueue.cluster.jetstream import JetStreamServer, pass_line_on
from dejaqueue.cluster.jetstream_settings import Node
from dejaqueue.errors import BadRequest, Refused
from dejaqueue.journal.records.nats.store import NatsRecordStore
from dejaqueue.testing.record_conformance import patiently
from tests.cluster.rot import until
from tests.record_servers import NatsServers

pytest.importorskip("nats")


def one_node(directory: Path, **more: str) -> JetStreamServer:
    node = Node("a", "127.0.0.1", free_port(), free_port())
    secret = {"secret": "word"}
    return JetStreamServer("a", [node], directory / "jetstream", **secret | more)  # type: ignore[arg-type]


def test_one_server_starts_keeps_records_and_stops(tmp_path: Path) -> None:
    server = one_node(tmp_path, secret="word")
    for turn in (0, 1):
        store = NatsRecordStore(server.start())
        log = store.open("t", 0)
        assert log.last() == turn
        log.append(turn, [[b"x"]])
        status = server.status()
        assert (status.present, status.absent) == (("a",), ())
        assert {copy.node for copy in status.copies if copy.is_leader} == {"a"}
        assert status.flaw({}) in {"", "the cluster has no leader"}  # one alone has none
        with pytest.raises(Refused, match="no other copies"):
            server.repair()
        store.close()
        server.stop()
        server.stop()
        assert server.pid is None
    # The settings hold passwords.
    assert (tmp_path / "jetstream" / "nats-server.conf").stat().st_mode & 0o77 == 0


def test_a_server_that_is_killed_comes_back(tmp_path: Path) -> None:
    server = one_node(tmp_path)
    store = NatsRecordStore(server.start())
    try:
        log = store.open("t", 0)
        log.append(0, [[b"x"]])
        first = server.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        server.wait_until_ready()
        until(lambda: server.pid not in {None, first}, 10_000)
        assert server.starts == 2
    finally:
        store.close()
        server.stop()


def test_more_copies_than_nodes_are_refused(tmp_path: Path) -> None:
    node = Node("a", "127.0.0.1", 1, 2)
    with pytest.raises(BadRequest, match="replicas"):
        JetStreamServer("a", [node], tmp_path, secret="word", replicas=3)


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="/no/nats-server"):
        one_node(tmp_path, program="/no/nats-server")


def test_lines_of_the_server_are_logged_by_their_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "dejaqueue.jetstream")
    for level, text in (("INF", "one"), ("WRN", "two"), ("ERR", "three"), ("FTL", "four")):
        pass_line_on(f"[12] 2026/01/01 00:00:00.000000 [{level}] {text}")
    pass_line_on("[12] 2026/01/01 00:00:00.000000 [WRN] Plaintext passwords detected, use nkeys")
    pass_line_on("panic: five")
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("DEBUG", "one"),
        ("WARNING", "two"),
        ("ERROR", "three"),
        ("ERROR", "four"),
        ("DEBUG", "Plaintext passwords detected, use nkeys"),
        ("INFO", "panic: five"),
    ]


@pytest.fixture
def three(tmp_path: Path) -> Iterator[NatsServers]:
    servers = NatsServers(tmp_path, 3)
    yield servers
    servers.stop()


def test_a_node_is_not_emptied_while_another_is_away(three: NatsServers) -> None:
    store = patiently(lambda: NatsRecordStore(three.url))
    try:
        log = patiently(lambda: store.open("t", 0))
        patiently(lambda: log.append(0, [[b"x"]]))
    finally:
        store.close()
    three.servers["b"].stop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dejaqueue.cluster.jetstream.START_MS", 1_500)
        with pytest.raises(Refused, match="node a is not emptied"):
            three.servers["a"].repair()
    three.servers["b"].start(wait=False)
    until(lambda: not three.servers["c"].status().flaw({}), 30_000)
    assert all(copy.last == 1 for copy in three.servers["c"].status().copies if copy.messages)
