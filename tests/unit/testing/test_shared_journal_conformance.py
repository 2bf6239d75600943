"""Covers: the conformance suite finds journals on a server that break what owners rely on.

Not covered: the journals that pass it (tests/conformance), the duties of any journal
(test_journal_conformance.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.errors import DejaQError
from dejaqueue.journal.records.interface import Bytes
from dejaqueue.journal.records.journal import RecordJournal
from dejaqueue.journal.records.memory import MemoryRecords, MemoryRecordStore
from dejaqueue.journal.records.reading import CheckedRecords
from dejaqueue.journal.records.record import Record, open_record
from dejaqueue.journal.records.writer import RecordWriter
from dejaqueue.testing.shared_journal_conformance import SharedJournalConformance

APPEND = MemoryRecords.append


class Suite(SharedJournalConformance):
    patience_seconds = 1.0

    def __init__(self) -> None:
        self.records = MemoryRecordStore(record_bytes_max=4096)

    def make_records(self, directory: Path) -> MemoryRecordStore:
        return self.records


Suite.__test__ = False  # type: ignore[attr-defined]


def _unfenced(self: MemoryRecords, after: int, records: Sequence[Sequence[Bytes]]) -> None:
    APPEND(self, self._last, records)


def _believed(self: RecordWriter, *_: Any) -> bool:
    """Takes every append whose answer was lost for done."""
    return True


def _unchecked(self: CheckedRecords, content: bytes, number: int) -> Record | None:
    record = open_record(content, number)
    return record or open_record(content[:-1] + bytes([content[-1] ^ 1]), number)


def _skipping(self: CheckedRecords, first: int, end: int) -> Iterator[Record]:
    """Leaves out what is missing."""
    for number, content in self._records.read(first, end):
        record = self._checked(content, number)
        if record is not None:
            yield record


def _deaf(self: RecordJournal) -> int:
    """Hears of nothing that others appended."""
    return self.tail


def _eager(self: RecordJournal) -> int:
    """Says how many there are, and has not read them."""
    self._append_index.stand = self._append_index.stand._replace(position=self._log.last() + 1)
    return self.tail


BREACHES: list[tuple[type, str, Callable[..., object], str]] = [
    (MemoryRecords, "append", _unfenced, "test_an_owner_that_was_overtaken_is_fenced"),
    (
        RecordWriter,
        "_happened",
        _believed,
        "test_an_answer_that_is_never_found_out_closes_the_journal",
    ),
    (RecordWriter, "_happened", _believed, "test_the_rest_of_an_append_that_was_cut_is_void"),
    (RecordWriter, "_happened", _believed, "test_a_lost_answer_whose_place_another_took_is_fenced"),
    (RecordJournal, "follow", _deaf, "test_what_others_append_is_followed"),
    (RecordJournal, "follow", _eager, "test_what_others_append_is_followed"),
    (RecordJournal, "follow", _deaf, "test_what_was_dropped_before_it_was_followed_is_told"),
    (CheckedRecords, "read", _skipping, "test_a_record_that_rots_or_is_missing_is_refused"),
]


def suite_test(name: str) -> Callable[[Path], None]:
    """The test of the suite whose name begins so, tried with each of its parameters."""
    [found] = [one for one in dir(Suite) if one.startswith(name)]
    test = getattr(Suite, found)
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    if not marks:
        return lambda path: test(Suite(), path)
    names = [one.strip() for one in _names(marks[0].args[0])]

    def each(path: Path) -> None:
        for place, values in enumerate(marks[0].args[1]):
            values = values if len(names) > 1 else (values,)
            below = path / str(place)
            below.mkdir()
            test(Suite(), below, **dict(zip(names, values, strict=True)))

    return each


def _names(given: str | Sequence[str]) -> list[str]:
    return given.split(",") if isinstance(given, str) else list(given)


@pytest.mark.parametrize(
    ("kind", "method", "breach", "test"), BREACHES, ids=[one[3][5:40] for one in BREACHES]
)
def test_a_breach_is_found(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: type,
    method: str,
    breach: Callable[..., object],
    test: str,
) -> None:
    tried = suite_test(test)
    monkeypatch.setattr(kind, method, breach)
    with pytest.raises((AssertionError, DejaQError)):
        tried(tmp_path)


@pytest.mark.parametrize("test", sorted({one[3] for one in BREACHES}))
# tidy: allow no-assert, because the suite's own test asserts
def test_a_journal_that_keeps_its_duties_passes(tmp_path: Path, test: str) -> None:
    check_duty = suite_test(test)
    check_duty(tmp_path)
