"""Covers: partitions that change hands: what counts of the former owner, whoever sleeps, races and
loses answers; reading across owners; room.

Not covered: the contract (tests/conformance/test_records_bucket.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue.errors import Fenced, Unavailable
from dejaqueue.journal.records.bucket.store import BucketRecordStore
from dejaqueue.journal.records.interface import RecordLog
from tests.unit.journal.records.bucket.played import PlayedBucket, store_in
from tests.unit.journal.records.log_cases import contents


class Broker:
    """A life of a broker."""

    def __init__(self, root: Path) -> None:
        self.store, self.bucket = store_in(root)
        self.log = self.store.open("t", 0)

    def beside(self) -> RecordLog:
        """Another partition."""
        return self.store.open("t", 1)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[Broker]]:
    made = [Broker(tmp_path) for _ in range(3)]
    yield made
    for one in made:
        one.store.close()


def test_who_is_overtaken_is_fenced_at_the_next_append_and_loses_no_other(
    brokers: list[Broker],
) -> None:
    former, next_one, _ = brokers
    former.log.append(0, [[b"1"]])
    beside = former.beside()
    beside.append(0, [[b"b1"]])
    next_one.log.append(1, [[b"2"]])
    with pytest.raises(Fenced, match="another owner has taken it over"):
        former.log.append(1, [[b"mine"]])
    beside.append(1, [[b"b2"]])
    assert contents(next_one.log) == contents(former.log) == [(1, b"1"), (2, b"2")]
    assert contents(beside) == [(1, b"b1"), (2, b"b2")]


def test_who_slept_while_its_containers_were_deleted_is_fenced(brokers: list[Broker]) -> None:
    former, next_one, _ = brokers
    former.log.append(0, [[b"1"]])
    for after in range(1, 10):
        next_one.log.append(after, [[b"x"]])
    next_one.log.drop_before(10)
    next_one.store.lives.store_index()
    with pytest.raises(Fenced):
        former.log.append(1, [[b"mine"]])
    former.store.lives.store_index()
    with pytest.raises(Fenced):
        former.log.append(1, [[b"mine"]])
    assert (former.log.last(), next_one.log.last()) == (10, 10)


def test_an_append_that_arrives_after_it_was_taken_over_is_nowhere(brokers: list[Broker]) -> None:
    former, next_one, _ = brokers
    former.log.append(0, [[b"1"]])
    former.bucket.lose = ["late"]
    with pytest.raises(Unavailable):
        former.log.append(1, [[b"late"]])
    next_one.log.append(1, [[b"2"]])
    assert former.bucket.arrive() == [False]
    assert contents(next_one.log) == contents(former.log) == [(1, b"1"), (2, b"2")]


def test_an_append_that_arrives_before_it_is_taken_over_counts(brokers: list[Broker]) -> None:
    former, next_one, _ = brokers
    former.log.append(0, [[b"1"]])
    former.bucket.lose = ["late"]
    with pytest.raises(Unavailable):
        former.log.append(1, [[b"late"]])

    def arrive(name: str) -> None:
        next_one.bucket.before_put = lambda _: None
        assert former.bucket.arrive() == [True]

    next_one.bucket.before_put = arrive  # just before it is told that its ownership ends
    with pytest.raises(Fenced):
        next_one.log.append(1, [[b"2"]])
    next_one.log.append(2, [[b"3"]])
    assert contents(next_one.log) == [(1, b"1"), (2, b"late"), (3, b"3")]


def test_of_two_that_take_over_one_is_the_owner(brokers: list[Broker]) -> None:
    former, one, other = brokers
    former.log.append(0, [[b"1"]])

    def take_over(name: str) -> None:
        if name.startswith("owners/"):
            one.bucket.before_put = lambda _: None
            other.log.append(1, [[b"of the other"]])

    one.bucket.before_put = take_over
    with pytest.raises(Fenced):
        one.log.append(1, [[b"of one"]])
    assert contents(one.log) == contents(other.log) == [(1, b"1"), (2, b"of the other")]


@pytest.mark.parametrize("lose", ["before", "after"])
@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_take_over_whose_answer_is_lost_is_made_again(
    brokers: list[Broker], lose: str, place: int
) -> None:
    former, next_one, _ = brokers
    former.log.append(0, [[b"1"]])
    next_one.bucket.lose = [*[""] * (place - 1), lose]
    with pytest.raises(Unavailable):
        next_one.log.append(1, [[b"2"]])
    try:
        next_one.log.append(1, [[b"barrier"]])
        found = b"barrier"
    except Fenced:
        found = b"2"
    assert (found == b"2") == (lose == "after" and place == 3)
    assert contents(next_one.log) == [(1, b"1"), (2, found)]


def test_a_stranger_that_is_behind_takes_nothing(brokers: list[Broker]) -> None:
    former, stranger, _ = brokers
    former.log.append(0, [[b"1"], [b"2"]])
    with pytest.raises(Fenced):
        stranger.log.append(1, [[b"x"]])
    former.log.append(2, [[b"3"]])
    assert contents(stranger.log) == [(1, b"1"), (2, b"2"), (3, b"3")]


def test_a_partition_that_comes_back_is_read_over_all_its_owners(brokers: list[Broker]) -> None:
    for after in range(12):
        brokers[after % 3].log.append(after, [[b"%d" % (after + 1)]])
    wanted = [(number, b"%d" % number) for number in range(1, 13)]
    for one in brokers:
        assert contents(one.log) == wanted
        for first in range(1, 14):
            assert list(one.log.read(first, 11)) == wanted[first - 1 : 10]


def test_owners_of_before_are_forgotten_with_their_last_record(brokers: list[Broker]) -> None:
    former, next_one, _ = brokers
    former.log.append(0, [[b"1"], [b"2"]])
    former.beside().append(0, [[b"b"]])
    next_one.log.append(2, [[b"3"]])
    owners = "owners/t/00000/"
    next_one.log.drop_before(2)
    assert len(list(next_one.bucket.objects(owners))) == 2
    next_one.log.drop_before(3)
    assert [one.name[-3:] for one in next_one.bucket.objects(owners)] == ["002", "oor"]
    with pytest.raises(Fenced):
        former.log.append(2, [[b"x"]])
    former.store.lives.store_index()
    mine = [one for one in former.bucket.containers() if former.store.lives.life in one]
    assert len(mine) == 2, "that of the partition beside, and the one that took"
    assert contents(next_one.log) == contents(former.log) == [(3, b"3")]


def test_records_of_a_former_owner_stay_while_they_are_needed(brokers: list[Broker]) -> None:
    former, next_one, _ = brokers
    former.log.append(0, [[b"1"], [b"2"]])
    next_one.log.append(2, [[b"3"]])
    with pytest.raises(Fenced):
        former.log.append(2, [[b"x"]])
    former.log.drop_before(99)
    former.store.lives.store_index()
    assert contents(next_one.log) == [(1, b"1"), (2, b"2"), (3, b"3")]


def test_whoever_has_a_dropped_log_open_appends_nothing(brokers: list[Broker]) -> None:
    former, next_one, _ = brokers
    former.log.append(0, [[b"1"]])
    next_one.store.drop("t")
    with pytest.raises(Fenced):
        former.log.append(1, [[b"2"]])
    again = next_one.store.open("t", 0)
    again.append(0, [[b"new"]])
    assert contents(again) == contents(former.log) == [(1, b"new")]


def test_two_who_have_it_open_in_one_life_do_not_both_write(brokers: list[Broker]) -> None:
    first = brokers[0].log
    second = brokers[0].store.open("t", 0)
    first.append(0, [[b"1"]])
    second.append(1, [[b"2"]])
    with pytest.raises(Fenced):
        first.append(1, [[b"x"]])
    first.append(2, [[b"3"]])
    assert contents(second) == [(1, b"1"), (2, b"2"), (3, b"3")]


def test_a_listing_that_is_late_hides_nothing(brokers: list[Broker]) -> None:
    for after in range(9):
        brokers[after % 3].log.append(after, [[b"x"]])
    late = Broker(brokers[0].bucket._root)
    late.bucket.lists = 0
    assert late.log.last() == 9
    late.log.append(9, [[b"10"]])
    with pytest.raises(Fenced):
        brokers[2].log.append(9, [[b"x"]])
    late.store.close()


def test_stores_are_made_of_the_bucket_alone(brokers: list[Broker], tmp_path: Path) -> None:
    brokers[0].log.append(0, [[b"1"]])
    store = BucketRecordStore(PlayedBucket(tmp_path))
    log = store.open("t", 0)
    assert (contents(log), log.byte_count()) == ([(1, b"1")], 1)
    store.close()
