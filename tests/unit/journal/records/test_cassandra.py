"""Covers: appends by conditional batches of bounded size, drops, objects by compare-and-set.

Not covered: CQL, which only a server runs (tests/conformance/test_records_cassandra.py), and what
errors mean (tests/unit/connections/test_cassandra.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dejaqueue.errors import Fenced, JournalDamaged, Unavailable
from dejaqueue.journal.records import cassandra
from dejaqueue.journal.records.cassandra import (
    BATCH_RECORDS,
    TRIES,
    CassandraRecordLog,
    CassandraRecordStore,
)
from tests.unit.journal.records.log_cases import LogCases, contents

Rows = list[SimpleNamespace]


class Found:
    """What a statement gives."""

    def __init__(self, rows: Rows | None = None, *, was_applied: bool = True) -> None:
        self.was_applied = was_applied
        self._rows = rows or []

    def one(self) -> SimpleNamespace | None:
        return self._rows[0] if self._rows else None

    def __iter__(self) -> Iterator[SimpleNamespace]:
        return iter(self._rows)


class Session:
    """A server that knows the statements of the record store."""

    keyspace, summary = "one", "played 1"

    def __init__(self, url: str = "") -> None:
        self.last: dict[tuple[Any, Any], int] = {}
        self.written = 0
        self.rows: dict[tuple[Any, Any], dict[int, tuple[bytes, int]]] = {}
        self.deleted: dict[tuple[Any, Any], list[tuple[int, int]]] = {}
        self.topics: set[tuple[str, int]] = set()
        self.objects: dict[str, tuple[str, int, str]] = {}
        self.pieces: dict[tuple[str, int], bytes] = {}
        self.batches: list[int] = []
        self.schema: list[str] = []
        self.is_closed = False

    def change(self, statement: str) -> None:
        self.schema.append(statement)

    def close(self) -> None:
        self.is_closed = True

    def run_together(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> Found:
        (setting, (last, topic, part, before)), *inserts = statements
        assert setting.startswith("UPDATE one.log SET last")
        self.batches.append(len(inserts))
        key = topic, part
        if self.last.get(key) != before:
            return Found(was_applied=False)
        self.last[key] = last
        self.written += 1
        for _, (_, _, number, content) in inserts:
            deleted = self.deleted.get(key, [])
            # A deletion hides what is stamped before it, also what comes later.
            if not any(number < end and self.written <= at for end, at in deleted):
                self.rows.setdefault(key, {})[number] = content, self.written
        return Found()

    def run(self, statement: str, values: Sequence[Any] = (), *, serial: bool = False) -> Found:
        for pattern, does in _STATEMENTS.items():
            if re.match(pattern, statement):
                found: Found = does(self, *values)
                return found
        raise AssertionError(f"unknown: {statement}")

    def _last(self, topic: str, part: int) -> Found:
        last = self.last.get((topic, part))
        if last is None and not self.rows.get((topic, part)):
            return Found()
        return Found([SimpleNamespace(last=last, written=self.written)])

    def _range(self, topic: str, part: int, first: int, end: int, limit: int) -> Found:
        rows = self.rows.get((topic, part), {})
        numbers = sorted(number for number in rows if first <= number < end)[:limit]
        return Found([SimpleNamespace(number=n, content=rows[n][0]) for n in numbers])

    def _first(self, topic: str, part: int) -> Found:
        return Found([SimpleNamespace(number=n) for n in sorted(self.rows.get((topic, part), ()))])

    def _delete_below(self, written: int, topic: str, part: int, number: int) -> Found:
        self.deleted.setdefault((topic, part), []).append((number, written))
        rows = self.rows.get((topic, part), {})
        for gone in [n for n, (_, at) in rows.items() if n < number and at <= written]:
            del rows[gone]
        return Found()

    def _delete_last(self, topic: str, part: int, last: int) -> Found:
        if self.last.get((topic, part)) != last:
            return Found(was_applied=False)
        del self.last[topic, part]
        return Found()

    def _open(self, topic: str, part: int) -> Found:
        self.topics.add((topic, part))
        return Found()

    def _parts(self, topic: str) -> Found:
        return Found([SimpleNamespace(part=p) for t, p in sorted(self.topics) if t == topic])

    def _forget(self, topic: str, part: int) -> Found:
        self.topics.discard((topic, part))
        return Found()

    def _piece(self, mark: str, place: int, content: bytes) -> Found:
        self.pieces[mark, place] = content
        return Found()

    def _get_piece(self, mark: str, place: int) -> Found:
        content = self.pieces.get((mark, place))
        return Found(None if content is None else [SimpleNamespace(content=content)])

    def _drop_pieces(self, mark: str) -> Found:
        for gone in [name for name in self.pieces if name[0] == mark]:
            del self.pieces[gone]
        return Found()

    def _name(self, name: str, *facts: Any) -> Found:
        if name in self.objects:
            return Found(was_applied=False)
        self.objects[name] = facts
        return Found()

    def _rename(self, mark: str, count: int, checksum: str, name: str, before: str) -> Found:
        if self.objects.get(name, ("",))[0] != before:
            return Found(was_applied=False)
        self.objects[name] = mark, count, checksum
        return Found()

    def _find(self, name: str) -> Found:
        facts = self.objects.get(name)
        if facts is None:
            return Found()
        mark, count, checksum = facts
        return Found([SimpleNamespace(mark=mark, count=count, checksum=checksum)])

    def _names(self, low: str, high: str) -> Found:
        found = [name for name in self.objects if low <= name < high]
        return Found([SimpleNamespace(name=name, mark="x") for name in found])

    def _drop_object(self, name: str) -> Found:
        self.objects.pop(name, None)
        return Found()


_STATEMENTS: dict[str, Any] = {
    r"SELECT last, WRITETIME": Session._last,
    r"SELECT number, content FROM one.log": Session._range,
    r"SELECT number FROM one.log": Session._first,
    r"DELETE FROM one.log USING TIMESTAMP": Session._delete_below,
    r"DELETE last FROM one.log .* IF last": Session._delete_last,
    r"INSERT INTO one.topic": Session._open,
    r"SELECT part FROM one.topic": Session._parts,
    r"DELETE FROM one.topic": Session._forget,
    r"INSERT INTO one.piece": Session._piece,
    r"SELECT content FROM one.piece": Session._get_piece,
    r"DELETE FROM one.piece": Session._drop_pieces,
    r"INSERT INTO one.object .* IF NOT EXISTS": Session._name,
    r"UPDATE one.object .* IF mark": Session._rename,
    r"SELECT mark, count, checksum FROM one.object": Session._find,
    r"SELECT name, mark FROM one.object": Session._names,
    r"DELETE FROM one.object": Session._drop_object,
}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> CassandraRecordStore:
    monkeypatch.setattr(cassandra, "CassandraSession", Session)
    return CassandraRecordStore("cassandra://h")


@pytest.fixture
def session(store: CassandraRecordStore) -> Session:
    found = store._session
    assert isinstance(found, Session)
    return found


@pytest.fixture
def log(store: CassandraRecordStore) -> CassandraRecordLog:
    opened = store.open("t", 0)
    assert isinstance(opened, CassandraRecordLog)
    return opened


# --- records


class TestLog(LogCases):
    """The cases of every log; what is this server's own is below."""


def test_an_append_is_one_conditional_batch(log: CassandraRecordLog, session: Session) -> None:
    assert (log.last(), contents(log), log.byte_count()) == (0, [], 0)
    log.append(0, [[b"a", b"b"], [memoryview(b"c")]])
    assert (log.last(), contents(log)) == (2, [(1, b"ab"), (2, b"c")])
    assert session.batches == [2]


def test_a_batch_has_a_most_of_bytes_and_of_records(
    log: CassandraRecordLog, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append(0, [[b""]] * (BATCH_RECORDS + 1))
    assert session.batches == [BATCH_RECORDS, 1]
    monkeypatch.setattr(cassandra, "BATCH_BYTES", 10)
    session.batches.clear()
    log.append(BATCH_RECORDS + 1, [[b"x" * size] for size in (6, 4, 1, 20, 3)])
    assert session.batches == [2, 1, 1, 1]
    assert log.last() == BATCH_RECORDS + 6


def test_another_owner_between_two_batches_leaves_the_outcome_unknown(
    log: CassandraRecordLog, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cassandra, "BATCH_BYTES", 1)
    together = session.run_together

    def interrupted(statements: Sequence[tuple[str, Sequence[Any]]]) -> Found:
        if session.batches:
            session.last["t", 0] = 5
        return together(statements)

    monkeypatch.setattr(session, "run_together", interrupted)
    with pytest.raises(Unavailable, match="behind a part of this append"):
        log.append(0, [[b"a"], [b"b"]])


def test_reading_goes_on_by_the_size_of_what_came(
    log: CassandraRecordLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append(0, [[b"x" * 10]] * 25)
    monkeypatch.setattr(cassandra, "READ_BYTES", 50)
    assert [number for number, _ in log.read(3, 24)] == list(range(3, 24))
    assert list(log.read(26, 99)) == []


def test_dropping_a_topic_fences_who_still_has_it__and_hides_nothing_that_comes_later(
    store: CassandraRecordStore, log: CassandraRecordLog
) -> None:
    """The deletion carries the stamp of the last append: a log that begins at 1 again is seen."""
    store.open("t2", 0).append(0, [[b"other"]])
    log.append(0, [[b"a"], [b"b"]])
    store.drop("t")
    with pytest.raises(Fenced):
        log.append(2, [[b"late"]])
    again = store.open("t", 0)
    again.append(0, [[b"new"]])
    assert list(again.read(1, 9)) == [(1, b"new")]
    assert store.open("t2", 0).last() == 1


def test_a_log_that_is_appended_to_again_and_again_is_not_dropped(
    log: CassandraRecordLog, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append(0, [[b"a"]])
    delete, tries = session._delete_below, list[int]()

    def overtaken(written: int, topic: str, part: int, number: int) -> Found:
        tries.append(number)
        found = delete(written, topic, part, number)
        log.append(number - 1, [[b"more"]])
        return found

    monkeypatch.setitem(
        _STATEMENTS, r"DELETE FROM one.log USING TIMESTAMP", lambda _, *values: overtaken(*values)
    )
    with pytest.raises(Unavailable, match="somebody appends to it again and again"):
        log.drop()
    assert len(tries) == TRIES


# --- objects


@pytest.mark.parametrize("size", [0, 1, 4, 5, 23])
def test_an_object_comes_back_whatever_its_size(
    store: CassandraRecordStore, session: Session, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(cassandra, "PIECE_BYTES", 4)
    content = bytes(range(size))
    store.put_object("name", content)
    assert store.get_object("name") == content
    store.put_object("name", memoryview(b"other"))
    assert store.get_object("name") == b"other"
    assert len({mark for mark, _ in session.pieces}) == 1, "what was before takes no room"


def test_who_stores_an_object_beside_another_tries_again__and_gives_up_some_time(
    store: CassandraRecordStore, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_object("name", b"before")
    rename, lost = session._rename, list[int]()

    def raced(mark: str, count: int, checksum: str, name: str, before: str) -> Found:
        if len(lost) < losses:
            lost.append(1)
            return Found(was_applied=False)
        return rename(mark, count, checksum, name, before)

    pattern = r"UPDATE one.object .* IF mark"
    monkeypatch.setitem(_STATEMENTS, pattern, lambda _, *values: raced(*values))
    losses = 2
    store.put_object("name", b"after")
    assert store.get_object("name") == b"after"
    losses = 99
    with pytest.raises(Unavailable, match="others store it again and again"):
        store.put_object("name", b"never")
    assert store.get_object("name") == b"after"


def test_an_object_that_is_not_what_was_stored_is_refused(
    store: CassandraRecordStore, session: Session
) -> None:
    store.put_object("name", b"content")
    for where in list(session.pieces):
        session.pieces[where] = b"cOntent"
    with pytest.raises(JournalDamaged, match=r"object name in played 1: not what was stored"):
        store.get_object("name")
    session.pieces.clear()
    with pytest.raises(JournalDamaged):
        store.get_object("name")
    assert store.get_object("other") is None


def test_names_are_sorted__and_those_that_are_dropped_do_not_come(
    store: CassandraRecordStore, session: Session
) -> None:
    for name in ("a/2", "b", "a/1"):
        store.put_object(name, b"x")
    assert store.object_names("a/") == ["a/1", "a/2"]
    store.drop_objects(["a/1", "none"])
    assert store.object_names("") == ["a/2", "b"]
    assert len(session.pieces) == 2


def test_a_session_is_closed_if_its_tables_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Session] = []

    class Refusing(Session):
        def __init__(self, url: str = "") -> None:
            super().__init__(url)
            made.append(self)

        def change(self, statement: str) -> None:
            raise Unavailable("no quorum")

    monkeypatch.setattr(cassandra, "CassandraSession", Refusing)
    with pytest.raises(Unavailable, match="no quorum"):
        CassandraRecordStore("cassandra://h")
    assert made[0].is_closed
