"""Covers: buckets, journals in them, signed URLs and backups at Azure's store, by the server with
which its users test; and at a gateway of S3's protocol.

Not covered: S3's protocol by moto's server, in which all of this runs in many files; Google's
store, whose XML calls, which the library uses, fake-gcs-server does not take.
"""

from __future__ import annotations

import os
import secrets
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias
from unittest import mock

import pytest

from dejaqueue.connections.object_bucket import ObjectBucket
from dejaqueue.journal.records.bucket.store import PATIENCE_SECONDS, BucketRecordStore
from dejaqueue.testing.record_conformance import RecordConformance
from dev.services.azurite import Azurite
from dev.services.versitygw import Versitygw
from tests.backups import check_bucket, client_of, restored, started, taken
from tests.object_store import changed_environment
from tests.server_fixtures import served

pytestmark = pytest.mark.may_skip

Store: TypeAlias = Azurite | Versitygw
STORES = ["azurite", "versitygw"]


@pytest.fixture(scope="module", params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """A server; the environment of this process names it meanwhile."""
    for service in served(request.param):
        assert isinstance(service, Azurite | Versitygw)
        with mock.patch.dict(os.environ, service.environment):
            yield service


@pytest.fixture
def url(store: Store) -> str:
    return store.new_bucket(f"b{secrets.token_hex(8)}")


def test_objects_are_stored_once(url: str) -> None:
    check_bucket(ObjectBucket(f"{url}/with/prefix"))


def test_what_signed_urls_allow(url: str) -> None:
    bucket = ObjectBucket(url)
    (place,) = bucket.sign("PUT", ["part"], 60_000) or []
    request = urllib.request.Request(
        place, method="PUT", data=b"part", headers=bucket.signed_headers("PUT")
    )
    urllib.request.urlopen(request).close()
    assert bucket.get("part") == b"part"
    (place,) = bucket.sign("GET", ["part"], 60_000) or []
    with urllib.request.urlopen(place) as answer:
        assert answer.read() == b"part"


def test_a_backup_is_taken__added_to__and_restored(tmp_path: Path, url: str) -> None:
    broker = started(tmp_path / "data")
    with client_of(broker) as client:
        client.create_topic("mail", partitions=2)
        for round_number in range(2):
            client.send_batch("mail", [b"%d" % number for number in range(500)])
            found = taken(broker, f"{url}/dejaq")
            assert found["state"] == "done", (round_number, found)
    broker.stop()
    restored(f"{url}/dejaq", tmp_path / "new")
    again = started(tmp_path / "new")
    with client_of(again) as client:
        payloads = client.peek("mail", limit=2_000).column("payload").to_pylist()
    again.stop()
    assert sorted(payloads) == sorted([b"%d" % number for number in range(500)] * 2)


class TestRecords(RecordConformance):
    """The journal in a bucket."""

    asks_to_drop = False

    @pytest.fixture(autouse=True)
    def _use(self, store: Store, url: str) -> None:
        self.served, self.url = store, url

    def server_address(self) -> tuple[str, int]:
        return "127.0.0.1", self.served.port

    def make_store(self, address: tuple[str, int] | None = None) -> BucketRecordStore:
        port = (address or self.server_address())[1]
        there = {
            name: value.replace(f":{self.served.port}", f":{port}")
            for name, value in self.served.environment.items()
        }
        with changed_environment(there):
            bucket = ObjectBucket(
                f"{self.url}/queues", "journal.url", PATIENCE_SECONDS, is_new_once=True
            )
        return BucketRecordStore(bucket, 1 << 20)
