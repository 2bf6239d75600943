"""Covers: what a store in a bucket refuses, and reading ahead.

Not covered: the contract of records and objects (tests/conformance/test_records_bucket.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dejaqueue.connections.bucket import DirectoryBucket
from dejaqueue.errors import BadRequest, Refused
from dejaqueue.journal.records.bucket.store import (
    HEAD,
    READS_AT_ONCE,
    BucketRecordStore,
    open_records,
    read_ahead,
)
from dejaqueue.journal.registry import open_store


class Careless(DirectoryBucket):
    """A bucket that does not know the condition, as some stores do not."""

    def put_new(self, name: str, content: bytes | memoryview) -> bool:
        self.put(name, content)
        return True


def test_a_store_that_ignores_the_condition_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="If-None-Match"):
        BucketRecordStore(Careless(tmp_path, "journal"))


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (b"{}", "is not of a journal"),
        (b"half", "is not of a journal"),
        (b'{"dejaq": "journal", "format": 99}', "has format 99, this is 1"),
    ],
)
def test_what_is_no_journal_of_this_version_is_refused(
    tmp_path: Path, head: bytes, text: str
) -> None:
    (tmp_path / HEAD).write_bytes(head)
    with pytest.raises(Refused, match=text):
        BucketRecordStore(DirectoryBucket(tmp_path, "journal"))


def test_a_url_names_a_directory__or_is_refused(tmp_path: Path) -> None:
    store = open_records(f"bucket://{tmp_path}/b")
    assert store.summary == f"bucket file://{tmp_path}/b"
    store.close()
    with pytest.raises(BadRequest, match="bucket:///path"):
        open_records("bucket://relative")


def test_a_journal_is_opened_by_its_url(tmp_path: Path) -> None:
    for _ in range(2):
        store = open_store(f"bucket://{tmp_path}/b")
        store.make("t")
        assert store.made() == ["t"]
        store.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(READS_AT_ONCE) as made:
        yield made


def test_several_are_read_at_once_and_come_in_order(pool: ThreadPoolExecutor) -> None:
    together = threading.Barrier(READS_AT_ONCE)

    def get(number: int) -> bytes:
        together.wait(60)
        return b"%d" % number

    numbers = range(5, 5 + 2 * READS_AT_ONCE)
    assert list(read_ahead(pool, get, numbers)) == [(one, b"%d" % one) for one in numbers]


def test_what_is_not_there_is_left_out_and_no_end_is_looked_for_for_ever(
    pool: ThreadPoolExecutor,
) -> None:
    there = {2: b"2", 4: b"4", 5: b"5"}
    asked: list[int] = []

    def get(number: int) -> bytes | None:
        asked.append(number)
        return there.get(number)

    assert list(read_ahead(pool, get, range(1, 1 << 40))) == sorted(there.items())
    assert len(asked) <= 5 + 2 * READS_AT_ONCE
