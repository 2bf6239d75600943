"""Covers: the log of a life as others read it, its index, and the room that is given back.

Not covered: appending to it (test_lives.py), and who owns what (test_ownership_log.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.records.bucket.container import HEAD_READ_BYTES, decode_head, encode_records
from dejaqueue.journal.records.bucket.life_log import LifeLog, ReadSeveral, Where
from dejaqueue.journal.records.bucket.store import read_ahead
from tests.patience import PATIENCE_SECONDS
from tests.unit.journal.records.bucket.played import PlayedBucket


@pytest.fixture
def bucket(tmp_path: Path) -> PlayedBucket:
    return PlayedBucket(tmp_path)


@pytest.fixture
def several() -> Iterator[ReadSeveral]:
    with ThreadPoolExecutor(4) as pool:
        yield partial(read_ahead, pool)


@pytest.fixture
def own(bucket: PlayedBucket, several: ReadSeveral) -> LifeLog:
    return LifeLog(bucket, "a", several)


@pytest.fixture
def other(bucket: PlayedBucket, several: ReadSeveral) -> LifeLog:
    """What another broker knows of it."""
    return LifeLog(bucket, "a", several)


def write(log: LifeLog, *parts: tuple[str, int, list[bytes]]) -> None:
    content = encode_records(parts)
    number = log.next
    assert log.put(number, content)
    log.apply(number, decode_head(content, "here"))


def test_others_read_what_was_written_to_its_end(own: LifeLog, other: LifeLog) -> None:
    other.refresh()
    assert (other.next, other.last_of("a", 7)) == (1, 6)
    for number in range(7, 60, 2):
        write(own, ("a", number, [b"x", b"yy"]), ("b", number, [b"1", b"2"]))
    other.refresh()
    assert (other.next, other.last_of("a", 7), other.last_of("b", 7)) == (own.next, 60, 60)
    assert other.where("a", 60) == own.where("a", 60)
    assert other.where("a", 61) is None


def test_a_head_that_is_longer_than_most_is_read_whole(own: LifeLog, other: LifeLog) -> None:
    write(own, *[(f"ownership-{n:020d}", 1, [b"x"]) for n in range(HEAD_READ_BYTES // 20)])
    other.refresh()
    assert other.records.keys() == own.records.keys()


def test_records_behind_the_one_that_takes_them_do_not_count(own: LifeLog, other: LifeLog) -> None:
    """Their writer slept, and does not know."""
    write(own, ("a", 1, [b"1"]), ("b", 1, [b"1"]))
    other.take(["a"], "another")
    own.next += 1  # as if it did not meet it
    write(own, ("a", 2, [b"2"]), ("b", 2, [b"2"]))
    other.refresh()
    assert (other.last_of("a", 1), other.last_of("b", 1)) == (1, 2)


def test_who_takes_knows_all_that_counts(
    own: LifeLog, other: LifeLog, bucket: PlayedBucket
) -> None:
    other.refresh()

    def write_first(name: str) -> None:
        bucket.before_put = lambda _: None
        write(own, ("a", 1, [b"1"]))

    bucket.before_put = write_first
    other.take(["a"], "another")
    assert (other.last_of("a", 1), other.next) == (1, 3)
    other.take(["a"], "another")
    assert other.next == 3, "once is enough"


def test_room_is_given_back_and_others_go_on(
    own: LifeLog, other: LifeLog, bucket: PlayedBucket
) -> None:
    for number in range(1, 31):
        write(own, ("a", number, [b"x"]))
        if number == 3:
            write(own, ("idle", 1, [b"y"]))
    other.refresh()
    own.drop_before("a", 31)
    own.store_index()
    assert len(bucket.containers()) == 1, "one that is idle holds its own container alone"
    for number in range(31, 34):
        write(own, ("a", number, [b"x"]))
    other.refresh()
    late = LifeLog(bucket, "a", own._read_several)
    late.refresh()
    for log in (other, late):
        assert (log.next, log.last_of("a", 1)) == (own.next, 33)
        assert log.where("idle", 1) == own.where("idle", 1) is not None
    assert (late.where("a", 30), late.where("a", 31)) == (None, own.where("a", 31))


def test_the_last_number_stays_when_no_record_does(own: LifeLog, other: LifeLog) -> None:
    write(own, ("a", 1, [b"1", b"2"]))
    own.drop_before("a", 99)
    own.store_index()
    other.refresh()
    assert (other.last_of("a", 1), other.where("a", 2)) == (2, None)


def test_what_takes_is_never_deleted(own: LifeLog, other: LifeLog, bucket: PlayedBucket) -> None:
    """Whoever sleeps, and finds the place free, would go on as if nothing had been."""
    write(own, ("a", 1, [b"1"]))
    other.take(["a"], "another")
    own.refresh()
    own.forget("a")
    own.store_index()
    assert bucket.containers() == [own.name(2)]


def test_a_hole_in_an_ownership_is_damage(own: LifeLog) -> None:
    write(own, ("a", 1, [b"1"]))
    with pytest.raises(JournalDamaged, match="record 3 where 2 comes next"):
        write(own, ("a", 3, [b"3"]))


def test_a_container_that_is_damaged_is_refused_by_its_name(
    own: LifeLog, other: LifeLog, bucket: PlayedBucket
) -> None:
    write(own, ("a", 1, [b"1"]))
    content = bucket.get(own.name(1))
    assert content is not None
    bucket.put(own.name(1), content[:30] + b"?" + content[31:])
    with pytest.raises(JournalDamaged, match="lives/a/00000000000000000001: its head"):
        other.refresh()


def test_one_that_is_known_is_not_taken_in_twice(own: LifeLog) -> None:
    content = encode_records([("a", 1, [b"12"])])
    head = decode_head(content, "here")
    own.apply(1, head)
    own.apply(1, head)
    assert (own.next, own.last_of("a", 1)) == (2, 1)
    assert own.where("a", 1) == Where(1, head.runs[0].offset, 2)


ANSWER_SECONDS = 20.0
"""Nothing is asked of the bucket."""


class Slow(PlayedBucket):
    """A bucket in which one object takes its time."""

    slow_name = ""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.is_asked, self.goes_on = threading.Event(), threading.Event()

    def get_range(self, name: str, offset: int, byte_count: int) -> bytes | None:
        if name == self.slow_name:
            self.is_asked.set()
            assert self.goes_on.wait(PATIENCE_SECONDS)
        return super().get_range(name, offset, byte_count)


def test_while_what_has_come_is_read_others_find_what_is_known(
    tmp_path: Path, several: ReadSeveral
) -> None:
    """Where a record is was asked on threads of the pool, all of which waited until what had come
    was read; and that waited for a thread of the pool, for ever."""
    bucket, own_pool = Slow(tmp_path), ThreadPoolExecutor(4)
    own, other = LifeLog(bucket, "a", several), LifeLog(bucket, "a", partial(read_ahead, own_pool))
    write(own, ("a", 1, [b"x"]))
    other.refresh()
    write(own, ("a", 2, [b"y"]))
    write(own, ("a", 3, [b"z"]))
    bucket.slow_name = own.name(2)
    known: list[Where | None] = []

    def look(_: int) -> bytes:
        known.append(other.where("a", 1))
        return b"there"

    with own_pool, ThreadPoolExecutor(2) as beside:
        read = beside.submit(other.refresh)
        try:
            assert bucket.is_asked.wait(PATIENCE_SECONDS)
            beside.submit(lambda: list(several(look, range(9)))).result(ANSWER_SECONDS)
            assert known == [own.where("a", 1)] * 9
            assert other.last_of("a", 1) == 1
        finally:
            bucket.goes_on.set()
        read.result(PATIENCE_SECONDS)
    assert (other.next, other.last_of("a", 1)) == (own.next, 3)


def test_what_another_thread_has_read_meanwhile_does_not_end_a_read(
    tmp_path: Path, several: ReadSeveral
) -> None:
    """What was there before is known afterwards, whoever read it."""
    bucket = Slow(tmp_path)
    own, other = LifeLog(bucket, "a", several), LifeLog(bucket, "a", several)
    for number in range(1, 6):
        write(own, ("a", number, [b"x"]))
    bucket.slow_name = own.name(1)
    with ThreadPoolExecutor(1) as beside:
        read = beside.submit(other.refresh)
        assert bucket.is_asked.wait(PATIENCE_SECONDS)
        for number in range(1, 4):  # as who takes it over has them from its own puts
            content = bucket.get(own.name(number))
            assert content is not None
            other.apply(number, decode_head(content, "here"))
        bucket.goes_on.set()
        read.result(PATIENCE_SECONDS)
    assert other.last_of("a", 1) == 5
