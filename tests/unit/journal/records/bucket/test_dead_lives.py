"""Covers: which lives' logs are deleted, and that a broker that only slept meets its end."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from dejaqueue.errors import Fenced
from dejaqueue.journal.records.bucket import lives as lives_module
from dejaqueue.journal.records.bucket.dead_lives import bury
from dejaqueue.journal.records.bucket.store import BucketRecordStore
from tests.unit.journal.records.bucket.played import PlayedBucket, store_in
from tests.unit.journal.records.log_cases import contents


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[BucketRecordStore]]:
    made = [store_in(tmp_path)[0] for _ in range(2)]
    yield made
    for one in made:
        one.close()


def buried(by: BucketRecordStore) -> int:
    return bury(by._bucket, by.lives.life, by.lives._log_of)


def containers(store: BucketRecordStore, life: str) -> list[str]:
    assert isinstance(store._bucket, PlayedBucket)
    return [name for name in store._bucket.containers() if life in name]


def test_a_life_goes_when_no_partition_has_records_in_it(
    brokers: list[BucketRecordStore],
) -> None:
    former, next_one = brokers
    for number in range(2):
        former.open("t", number).append(0, [[b"1"]])
    logs = [next_one.open("t", number) for number in range(2)]
    for log in logs:
        log.append(1, [[b"2"]])
    logs[0].drop_before(2)
    assert buried(next_one) == 0
    assert contents(logs[1]) == [(1, b"1"), (2, b"2")]
    logs[1].drop_before(2)
    assert buried(next_one) == 1
    assert [contents(log) for log in logs] == [[(2, b"2")]] * 2
    assert len(containers(next_one, former.lives.life)) == 3, "what takes stays"
    assert buried(next_one) == 0
    assert len(containers(next_one, next_one.lives.life)) == 2


def test_a_broker_that_only_slept_is_fenced_and_lives_again(
    brokers: list[BucketRecordStore],
) -> None:
    former, next_one = brokers
    slept, log = former.open("t", 0), next_one.open("t", 0)
    slept.append(0, [[b"1"]])
    log.append(1, [[b"2"]])
    log.drop_before(2)
    life = former.lives.life
    assert buried(next_one) == 1
    with pytest.raises(Fenced):
        slept.append(1, [[b"mine"]])
    assert former.lives.life != life
    with pytest.raises(Fenced):
        slept.append(1, [[b"mine"]])
    slept.append(2, [[b"3"]])
    other = former.open("t", 1)
    other.append(0, [[b"1"]])
    assert contents(log) == contents(slept) == [(2, b"2"), (3, b"3")]
    with pytest.raises(Fenced):
        log.append(2, [[b"x"]])


def test_what_comes_to_refer_to_a_life_while_it_is_ended_keeps_it(
    brokers: list[BucketRecordStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    former, next_one = brokers
    slept, log = former.open("t", 0), next_one.open("t", 0)
    slept.append(0, [[b"1"]])
    log.append(1, [[b"2"]])
    log.drop_before(2)
    bucket = next_one._bucket
    assert isinstance(bucket, PlayedBucket)

    def wake(name: str) -> None:
        bucket.before_put = lambda _: None
        former.open("t", 1).append(0, [[b"counts"]])

    bucket.before_put = wake
    assert buried(next_one) == 0
    assert contents(next_one.open("t", 1)) == [(1, b"counts")]


def test_the_dead_are_looked_for_when_the_index_is_stored(
    brokers: list[BucketRecordStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lives_module, "INDEX_CONTAINERS", 3)
    former, next_one = brokers
    former.open("t", 0).append(0, [[b"1"]])
    log = next_one.open("t", 0)
    log.append(1, [[b"2"]])
    log.drop_before(2)
    for after in range(2, 9):
        log.append(after, [[b"x"]])
    next_one.close()
    assert len(containers(next_one, former.lives.life)) == 2


def test_nothing_is_deleted_of_what_cannot_be_read(brokers: list[BucketRecordStore]) -> None:
    former, next_one = brokers
    former.open("t", 0).append(0, [[b"1"]])
    log = next_one.open("t", 0)
    log.append(1, [[b"2"]])
    life = former.lives.life
    before = containers(next_one, life)
    next_one._bucket.put("owners/t/00007/" + "1".zfill(20), b"rotten")
    with pytest.raises(Exception, match="not what was written"):
        partial(buried, next_one)()
    assert containers(next_one, life) == before
