"""Servers beside brokers that speak TLS with one another and want to see a certificate."""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.cluster.jetstream_settings import NodeTls, journal_url
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.connections.nats.url import read_url
from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.errors import BadRequest, Unavailable
from dejaqueue.journal.records.nats.store import NatsRecordStore
from dejaqueue.testing.record_conformance import patiently
from tests.integration.papers import Papers
from tests.record_servers import SECRET, NatsServers

pytest.importorskip("nats")


def test_three_servers_let_in_who_shows_a_certificate_and_nobody_else(tmp_path: Path) -> None:
    papers = Papers(tmp_path)
    files = NodeTls(papers.ca, *papers.broker)
    servers = NatsServers(tmp_path, 3, files)
    try:
        store = patiently(lambda: NatsRecordStore(servers.url))
        facts = patiently(lambda: open_coordinator(servers.url))
        try:
            log = patiently(lambda: store.open("t", 0))
            patiently(lambda: log.append(0, [[b"x"]]))
            assert [content for _, content in log.read(1, 2)] == [b"x"]
            assert facts.put("k", b"v", 0) > 0
            assert [one["state"] for one in store.servers()] == ["whole"] * 3
        finally:
            store.close()
            facts.close()
        for wrong in (None, NodeTls(papers.ca, *papers.stranger)):
            with pytest.raises(Unavailable):
                NatsConnection(
                    read_url(journal_url(servers.nodes[:1], servers.nodes[0], 1, SECRET, wrong))
                )
    finally:
        servers.stop()


def test_files_of_a_url_that_cannot_be_used_are_named() -> None:
    with pytest.raises(BadRequest, match="certificate: a file, with key"):
        open_coordinator("nats://127.0.0.1?key=a.pem")
    with pytest.raises(BadRequest, match="PEM files"):
        open_coordinator("nats://127.0.0.1?ca=/nonexistent.pem")
