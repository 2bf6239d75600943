"""Covers: what became of an append whose answer was lost is found out, or nothing more is appended.

Not covered: what is read back (test_reading.py), real servers that are cut off (tests/cluster,
tests/simulation).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import pytest

from dejaqueue.clock import Wake
from dejaqueue.errors import Fenced, JournalDamaged, ResourceExhausted, Unavailable
from dejaqueue.journal.records.append_index import ReadCursor
from dejaqueue.journal.records.concurrency import Concurrency
from dejaqueue.journal.records.interface import Bytes
from dejaqueue.journal.records.memory import MemoryRecords
from dejaqueue.journal.records.reading import CheckedRecords
from dejaqueue.journal.records.record import HEADER_BYTES, RecordKind, open_record
from dejaqueue.journal.records.writer import Landed, RecordWriter
from dejaqueue.testing.virtual_clock import VirtualClock

Does = Callable[[int, Sequence[Sequence[Bytes]]], None]
BODY = [b"x" * 100]


class Passing(VirtualClock):
    """Whoever waits finds that the time has come; notes how long each wait was."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_us: list[int] = []
        self.closes_after: int | None = None

    def wait_until(self, instant_us: int | None, wake: Wake) -> bool:
        assert instant_us is not None
        self.waits_us.append(instant_us - self.now_us())
        self.advance(us=self.waits_us[-1])
        return self.closes_after is not None and len(self.waits_us) >= self.closes_after


class Flaky(MemoryRecords):
    """Does with each append what the test says, then what any log does."""

    def __init__(self) -> None:
        super().__init__("t/0")
        self.plan: deque[Does] = deque()

    def append(self, after: int, records: Sequence[Sequence[Bytes]]) -> None:
        if self.plan:
            self.plan.popleft()(after, records)
        else:
            super().append(after, records)

    def lands(self, after: int, records: Sequence[Sequence[Bytes]]) -> None:
        """It happens, and the answer is lost."""
        super().append(after, records)
        raise Unavailable("no answer")

    def lost(self, after: int, records: Sequence[Sequence[Bytes]]) -> None:
        """It does not happen, and no answer comes."""
        raise Unavailable("no answer")

    def kinds(self) -> list[RecordKind]:
        found = []
        for number, content in sorted(self.contents.items()):
            record = open_record(content, number)
            assert record is not None
            found.append(RecordKind(record.head.kind))
        return found


class Fixture:
    def __init__(self, patience_seconds: float = 10, record_bytes_max: int = 1 << 20) -> None:
        self.log, self.clock = Flaky(), Passing()
        self.concurrency = Concurrency()
        self.concurrency.clock = self.clock
        self.patience_seconds, self.record_bytes_max = patience_seconds, record_bytes_max
        self.writer = self.another()

    def another(self, stand: ReadCursor | None = None) -> RecordWriter:
        """A writer of the same log: another owner's."""
        return RecordWriter(
            self.log,
            CheckedRecords(self.log, "t/0"),
            stand or ReadCursor(),
            self.record_bytes_max,
            self.patience_seconds,
            self.concurrency,
            Wake(),
        )

    def append(self, position: int = 1) -> Landed:
        return self.writer.append(BODY, position, 1, len(BODY[0]))


@pytest.fixture
def one() -> Fixture:
    return Fixture()


ENTRIES, BARRIER = RecordKind.ENTRIES, RecordKind.BARRIER


def test_an_append_that_is_answered_asks_nothing(one: Fixture) -> None:
    landed = one.append()
    assert (landed.number, landed.parts, landed.number_after) == (1, 1, 2)
    assert one.append(2).chain_before == landed.chain_after
    assert (one.log.kinds(), one.writer.questions) == ([ENTRIES, ENTRIES], 0)


def test_an_append_is_split_into_records_that_the_server_takes() -> None:
    one = Fixture(record_bytes_max=HEADER_BYTES + 40)
    landed = one.append()
    assert (landed.parts, landed.number_after) == (3, 4)
    heads = [open_record(one.log.contents[number], number) for number in (1, 2, 3)]
    assert [(r.head.part, r.head.parts) for r in heads if r] == [(0, 3), (1, 3), (2, 3)]
    assert all(len(content) <= HEADER_BYTES + 40 for content in one.log.contents.values())


def test_an_append_that_happened_without_an_answer_is_not_made_again(one: Fixture) -> None:
    one.log.plan += [one.log.lands]
    assert one.append().number == 1
    assert (one.log.kinds(), one.writer.questions) == ([ENTRIES], 1)
    assert one.append(2).number == 2


def test_an_append_that_never_came_is_made_again__behind_a_barrier(one: Fixture) -> None:
    """The barrier stands where the append would: if it comes late after all, it is fenced."""
    late: list[tuple[int, Sequence[Sequence[Bytes]]]] = []

    def delayed(after: int, records: Sequence[Sequence[Bytes]]) -> None:
        late.append((after, records))
        raise Unavailable("no answer")

    one.log.plan += [delayed]
    assert one.append().number == 2
    assert one.log.kinds() == [BARRIER, ENTRIES]
    with pytest.raises(Fenced):
        one.log.append(*late[0])


def test_the_question_is_asked_until_the_server_answers(one: Fixture) -> None:
    one.log.plan += [one.log.lands, one.log.lost, one.log.lost, one.log.lost]
    assert one.append().number == 1
    assert one.clock.waits_us == sorted(one.clock.waits_us)
    assert len(one.clock.waits_us) == 3
    assert one.clock.waits_us[0] < one.clock.waits_us[-1] <= 1_000_000


def test_a_barrier_whose_answer_was_lost_is_known_again(one: Fixture) -> None:
    one.log.plan += [one.log.lost, one.log.lands]
    assert one.append().number == 2
    assert one.log.kinds() == [BARRIER, ENTRIES]
    assert one.append(2).number == 3


def test_of_an_append_in_parts_the_question_is_asked_behind_what_is_there() -> None:
    one = Fixture(record_bytes_max=HEADER_BYTES + 40)

    def a_beginning(after: int, records: Sequence[Sequence[Bytes]]) -> None:
        MemoryRecords.append(one.log, after, records[:2])
        raise Unavailable("no answer")

    one.log.plan += [a_beginning]
    landed = one.append()
    assert one.log.kinds() == [ENTRIES, ENTRIES, BARRIER, ENTRIES, ENTRIES, ENTRIES]
    assert (landed.number, landed.parts) == (4, 3)


def test_another_owner_at_the_same_place_fences(one: Fixture) -> None:
    def other_comes_first(after: int, records: Sequence[Sequence[Bytes]]) -> None:
        other = one.another()
        other._checked.identity = one.writer._checked.identity
        other.append(BODY, 1, 1, len(BODY[0]))
        raise Unavailable("no answer")

    one.log.plan += [other_comes_first]
    with pytest.raises(Fenced, match=r"t/0: another owner wrote record 1"):
        one.append()
    assert one.log.kinds() == [ENTRIES]


def test_a_full_server_appended_nothing(one: Fixture) -> None:
    def full(after: int, records: Sequence[Sequence[Bytes]]) -> None:
        raise ResourceExhausted("no room")

    one.log.plan += [full]
    with pytest.raises(ResourceExhausted):
        one.append()
    assert one.append().number == 1, "and the writer is usable"


def test_when_patience_ends_nothing_more_is_appended(one: Fixture) -> None:
    """What came next would stand behind an append of which nobody knows whether it is there."""
    one.log.plan += [one.log.lost] * 100
    with pytest.raises(Unavailable, match=r"append at record 1 was not to be found out: no answer"):
        one.append()
    assert 9_000_000 <= sum(one.clock.waits_us) <= 10_000_000
    one.log.plan.clear()
    with pytest.raises(Unavailable, match="not to be found out"):
        one.append()
    assert one.log.contents == {}


def test_who_closes_does_not_wait_for_patience_to_end(one: Fixture) -> None:
    one.clock.closes_after = 2
    one.log.plan += [one.log.lost] * 100
    with pytest.raises(Unavailable, match="not to be found out"):
        one.append()
    assert len(one.clock.waits_us) == 2


def test_what_the_next_owner_dropped_is_not_taken_for_damage(one: Fixture) -> None:
    """It wrote behind the append, took a snapshot, and dropped what that covers."""

    def happens_and_is_dropped(after: int, records: Sequence[Sequence[Bytes]]) -> None:
        MemoryRecords.append(one.log, after, records)
        MemoryRecords.append(one.log, 1, [[b"of another owner"]])
        one.log.drop_before(2)
        raise Unavailable("no answer")

    one.log.plan += [happens_and_is_dropped]
    with pytest.raises(Unavailable, match=r"another owner wrote record 2, and dropped older ones"):
        one.append()


def test_a_record_that_is_there_but_nobody_wrote_is_damage(one: Fixture) -> None:
    def rots(after: int, records: Sequence[Sequence[Bytes]]) -> None:
        MemoryRecords.append(one.log, after, records)
        one.log.contents[1] = b"rotten"
        raise Unavailable("no answer")

    one.log.plan += [rots]
    with pytest.raises(JournalDamaged, match=r"record 1: is not what was written"):
        one.append()


def test_who_asks_whether_it_is_still_the_owner_is_told(one: Fixture) -> None:
    landed = one.append()
    one.writer.check_owner()
    other = one.another(ReadCursor(landed.number_after, landed.chain_after, 2, 0))
    other.append(BODY, 2, 1, len(BODY[0]))
    with pytest.raises(Fenced, match=r"another owner wrote record 2"):
        one.writer.check_owner()


def test_a_new_log_gets_an_identity_of_its_own() -> None:
    """A log of the same name that is made again is told from the one before."""
    identities = set()
    for _ in range(3):
        one = Fixture()
        one.append()
        record = open_record(one.log.contents[1], 1)
        assert record is not None
        identities.add(record.head.identity)
    assert len(identities) == 3
    assert 0 not in identities
