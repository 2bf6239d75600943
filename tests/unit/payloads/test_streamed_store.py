"""Covers: payloads in parts on a directory and on S3, plain and sealed: what is stored comes back,
what is in another's place is told, copies are whole or refused.

Not covered: who may store and read them (tests/unit/broker/payloads/test_streamed.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue.errors import BadRequest, JournalDamaged
from dejaqueue.payloads.payload_store import PayloadStore, open_payload_store
from dejaqueue.payloads.streamed_store import (
    copy_parts,
    end_parts,
    get_list,
    get_part,
    keep_parts,
    put_part,
)
from dejaqueue.schema.payload_parts import PartList
from dejaqueue.schema.references import Reference
from tests.object_store import S3Server, s3_server

KEY = b"k" * 32
NAME = "id/uploads/abc/"
PARTS = (b"first part", b"other part", b"end")
LIST = PartList(23, 10, b"".join(hashlib.sha256(part).digest() for part in PARTS))


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    yield from s3_server()


@pytest.fixture(params=["directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> PayloadStore:
    url = str(tmp_path / "payloads")
    if request.param == "s3":
        url = f"{request.getfixturevalue('server').new_bucket()}/with/prefix"
    return open_payload_store(url, lambda: 0)


def put_all(store: PayloadStore, key: bytes) -> Reference:
    for index, part in enumerate(PARTS):
        put_part(store, NAME, index, memoryview(part), key)
    return end_parts(store, NAME, LIST, key)


@pytest.mark.parametrize("key", [b"", KEY])
def test_parts_come_back_and_a_copy_outlives_them(store: PayloadStore, key: bytes) -> None:
    reference = put_all(store, key)
    assert (reference.is_streamed, reference.byte_count) == (True, 23)
    copy = copy_parts(store, reference, "id/1-t/def/")
    names = [one.name for one in store.objects(NAME)]
    assert len(names) == 4
    store.delete(names)
    assert copy_parts(store, reference, "id/1-t/def/") == copy  # it was done before
    assert get_list(store, copy) == LIST
    assert tuple(get_part(store, copy, index) for index in range(3)) == PARTS
    with pytest.raises(JournalDamaged, match="is missing"):
        copy_parts(store, reference, "id/1-t/other/")


@pytest.mark.parametrize("key", [b"", KEY])
def test_what_is_missing_or_has_another_length_ends_no_upload(
    store: PayloadStore, key: bytes
) -> None:
    put_part(store, NAME, 0, PARTS[0], key)
    put_part(store, NAME, 2, PARTS[2], key)
    with pytest.raises(BadRequest, match="part 1: stored with 10 bytes, got: None"):
        end_parts(store, NAME, LIST, key)
    put_part(store, NAME, 1, b"short", key)
    with pytest.raises(BadRequest, match="part 1: stored with 10 bytes, got: 5"):
        end_parts(store, NAME, LIST, key)


def test_a_sealed_part_in_the_place_of_another_is_told(store: PayloadStore) -> None:
    reference = put_all(store, KEY)
    first = store.get_object(f"{NAME}00000")
    assert first is not None
    assert PARTS[0] not in first
    store.put_object(f"{NAME}00001", first)
    with pytest.raises(JournalDamaged, match="00001 is not what was stored"):
        get_part(store, reference, 1)
    store.put_object(f"{NAME}list", first)
    with pytest.raises(JournalDamaged, match="list is not what was stored"):
        get_list(store, reference)


def test_a_part_that_is_missing_breaks_a_copy(store: PayloadStore) -> None:
    reference = put_all(store, b"")
    store.delete([f"{NAME}00001"])
    with pytest.raises(JournalDamaged, match="00001 is missing"):
        copy_parts(store, reference, "id/1-t/def/")


@pytest.mark.parametrize("key", [b"", KEY])
def test_one_message_alone_keeps_the_parts_of_an_upload(store: PayloadStore, key: bytes) -> None:
    reference = put_all(store, key)
    assert [keep_parts(store, reference) for _ in range(3)] == [True, False, False]
    other = put_all(store, key)._replace(name="id/uploads/gone/")
    with pytest.raises(JournalDamaged, match="is missing"):
        keep_parts(store, other)
