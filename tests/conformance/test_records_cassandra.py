from collections.abc import Iterator

import pytest

from dejaqueue.journal.records.cassandra import CassandraRecordStore
from dejaqueue.testing.record_conformance import RecordConformance
from dev.services import Service, missing, start

# Where Maven's repository cannot be reached there is no Cassandra.
pytestmark = pytest.mark.may_skip


@pytest.fixture(scope="module")
def cassandra() -> Iterator[Service]:
    pytest.importorskip("cassandra")
    if lacking := missing("cassandra"):
        pytest.skip(f"not installed: {lacking}")
    with start("cassandra") as service:
        yield service


class TestCassandra(RecordConformance):
    service: Service

    @pytest.fixture(autouse=True)
    def _use(self, cassandra: Service) -> None:
        self.service = cassandra

    def make_store(self, address: tuple[str, int] | None = None) -> CassandraRecordStore:
        host, port = address or self.server_address()
        return CassandraRecordStore(f"cassandra://{host}:{port}/dejaq")

    def server_address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.service.port)

    kills = False

    def restart_server(self) -> None:
        """It takes its time to start, so only one test waits for it."""
        if self.kills:
            self.service.kill()
            self.service.start()

    # tidy: allow no-assert, because the suite's own test asserts
    def test_what_was_acknowledged_outlives_a_killed_server(self) -> None:
        self.kills = True
        super().test_what_was_acknowledged_outlives_a_killed_server()
