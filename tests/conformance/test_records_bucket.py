"""Covers: the journal in a bucket, by the suites of journals and of records: in a directory, and in
a store of S3's protocol.

Not covered: a broker that is killed, and a bucket that is away (tests/crash/
test_bucket_journal_kill.py).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dejaqueue.connections.bucket import DirectoryBucket
from dejaqueue.connections.object_bucket import ObjectBucket
from dejaqueue.journal.records.bucket.store import PATIENCE_SECONDS, BucketRecordStore
from dejaqueue.journal.records.interface import RecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.testing.cutting_proxy import Cut, CuttingProxy
from dejaqueue.testing.record_conformance import RecordConformance
from dejaqueue.testing.shared_journal_conformance import (
    ServedJournalConformance,
    SharedJournalConformance,
    marked,
    marks,
)
from dev.services.versitygw import Versitygw
from tests.object_store import S3Server, changed_environment, s3_server
from tests.server_fixtures import served

RECORD_BYTES_MAX = 1 << 20
"""Smaller than in use, so that what takes several records is not hundreds of megabytes."""


class TestDirectory(RecordConformance):
    asks_to_drop = False

    @pytest.fixture(autouse=True)
    def _use(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self.root = tmp_path_factory.mktemp("bucket")

    def make_store(self, address: tuple[str, int] | None = None) -> BucketRecordStore:
        return BucketRecordStore(DirectoryBucket(self.root, "journal"), RECORD_BYTES_MAX)


def finish_drops(records: RecordStore) -> None:
    assert isinstance(records, BucketRecordStore)
    records.lives.store_index()


class BucketJournal(SharedJournalConformance):
    def finish_drops(self, records: RecordStore) -> None:
        finish_drops(records)


class TestDirectoryJournal(BucketJournal):
    def make_records(self, directory: Path) -> BucketRecordStore:
        bucket = DirectoryBucket(directory / "bucket", "journal")
        return BucketRecordStore(bucket, RECORD_BYTES_MAX)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    yield from s3_server()


@pytest.fixture(scope="module")
def gateway() -> Iterator[Versitygw]:
    for service in served("versitygw"):
        assert isinstance(service, Versitygw)
        yield service


def store_at(
    url: str, address: tuple[str, int], environment: dict[str, str] | None = None
) -> BucketRecordStore:
    """A store in a bucket that is reached by that address."""
    endpoint = {"AWS_ENDPOINT_URL": f"http://{address[0]}:{address[1]}"}
    with changed_environment((environment or {}) | endpoint):
        bucket = ObjectBucket(url, "journal.url", PATIENCE_SECONDS, is_new_once=True)
    return BucketRecordStore(bucket, RECORD_BYTES_MAX)


def address_of(server: S3Server) -> tuple[str, int]:
    found = urlsplit(server.endpoint)
    assert found.hostname is not None
    assert found.port is not None
    return found.hostname, found.port


class TestS3(RecordConformance):
    asks_to_drop = False

    @pytest.fixture(autouse=True)
    def _use(self, server: S3Server) -> None:
        self.server, self.bucket = server, server.new_bucket()

    def make_store(self, address: tuple[str, int] | None = None) -> BucketRecordStore:
        return store_at(f"{self.bucket}/queues", address or self.server_address())

    def server_address(self) -> tuple[str, int]:
        return address_of(self.server)


class TestS3Journal(BucketJournal):
    @pytest.fixture(autouse=True)
    def _use(self, server: S3Server) -> Iterator[None]:
        self.bucket = server.new_bucket()
        with CuttingProxy(address_of(server)) as self.proxy:
            yield

    def make_records(self, directory: Path) -> BucketRecordStore:
        return store_at(self.bucket, self.proxy.address)

    @pytest.mark.parametrize("cut", ["answer", "request"])
    def test_a_connection_cut_in_the_middle_of_an_append(self, tmp_path: Path, cut: Cut) -> None:
        store = self.make_store(tmp_path)
        journal = store.open("topic", 0)
        for number in range(1, 4):
            journal.append([marked(number)], number - 1, 1)
        self.proxy.cut_next(cut)
        assert journal.append([marked(4)], 3, 1) == 4
        assert journal.append([marked(5)], 4, 1) == 5
        assert marks(journal) == [1, 2, 3, 4, 5]
        store.close()
        rival = RecordJournalStore(self.make_records(tmp_path))
        assert marks(rival.open("topic", 0)) == [1, 2, 3, 4, 5]
        rival.close()


@pytest.mark.may_skip
class TestGateway(RecordConformance):
    """A server that keeps what it acknowledged when it is killed."""

    asks_to_drop = False

    @pytest.fixture(autouse=True)
    def _use(self, gateway: Versitygw) -> None:
        self.gateway, self.bucket = gateway, gateway.new_bucket(f"b{secrets.token_hex(8)}")

    def make_store(self, address: tuple[str, int] | None = None) -> BucketRecordStore:
        url, found = f"{self.bucket}/queues", address or self.server_address()
        return store_at(url, found, self.gateway.environment)

    def server_address(self) -> tuple[str, int]:
        return "127.0.0.1", self.gateway.port

    def restart_server(self) -> None:
        self.gateway.kill()
        self.gateway.start()


@pytest.mark.may_skip
class TestGatewayJournal(ServedJournalConformance):
    @pytest.fixture(autouse=True)
    def _use(self, gateway: Versitygw) -> Iterator[None]:
        self.gateway, self.bucket = gateway, gateway.new_bucket(f"b{secrets.token_hex(8)}")
        with CuttingProxy(gateway.port) as self.proxy:
            yield

    def make_records(self, directory: Path) -> BucketRecordStore:
        return store_at(self.bucket, self.proxy.address, self.gateway.environment)

    def finish_drops(self, records: RecordStore) -> None:
        finish_drops(records)

    def kill_server(self) -> None:
        self.gateway.kill()

    def start_server(self) -> None:
        self.gateway.start()
