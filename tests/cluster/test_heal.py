from pathlib import Path

import pytest

from dejaqueue.cluster import jetstream
from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.journal.records.nats.store import NatsRecordStore
from dejaqueue.journal.records.nats.watch import SickCopy
from dejaqueue.testing.record_conformance import patiently
from tests.cluster.rot import until
from tests.record_servers import NatsServers

pytest.importorskip("nats")


def test_a_node_that_is_named_rebuilds_itself(tmp_path: Path) -> None:
    servers = NatsServers(tmp_path, 3)
    try:
        store = patiently(lambda: NatsRecordStore(servers.url))
        try:
            facts = patiently(lambda: open_coordinator(servers.url))
            log = patiently(lambda: store.open("t", 0))
            log.append(0, [[b"x" * 1000]] * 100)
            store.put_object("o", b"old")
            store.put_object("o", b"new")
            for value in (b"old", b"new"):  # what is replaced leaves gaps, which are no damage
                facts.put("k", value)
            first = {name: server.pid for name, server in servers.servers.items()}
            for server in servers.servers.values():
                server.heal([SickCopy("b", "a-stream", "it was said so")])
            until(lambda: servers.servers["b"].pid not in {None, first["b"]}, 30_000)
            lasts = servers.servers["a"].status().lasts()
            until(lambda: not servers.servers["a"].status().flaw(lasts), 30_000)
            assert {n: s.pid for n, s in servers.servers.items() if n != "b"} == {
                name: pid for name, pid in first.items() if name != "b"
            }
            assert len(list(log.read(1, 101))) == 100
            facts.close()
        finally:
            store.close()
    finally:
        servers.stop()


def test_a_repair_that_breaks_off_is_tried_again_and_the_server_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jetstream, "HEAL_AGAIN_MS", 200)
    servers = NatsServers(tmp_path, 3)
    try:
        server = servers.servers["b"]
        failures = [OSError("somebody planted this")]
        stop = server._child.stop

        def stop_and_fail() -> None:
            stop()
            if failures:
                raise failures.pop()

        monkeypatch.setattr(server._child, "stop", stop_and_fail)
        store = patiently(lambda: NatsRecordStore(servers.url))
        log = patiently(lambda: store.open("t", 0))
        log.append(0, [[b"x" * 1000]] * 100)
        store.close()
        server.heal([SickCopy("b", "a-stream", "it was said so")])
        until(lambda: not server._sick, 60_000)
        assert not failures
        assert server.pid is not None
        lasts = servers.servers["a"].status().lasts()
        until(lambda: not servers.servers["a"].status().flaw(lasts), 30_000)
    finally:
        servers.stop()
