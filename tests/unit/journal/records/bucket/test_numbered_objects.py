"""Covers: numbered objects: the end where listings lack something, owners that slept while
others went on and deleted, answers that are refused and not there.

Not covered: the contract of records (tests/conformance/test_records_bucket.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue.connections.bucket import DirectoryBucket, StoredObject
from dejaqueue.errors import Fenced, Unavailable
from dejaqueue.journal.records.bucket.numbered_objects import NumberedObjects


class LateBucket(DirectoryBucket):
    """A bucket that may be late, and that counts.

    Attributes:
        lists: so many of the objects are in a listing.
        refuses: storing a new object says that there is one.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root, "journal")
        self.lists = 1 << 20
        self.refuses = False
        self.calls: list[str] = []

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        self.calls.append("list")
        return iter(list(super().objects(prefix))[: self.lists])

    def put_new(self, name: str, content: bytes | memoryview) -> bool:
        self.calls.append("put")
        return not self.refuses and super().put_new(name, content)


@pytest.fixture
def bucket(tmp_path: Path) -> LateBucket:
    return LateBucket(tmp_path)


def opened(bucket: LateBucket) -> NumberedObjects:
    return NumberedObjects(bucket, "logs/t/00000", "t/0")


def filled(bucket: LateBucket, count: int) -> NumberedObjects:
    objects = opened(bucket)
    for after in range(count):
        objects.append(after, [b"%d" % (after + 1)])
    return objects


@pytest.mark.parametrize("lists", [0, 1, 5, 100])
@pytest.mark.parametrize("dropped", [0, 4, 10])
def test_the_end_is_found_whatever_a_listing_lacks(
    bucket: LateBucket, lists: int, dropped: int
) -> None:
    filled(bucket, 10).drop_before(dropped)
    bucket.lists = lists
    assert opened(bucket).last() == 10


def test_who_knows_the_end_lists_nothing(bucket: LateBucket) -> None:
    objects = filled(bucket, 3)
    bucket.calls.clear()
    assert objects.last() == 3
    assert bucket.calls == []


def test_the_end_is_found_when_what_was_known_is_gone(bucket: LateBucket) -> None:
    slept, owner = filled(bucket, 3), opened(bucket)
    for after in range(3, 9):
        owner.append(after, [b"x"])
    owner.drop_before(8)
    assert slept.last() == 9


def test_who_slept_while_others_went_on_and_deleted_is_fenced(bucket: LateBucket) -> None:
    slept, owner = filled(bucket, 3), opened(bucket)
    owner.append(3, [b"4"])
    for after in range(4, 9):
        owner.append(after, [b"x"])
    owner.drop_before(9)
    assert opened(bucket).get(4) is None, "the place is free, though it is taken"
    with pytest.raises(Fenced, match="the last record is not 3"):
        slept.append(3, [b"mine", b"mine, too"])
    assert [slept.get(4), slept.get(5)] == [None, None]
    assert (slept.last(), owner.last()) == (9, 9)


def test_who_knows_nothing_begins_no_log_that_was_dropped_from_below(bucket: LateBucket) -> None:
    filled(bucket, 5).drop_before(4)
    with pytest.raises(Fenced):
        opened(bucket).append(0, [b"x"])
    assert opened(bucket).get(1) is None


def test_a_floor_that_somebody_slow_set_back_fences_all_the_same(bucket: LateBucket) -> None:
    slept, owner = filled(bucket, 3), opened(bucket)
    for after in range(3, 9):
        owner.append(after, [b"x"])
    owner.drop_before(8)
    bucket.put("logs/t/00000/floor", b"2")
    with pytest.raises(Fenced):
        slept.append(3, [b"mine"])


def test_what_the_store_took_twice_was_appended(bucket: LateBucket) -> None:
    """A library, or something between, may ask again when it had no answer."""
    bucket.put_new("logs/t/00000/" + "1".zfill(20), b"mine")
    objects = opened(bucket)
    objects.append(0, [b"mine"])
    assert objects.last() == 1
    with pytest.raises(Fenced):
        opened(bucket).append(0, [b"another"])


def test_what_was_refused_and_is_not_there_is_unknown(bucket: LateBucket) -> None:
    bucket.refuses = True
    with pytest.raises(Unavailable, match="was refused, and is not there"):
        opened(bucket).append(0, [b"x"])


def test_the_last_one_is_never_deleted(bucket: LateBucket) -> None:
    objects = filled(bucket, 3)
    objects.drop_before(99)
    objects.drop_before(2)  # slow, and of before
    assert (objects.listed(), objects.floor(), objects.last()) == ({3: 1}, 3, 3)
