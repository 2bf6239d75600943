"""Covers: a bucket of an object store, over S3's protocol, against a server on this machine.

Not covered: Azure's store (tests/conformance/test_object_stores.py) and Google's, which the library
speaks to as well; whole backups in S3 (tests/integration/test_backup.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dejaqueue.connections.object_bucket import ObjectBucket
from dejaqueue.errors import BadRequest, Unavailable
from tests.backups import check_bucket
from tests.object_store import S3Server, s3_server


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    yield from s3_server()


def test_objects_of_a_store_are_stored_once(server: S3Server) -> None:
    check_bucket(ObjectBucket(server.new_bucket()))
    check_bucket(ObjectBucket(f"{server.new_bucket()}/with/prefix"))


def test_a_bucket_that_is_not_there_is_told(server: S3Server) -> None:
    with pytest.raises(Unavailable, match=r"storing a at s3://never-made failed"):
        ObjectBucket("s3://never-made").put_new("a", b"")


def test_a_url_that_the_store_does_not_take_is_refused() -> None:
    with pytest.raises(BadRequest, match="what the store takes"):
        ObjectBucket("s3://")
