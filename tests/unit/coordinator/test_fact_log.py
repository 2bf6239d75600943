"""Covers: the log of facts: bases, who slept while entries were deleted, damage, bad stores."""

from __future__ import annotations

import pytest

from dejaqueue.coordinator.fact_log import (
    BASE_EVERY,
    KEPT_S,
    PROOF_S,
    READ_AT_ONCE,
    FactLog,
)
from dejaqueue.coordinator.fact_table import PUT, Change
from dejaqueue.errors import JournalDamaged, Refused, Unavailable
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.memory_bucket import MemoryBucket


class Logs:
    """Logs in one bucket, on one clock."""

    def __init__(self) -> None:
        self.bucket, self.clock = MemoryBucket(), VirtualClock()

    def open(self) -> FactLog:
        made = FactLog(self.bucket, self.clock)
        made.read_on()
        return made

    def pass_seconds(self, seconds: float) -> None:
        self.clock.advance(ms=round(seconds * 1_000))

    def write(self, log: FactLog, count: int) -> None:
        for _ in range(count):
            number = log.next_number
            is_stored, _ = log.append([Change(PUT, "count", b"%d" % number)])
            assert is_stored


@pytest.fixture
def logs() -> Logs:
    return Logs()


def count_of(log: FactLog) -> int:
    log.read_on()
    kept = log.table.get("count")
    return 0 if kept is None else int(kept.fact.value)


def test_who_opens_it_reads_a_base_and_what_is_behind__and_no_more(logs: Logs) -> None:
    writer = logs.open()
    logs.write(writer, 3 * BASE_EVERY + 2)
    logs.pass_seconds(KEPT_S)
    writer.clean()
    assert len(logs.bucket.content) == 1 + 1 + 2  # where to begin, a base, and two entries
    logs.bucket.requests.clear()
    reader = logs.open()
    assert count_of(reader) == 3 * BASE_EVERY + 2
    assert logs.bucket.requests["get"] <= 2 + 1 + READ_AT_ONCE + 1
    assert logs.bucket.requests["list"] == 0


def test_of_two_that_store_at_once_one_has_the_place(logs: Logs) -> None:
    one, other = logs.open(), logs.open()
    logs.write(one, 1)
    is_stored, came = other.append([Change(PUT, "other", b"")])
    assert not is_stored
    assert [entry.changed for entry in came] == [{"count"}]
    assert other.append([Change(PUT, "other", b"")])[0]
    assert one.read_on()[0].changed == {"other"}


@pytest.mark.parametrize("slept_from", [1, 5, BASE_EVERY, BASE_EVERY + 3])
@pytest.mark.parametrize("is_cleaned", [False, True])
def test_who_slept_stores_nothing_where_others_have_been(
    logs: Logs, slept_from: int, *, is_cleaned: bool
) -> None:
    writer, sleeper = logs.open(), logs.open()
    logs.write(writer, slept_from)
    sleeper.read_on()
    logs.write(writer, 3 * BASE_EVERY - slept_from)
    if is_cleaned:
        logs.pass_seconds(KEPT_S)
        writer.clean()
    before = set(logs.bucket.content)
    is_stored, _ = sleeper.append([Change(PUT, "slept", b"")])
    assert not is_stored
    assert set(logs.bucket.content) == before
    assert count_of(sleeper) == 3 * BASE_EVERY
    assert sleeper.append([Change(PUT, "slept", b"")])[0]
    writer.read_on()
    assert writer.table.get("slept") is not None


def test_who_slept_does_not_take_a_deleted_place_for_the_end(logs: Logs) -> None:
    writer, sleeper = logs.open(), logs.open()
    logs.write(writer, 5)
    assert count_of(sleeper) == 5
    logs.write(writer, 3 * BASE_EVERY)
    logs.pass_seconds(KEPT_S)
    writer.clean()
    assert count_of(sleeper) == 3 * BASE_EVERY + 5


def test_where_nothing_comes_a_look_is_one_request(logs: Logs) -> None:
    log = logs.open()
    logs.write(log, 3)
    logs.bucket.requests.clear()
    for _ in range(10):
        log.read_on()
    assert logs.bucket.requests == {"get": 10}
    logs.pass_seconds(PROOF_S + 1)
    log.read_on()
    assert logs.bucket.requests == {"get": 12}


def test_where_to_begin_may_be_said_late_by_somebody_who_slept(logs: Logs) -> None:
    slow = logs.open()
    logs.write(slow, BASE_EVERY)
    logs.pass_seconds(KEPT_S)
    slow.clean()
    old = logs.bucket.content[FactLog.name(0)]
    logs.write(slow, 2 * BASE_EVERY)
    logs.pass_seconds(KEPT_S)
    slow.clean()
    assert FactLog.name(BASE_EVERY) not in logs.bucket.content
    logs.bucket.content[FactLog.name(0)] = old  # of a base that is gone
    assert count_of(logs.open()) == 3 * BASE_EVERY


def test_a_lost_answer_leaves_one_place_unknown__which_the_next_change_finds(logs: Logs) -> None:
    log, other = logs.open(), logs.open()
    logs.write(log, 1)
    stored = logs.bucket.put_new

    def lose(name: str, content: bytes | memoryview) -> bool:
        stored(name, content)
        raise Unavailable("the answer was lost")

    logs.bucket.put_new = lose  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        log.append([Change(PUT, "a", b"lost")])
    logs.bucket.put_new = stored  # type: ignore[method-assign]
    is_stored, came = log.append([Change(PUT, "a", b"again")])
    assert not is_stored
    assert came[0].changed == {"a"}
    other.read_on()
    assert other.table.below("a") == log.table.below("a")


def test_damage_is_named(logs: Logs) -> None:
    log, other = logs.open(), logs.open()
    logs.write(log, 1)
    content = logs.bucket.content[FactLog.name(1)]
    logs.bucket.content[FactLog.name(1)] = content[:-3] + b"x" + content[-2:]
    with pytest.raises(JournalDamaged, match=FactLog.name(1)):
        other.read_on()


def test_a_store_that_ignores_the_condition_is_refused(logs: Logs) -> None:
    logs.bucket.ignores_condition = True
    with pytest.raises(Refused, match="If-None-Match"):
        logs.open()
