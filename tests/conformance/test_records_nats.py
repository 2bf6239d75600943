from collections.abc import Iterator
from typing import ClassVar

import pytest

from dejaqueue.connections.nats_url import read_url
from dejaqueue.journal.records.nats import NatsRecordStore
from dejaqueue.testing.record_conformance import RecordConformance
from tests.record_servers import NatsServers

pytest.importorskip("nats")


class TestJetStream(RecordConformance):
    count: ClassVar[int] = 1
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
    restarts: ClassVar[int] = 0

    def restart_server(self) -> None:
        """Kill one after the other: two go on."""
        type(self).restarts += 1
        self.servers.kill(self.servers.nodes[self.restarts % 3].name)
