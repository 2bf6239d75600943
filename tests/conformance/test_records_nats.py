import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from dejaqueue.connections.nats.url import read_url
from dejaqueue.journal.records.nats.store import NatsRecordStore
from dejaqueue.testing.cutting_proxy import CuttingProxy
from dejaqueue.testing.record_conformance import RecordConformance
from dejaqueue.testing.shared_journal_conformance import ServedJournalConformance
from tests.record_servers import NatsServers

pytest.importorskip("nats")


class TestJetStream(RecordConformance):
    count: ClassVar[int] = 1
    asks_to_drop = False
    servers: ClassVar[NatsServers]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _servers(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        cls.servers = NatsServers(tmp_path_factory.mktemp("nats"), cls.count)
        yield
        cls.servers.stop()

    def make_store(self, address: tuple[str, int] | None = None) -> NatsRecordStore:
        url = read_url(self.servers.url)
        if address is not None:
            url = type(url)((f"{address[0]}:{address[1]}",), url.user, url.password, url.replicas)
        return NatsRecordStore(url)

    def server_address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.servers.nodes[0].client_port)

    def restart_server(self) -> None:
        for node in self.servers.nodes:
            self.servers.kill(node.name)


class TestThreeJetStreams(TestJetStream):
    count = 3
    kills = False

    def restart_server(self) -> None:
        """Two go on; an election takes its seconds, so only one test waits for it."""
        if self.kills:
            self.servers.kill("a")

    # tidy: allow no-assert, because the suite's own test asserts
    def test_what_was_acknowledged_outlives_a_killed_server(self) -> None:
        self.kills = True
        super().test_what_was_acknowledged_outlives_a_killed_server()


class TestJetStreamJournal(ServedJournalConformance):
    servers: ClassVar[NatsServers]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _servers(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        cls.servers = NatsServers(tmp_path_factory.mktemp("nats"))
        yield
        cls.servers.stop()

    @pytest.fixture(autouse=True)
    def _use(self) -> Iterator[None]:
        self.made: list[NatsRecordStore] = []
        with CuttingProxy(("127.0.0.1", self.servers.nodes[0].client_port)) as self.proxy:
            yield
            for store in self.made:
                store.close()

    def make_records(self, directory: Path) -> NatsRecordStore:
        host, port = self.proxy.address
        prefix = hashlib.sha256(str(directory).encode()).hexdigest()[:12]
        url = read_url(self.servers.url)
        self.made.append(
            NatsRecordStore(replace(url, servers=(f"{host}:{port}",), prefix=f"p{prefix}"))
        )
        return self.made[-1]

    def kill_server(self) -> None:
        self.servers.servers["a"].stop()

    def start_server(self) -> None:
        self.servers.servers["a"].start()
