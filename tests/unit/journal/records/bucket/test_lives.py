"""Covers: appends of many partitions in one container, how often, and what becomes of them when
answers are lost.

Not covered: who owns what (test_ownership_log.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dejaqueue.errors import Fenced, Unavailable
from dejaqueue.journal.records.bucket import lives as lives_module
from dejaqueue.journal.records.bucket.ownership import Ownership
from dejaqueue.journal.records.bucket.store import BucketRecordStore
from dejaqueue.journal.records.interface import RecordLog
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.patience import until
from tests.unit.journal.records.bucket.played import PlayedBucket, store_in


@pytest.fixture
def played(tmp_path: Path) -> Iterator[tuple[BucketRecordStore, PlayedBucket]]:
    store, bucket = store_in(tmp_path)
    yield store, bucket
    store.close()


def owned(store: BucketRecordStore, count: int) -> list[RecordLog]:
    """Logs with a record each."""
    logs = [store.open("t", number) for number in range(count)]
    for log in logs:
        log.append(0, [[b"1"]])
    return logs


def test_what_waits_goes_into_one_container(
    played: tuple[BucketRecordStore, PlayedBucket],
) -> None:
    store, bucket = played
    logs = owned(store, 20)
    bucket.puts.clear()
    arrived, go_on = threading.Event(), threading.Event()

    def hold(name: str) -> None:
        bucket.before_put = lambda _: None
        arrived.set()
        assert go_on.wait(60)

    bucket.before_put = hold
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(logs[0].append, 1, [[b"2"]])
        assert arrived.wait(60)
        rest = [pool.submit(log.append, 1, [[b"2"]]) for log in logs[1:]]
        while len(store.lives._queue) < len(rest):
            pass
        go_on.set()
        for answer in [first, *rest]:
            answer.result()
    assert len(bucket.puts) == 2
    assert [list(log.read(1, 9)) for log in logs] == [[(1, b"1"), (2, b"2")]] * 20


def test_one_that_cannot_go_on_keeps_no_other_out(
    played: tuple[BucketRecordStore, PlayedBucket],
) -> None:
    store, _ = played
    one, other = owned(store, 2)
    group = [
        lives_module.Waiting("one", one._own, 0, [b"x"]),  # type: ignore[attr-defined]
        lives_module.Waiting("other", other._own, 1, [b"2"]),  # type: ignore[attr-defined]
        lives_module.Waiting("other", other._own, 2, [b"3"]),  # type: ignore[attr-defined]
        lives_module.Waiting("other", other._own, 2, [b"x"]),  # type: ignore[attr-defined]
    ]
    store.lives._store(group)
    assert [type(waiting.error) for waiting in group] == [Fenced, type(None), type(None), Fenced]
    assert list(other.read(1, 9)) == [(1, b"1"), (2, b"2"), (3, b"3")]


@pytest.mark.parametrize("lose", ["before", "after", "late"])
def test_what_became_of_a_lost_answer_is_found_by_whatever_comes_next(
    played: tuple[BucketRecordStore, PlayedBucket], lose: str
) -> None:
    store, bucket = played
    one, other = owned(store, 2)
    bucket.lose = [lose]
    with pytest.raises(Unavailable):
        one.append(1, [[b"lost?"]])
    other.append(1, [[b"2"]])  # has the place of the one that was lost, or comes behind it
    if lose == "late":
        assert bucket.arrive() == [False]
    if lose == "after":
        with pytest.raises(Fenced):
            one.append(1, [[b"barrier"]])
        assert list(one.read(1, 9)) == [(1, b"1"), (2, b"lost?")]
    else:
        one.append(1, [[b"barrier"]])
        assert list(one.read(1, 9)) == [(1, b"1"), (2, b"barrier")]
    assert list(other.read(1, 9)) == [(1, b"1"), (2, b"2")]
    assert one.last() == 2


def test_the_end_is_asked_for_after_a_lost_answer(
    played: tuple[BucketRecordStore, PlayedBucket],
) -> None:
    store, bucket = played
    [log] = owned(store, 1)
    bucket.lose = ["after"]
    with pytest.raises(Unavailable):
        log.append(1, [[b"2"]])
    assert log.last() == 2


def test_an_append_costs_one_request(played: tuple[BucketRecordStore, PlayedBucket]) -> None:
    store, bucket = played
    [log] = owned(store, 1)
    bucket.puts.clear()
    bucket.reads.clear()
    for after in range(1, 10):
        log.append(after, [[b"x"]])
    assert (len(bucket.puts), bucket.reads) == (9, [])


def test_containers_are_so_far_apart_while_there_is_something_to_append(tmp_path: Path) -> None:
    clock = VirtualClock()
    store = BucketRecordStore(PlayedBucket(tmp_path), between_ms=100, clock=clock)
    log = store.open("t", 0)
    log.append(0, [[b"1"]])
    began_us = clock.now_us()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(log.append, 1, [[b"2"]])
        while not answer.done():
            clock.advance(us=1_000)
    assert clock.now_us() - began_us >= 100_000
    clock.advance(us=1_000_000)
    began_us = clock.now_us()
    log.append(2, [[b"3"]])
    assert clock.now_us() == began_us, "after a silence it does not wait"
    store.close()


def test_those_who_were_answered_last_are_waited_for__a_moment_at_most(tmp_path: Path) -> None:
    clock, bucket = VirtualClock(), PlayedBucket(tmp_path)
    store = BucketRecordStore(bucket, between_ms=1, clock=clock)
    one, other = logs = [store.open("t", number) for number in range(2)]

    def together(after: int) -> None:
        clock.advance(us=1_000_000)
        store.lives._store([
            lives_module.Waiting(f"{number}", log._own, after, [b"x"])  # type: ignore[attr-defined]
            for number, log in enumerate(logs)
        ])  # fmt: skip
        bucket.puts.clear()

    with ThreadPoolExecutor(2) as pool:
        for log in logs:
            answer = pool.submit(log.append, 0, [[b"x"]])
            while not answer.done():
                clock.advance(us=1_000)
        together(1)
        first = pool.submit(one.append, 2, [[b"x"]])
        until(lambda: store.lives._queue)
        second = pool.submit(other.append, 2, [[b"x"]])
        for answer in (first, second):
            answer.result(60)  # though the clock stands still
        assert len(bucket.puts) == 1
        together(3)
        began_us = clock.now_us()
        first = pool.submit(one.append, 4, [[b"x"]])
        while not first.done():
            clock.advance(us=1_000)
        assert clock.now_us() - began_us >= lives_module.FOLLOWING_US
        assert len(bucket.puts) == 1
    store.close()


def test_large_appends_are_stored_apart(
    played: tuple[BucketRecordStore, PlayedBucket], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = played
    monkeypatch.setattr(lives_module, "CONTAINER_BYTES_MAX", 10)
    sizes = [4, 4, 4, 20, 1]
    waiting = [
        lives_module.Waiting("", Ownership(1, str(n), "life", 1), 0, [b"x" * n]) for n in sizes
    ]
    store.lives._queue = list(waiting)
    groups = []
    while store.lives._queue:
        groups.append([one.byte_count for one in store.lives._taken_from_queue()])
    assert groups == [[4, 4], [4], [20], [1]]


def test_the_index_is_stored_now_and_then(
    played: tuple[BucketRecordStore, PlayedBucket], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, bucket = played
    monkeypatch.setattr(lives_module, "INDEX_CONTAINERS", 5)
    [log] = owned(store, 1)
    for after in range(1, 40):
        log.append(after, [[b"x"]])
        log.drop_before(after)
    store.close()  # when it is done in the background
    assert len(bucket.containers()) < 20


def test_an_index_that_cannot_be_stored_stays_for_the_next_time(
    played: tuple[BucketRecordStore, PlayedBucket],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, bucket = played
    [log] = owned(store, 1)
    with monkeypatch.context() as patch:

        def away(name: str, content: bytes) -> None:
            raise Unavailable("503 Slow Down")

        patch.setattr(bucket, "put", away)
        store.lives._index()
    assert "containers that nobody needs stay for now: 503 Slow Down" in caplog.text
    log.append(1, [[b"2"]])
    log.drop_before(2)
    store.lives._index()
    assert len(bucket.containers()) == 1
