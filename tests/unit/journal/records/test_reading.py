"""Covers: a sequence of records is read whole, or refused with the record that is wrong.

Not covered: what bytes are a record (test_record.py), what leaves void sets (test_writer.py), and
servers (tests/conformance).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.records.append_index import ReadCursor
from dejaqueue.journal.records.memory import MemoryRecords
from dejaqueue.journal.records.reading import CheckedRecords, WholeAppend, entries_of
from dejaqueue.journal.records.record import RecordKind
from tests.unit.journal.records.chains import IDENTITY, Chain


class Replicated(MemoryRecords):
    """A log of which other replicas have whole copies of some records."""

    def __init__(self, chain: Chain) -> None:
        super().__init__("t/0")
        self.contents = dict(chain.contents)
        self.elsewhere: dict[str, dict[int, bytes]] = {}

    def replicas(self) -> Sequence[str]:
        return tuple(self.elsewhere)

    def read_from(self, replica: str, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        copy = self.elsewhere[replica]
        return iter([(number, copy[number]) for number in range(first, end) if number in copy])


@pytest.fixture
def chain() -> Chain:
    return Chain()


def checked(chain: Chain) -> tuple[CheckedRecords, Replicated]:
    log = Replicated(chain)
    return CheckedRecords(log, "t/0"), log


def found(chain: Chain, last: int | None = None) -> list[WholeAppend | ReadCursor]:
    records, _ = checked(chain)
    return list(records.appends(ReadCursor(), last or chain.stand.number - 1))


def garbled(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


# --- appends


def test_appends_come_as_they_were_made__of_one_record_or_several(chain: Chain) -> None:
    chain.append([1, 2])
    chain.append([0, 3, 5], parts=3)
    chain.append([4])
    wholes = [one for one in found(chain) if isinstance(one, WholeAppend)]
    assert [(one.number, one.parts, one.position) for one in wholes] == [
        (1, 1, 1),
        (2, 3, 3),
        (5, 1, 6),
    ]
    assert [[fact.rows for fact in one.entries] for one in wholes] == [[1, 2], [0, 3, 5], [4]]
    assert wholes[-1].after == chain.stand


def test_where_one_append_ends_the_next_begins(chain: Chain) -> None:
    """Reading may begin at any stand that was told, and goes on as if it had begun before."""
    for count in range(1, 5):
        chain.append([count], parts=2)
    wholes = found(chain)
    records, _ = checked(chain)
    again = list(records.appends(wholes[1][-1], chain.stand.number - 1))  # type: ignore[arg-type]
    assert again == wholes[2:]


def test_a_barrier_has_no_entries__and_moves_nothing_but_records(chain: Chain) -> None:
    chain.append([1])
    before = chain.stand
    number = chain.barrier()
    chain.append([2])
    assert [type(one) for one in found(chain)] == [WholeAppend, ReadCursor, WholeAppend]
    stand = found(chain)[1]
    assert isinstance(stand, ReadCursor)
    assert (stand.number, stand.position, stand.entry_chain) == (
        number + 1,
        before.position,
        before.entry_chain,
    )


def test_a_set_that_another_record_follows_is_void(chain: Chain) -> None:
    """Its writer died in the middle of it; whoever wrote next made sure the rest never comes."""
    chain.append([1])
    position = chain.stand.position
    chain.append([2, 2], parts=3, written=2)
    chain.append([9])
    kinds = found(chain)
    assert [type(one) for one in kinds] == [WholeAppend, ReadCursor, WholeAppend]
    last = kinds[2]
    assert isinstance(last, WholeAppend)
    assert (last.position, [one.rows for one in last.entries]) == (position, [9])


def test_a_set_at_the_end_that_is_not_whole_was_never_acknowledged(chain: Chain) -> None:
    chain.append([1])
    position = chain.stand.position
    chain.append([2, 2], parts=3, written=2)
    kinds = found(chain)
    assert [type(one) for one in kinds] == [WholeAppend, ReadCursor]
    end = kinds[1]
    assert isinstance(end, ReadCursor)
    assert end == chain.stand
    assert end.position == position


def test_rows_that_locators_may_name_are_those_of_messages(chain: Chain) -> None:
    """Acks have rows, too, which nobody reads."""
    chain.append([4, 5])
    [whole] = found(chain)
    assert isinstance(whole, WholeAppend)
    assert (whole.rows, whole.readable_bytes) == (0, 0)


# --- damage


def test_a_record_that_does_not_follow_the_one_before_is_refused(chain: Chain) -> None:
    chain.append([1])
    chain.append([1], head={"previous": 12345})
    with pytest.raises(JournalDamaged, match=r"t/0, record 2: does not follow the one before"):
        found(chain)


@pytest.mark.parametrize("more", [{"position": 9}, {"part": 1, "parts": 3}])
def test_a_record_of_another_place_is_refused(chain: Chain, more: dict[str, int]) -> None:
    chain.append([1])
    chain.append([1], head=more)
    with pytest.raises(JournalDamaged, match=r"record 2: of entry \d, part \d, where entry 2"):
        found(chain)


@pytest.mark.parametrize("more", [{"entries": 3}, {"byte_count": 8}])
def test_an_append_that_is_not_what_its_head_says_is_refused(
    chain: Chain, more: dict[str, int]
) -> None:
    chain.append([1, 2], head=more)
    with pytest.raises(JournalDamaged, match=r"record 1: its entries are not what was written"):
        found(chain)


def test_entries_are_checked_one_by_one(chain: Chain) -> None:
    body = memoryview(b"".join(chain.entries([1, 2, 3])))
    facts = entries_of(body, 1, 0)
    assert facts is not None
    assert [one.rows for one in facts] == [1, 2, 3]
    assert sum(one.byte_count for one in facts) == len(body)
    assert entries_of(body, 2, 0) is None, "other positions"
    assert entries_of(body, 1, 5) is None, "another entry before it"
    assert entries_of(memoryview(garbled(bytes(body))), 1, 0) is None
    assert entries_of(body[: len(body) - 8], 1, 0) is None


# --- what is missing or altered


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("wrong", ["missing", "not what was written"])
def test_a_gap_or_an_altered_record_is_never_skipped(chain: Chain, number: int, wrong: str) -> None:
    for count in range(3):
        chain.append([count])
    records, log = checked(chain)
    if wrong == "missing":
        del log.contents[number]
    else:
        log.contents[number] = garbled(log.contents[number])
    with pytest.raises(JournalDamaged, match=rf"t/0, record {number}: is {wrong}"):
        list(records.read(1, 4))
    assert records.repaired == {}


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_record_that_is_gone_or_altered_is_taken_from_another_replica(
    chain: Chain, number: int, is_there: bool
) -> None:
    for count in range(3):
        chain.append([count])
    whole = found(chain)
    records, log = checked(chain)
    good = log.contents.pop(number)
    if is_there:
        log.contents[number] = garbled(good)
    log.elsewhere = {"sick": {number: garbled(good)}, "lacks it": {}, "healthy": {number: good}}
    assert list(records.appends(ReadCursor(), 3)) == whole
    assert records.repaired == {number: "healthy"}


def test_a_record_of_another_log_is_not_taken(chain: Chain) -> None:
    """The server may have made the log anew under the same name: whole records, of other things."""
    chain.append([1])
    chain.append([1], head={"identity": IDENTITY + 1})
    records, _ = checked(chain)
    with pytest.raises(JournalDamaged, match=r"record 2: is not what was written"):
        list(records.read(1, 3))
    assert records.identity == IDENTITY


def test_records_out_of_order_are_refused(chain: Chain) -> None:
    for count in range(3):
        chain.append([count])
    records, log = checked(chain)
    log.read = lambda first, end: iter([(2, b""), (1, b"")])  # type: ignore[method-assign]
    with pytest.raises(JournalDamaged):
        list(records.read(1, 4))


def test_a_barrier_is_a_record_of_its_own_kind(chain: Chain) -> None:
    """A kind that is read as entries would take the barrier's place in the journal."""
    chain.barrier()
    [only] = found(chain)
    assert isinstance(only, ReadCursor)
    assert only.position == 1
    assert {int(kind) for kind in RecordKind} == {1, 2}
