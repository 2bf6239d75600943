"""Covers: appends of one statement or several, tables, logs and objects, over a file of SQLite.

Not covered: what a failure means (tests/unit/connections/test_sql.py); other servers, and owners
that race (tests/conformance/test_sql.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from dejaqueue.connections.sql import Row, SqlConnection
from dejaqueue.connections.sqlite import Sqlite
from dejaqueue.errors import Fenced, Refused, Unavailable
from dejaqueue.journal.records import sql
from dejaqueue.journal.records.interface import Bytes
from dejaqueue.journal.records.sql import SqlRecords, SqlRecordStore, open_records
from tests.crash.test_erasure_kill import files_with


class Server(Sqlite):
    """SQLite that takes as little in a statement, and is as strict, as a test says."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"sqlite:///{path}/x.db")
        self.statement_bytes_max = 1 << 20
        self.statements: list[str] = []

    def connect(self) -> SqlConnection:
        connection = super().connect()
        change = connection.change

        def noted(statement: str, parameters: object = ()) -> int:
            self.statements.append(statement)
            return change(statement, parameters)  # type: ignore[arg-type]

        connection.change = noted  # type: ignore[method-assign]
        return connection


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


@pytest.fixture
def store(server: Server) -> Iterator[SqlRecordStore]:
    made = SqlRecordStore(server)
    server.statements.clear()
    yield made
    made.close()


@pytest.fixture
def log(store: SqlRecordStore) -> SqlRecords:
    opened = store.open("t", 0)
    store._server.statements.clear()  # type: ignore[attr-defined]
    return opened


def contents(log: SqlRecords) -> list[tuple[int, bytes]]:
    return list(log.read(1, 1_000))


def test_an_append_of_one_or_several_records_is_one_statement(
    server: Server, log: SqlRecords
) -> None:
    log.append(0, [[b"a", b"b"]])
    log.append(1, [[b"c"], [b"d", memoryview(b"e")], [b""]])
    assert contents(log) == [(1, b"ab"), (2, b"c"), (3, b"de"), (4, b"")]
    assert [text.split()[0] for text in server.statements] == ["INSERT", "INSERT"]


@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("count", [1, 2])
def test_an_append_elsewhere_than_behind_the_last_record_appends_nothing(
    log: SqlRecords, after: int, count: int
) -> None:
    log.append(0, [[b"a"], [b"b"]])
    with pytest.raises(Fenced, match=rf"t/0: record {after} is not the last one"):
        log.append(after, [[b"x"]] * count)
    assert contents(log) == [(1, b"a"), (2, b"b")]


def test_a_server_without_rows_out_of_nothing_gets_a_transaction__whole_or_not_at_all(
    store: SqlRecordStore, log: SqlRecords, server: Server
) -> None:
    """MariaDB cuts large bytes that come through a derived table."""
    store.derived_rows = False
    log.append(0, [[b"a"], [b"b"], [b"c"]])
    assert len(server.statements) == 3
    with pytest.raises(Fenced):
        log.append(2, [[b"x"], [b"y"]])
    assert contents(log) == [(1, b"a"), (2, b"b"), (3, b"c")]


def test_records_that_one_statement_does_not_take_come_in_several(
    log: SqlRecords, server: Server
) -> None:
    server.statement_bytes_max = 10
    log.append(0, [[b"x" * 6], [b"y" * 6], [b"z" * 4], [b"w" * 20]])
    assert [len(content) for _, content in contents(log)] == [6, 6, 4, 20]
    assert len(server.statements) == 3


def test_a_statement_has_a_most_of_records(store: SqlRecordStore) -> None:
    """Parameters of a statement are bounded, however small the records are."""
    sizes = [len(part) for part in store.portions([[b""]] * 40)]
    assert sizes == [16, 16, 8]


def test_what_was_fenced_in_the_middle_of_an_append_is_unknown(
    log: SqlRecords, store: SqlRecordStore, server: Server
) -> None:
    """A part is there: whoever appended must find out, not begin again."""
    server.statement_bytes_max = 1
    log.append(0, [[b"a"]])
    other, portions = store.open("t", 0), store.portions

    def interrupted(records: Sequence[Sequence[Bytes]]) -> Iterator[list[bytes]]:
        for place, part in enumerate(portions(records)):
            if place:
                store.portions = portions  # type: ignore[method-assign]
                other.append(2, [[b"of another owner"]])
            yield part

    store.portions = interrupted  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match=r"a part of an append is there: .*record 2 is not"):
        log.append(1, [[b"b"], [b"c"]])
    assert contents(log) == [(1, b"a"), (2, b"b"), (3, b"of another owner")]


def test_reading_asks_for_a_few_at_a_time__and_gaps_are_left_out(
    log: SqlRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "READ_RECORDS", 3)
    for number in range(8):
        log.append(number, [[b"%d" % number]])
    assert [number for number, _ in log.read(2, 7)] == [2, 3, 4, 5, 6]
    assert [number for number, _ in log.read(7, 99)] == [7, 8]
    assert list(log.read(5, 5)) == []


def test_reading_many_takes_few_questions__and_no_answer_is_large(
    store: SqlRecordStore, log: SqlRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "READ_BYTES", 1_000)
    monkeypatch.setattr(sql, "SIZED_RECORDS", 100)
    sizes = [10] * 150 + [600, 600, 2_000, 10, 10]
    for number, size in enumerate(sizes):
        log.append(number, [[b"x" * size]])
    answers: list[list[int]] = []
    rows = store.rows

    def noted(statement: str, parameters: Sequence[object]) -> list[Row]:
        found = rows(statement, parameters)
        if "LENGTH" not in statement:
            answers.append([len(content) for _, content in found])
        return found

    monkeypatch.setattr(store, "rows", noted)
    assert [len(content) for _, content in log.read(1, 1_000)] == sizes
    read = [sum(one) for one in answers if one]
    assert len(read) <= 6
    assert [total for total in read if total > 1_000] == [2_000]  # that one is so large by itself
    assert [number for number, _ in log.read(90, 110)] == list(range(90, 110))


def test_several_objects_are_one_question(
    store: SqlRecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "OBJECT_PART_BYTES", 4)
    for name, content in (("a", b"one"), ("b", b"several parts"), ("c", b"")):
        store.put_object(name, content)
    asked: list[str] = []
    rows = store.rows

    def noted(statement: str, parameters: Sequence[object]) -> list[Row]:
        asked.append(statement)
        return rows(statement, parameters)

    monkeypatch.setattr(store, "rows", noted)
    found = store.get_objects(["c", "b", "never", "a"])
    assert found == {"a": b"one", "b": b"several parts", "c": b""}
    assert len(asked) == 1


def test_the_last_record_is_never_dropped(log: SqlRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number is that of the log; without it the next owner would begin at 1 again."""
    monkeypatch.setattr(sql, "DROP_RECORDS", 2)
    for number in range(7):
        log.append(number, [[b"x"]])
    log.drop_before(4)
    assert [number for number, _ in contents(log)] == [4, 5, 6, 7]
    log.drop_before(100)
    assert [number for number, _ in contents(log)] == [7]
    assert log.last() == 7
    log.append(7, [[b"y"]])
    assert log.last() == 8


def test_an_empty_log_has_nothing_to_drop(log: SqlRecords) -> None:
    log.drop_before(10)
    assert (log.last(), log.byte_count(), contents(log)) == (0, 0, [])


def test_bytes_are_those_of_its_own_records(store: SqlRecordStore, log: SqlRecords) -> None:
    store.open("t", 1).append(0, [[b"x" * 1_000]])
    log.append(0, [[b"abc"], [b"de"]])
    assert log.byte_count() == 5


def test_a_log_that_was_dropped_fences_who_still_has_it(store: SqlRecordStore) -> None:
    """A topic of the same name that is made again gets logs of its own."""
    old, other = store.open("t", 0), store.open("t2", 0)
    old.append(0, [[b"old"]])
    other.append(0, [[b"other"]])
    store.drop("t")
    new = store.open("t", 0)
    assert (new.last(), contents(other)) == (0, [(1, b"other")])
    with pytest.raises(Fenced):
        old.append(1, [[b"late"]])
    assert contents(new) == []


def test_a_closed_log_does_nothing_more(log: SqlRecords) -> None:
    log.close()
    for call in (log.last, lambda: log.append(0, [[b"x"]]), lambda: list(log.read(1, 2))):
        with pytest.raises(Unavailable, match=r"the log t/0 is closed"):
            call()


# --- objects


def test_an_object_is_replaced_whole__whatever_its_size(
    store: SqlRecordStore, server: Server
) -> None:
    server.statement_bytes_max = 4
    store.put_object("name", b"0123456789")
    assert store.get_object("name") == b"0123456789"
    store.put_object("name", memoryview(b"01"))
    assert store.get_object("name") == b"01"
    store.put_object("name", b"")
    assert store.get_object("name") == b""
    assert store.get_object("other") is None


def test_names_are_listed_by_how_they_begin__each_once(store: SqlRecordStore) -> None:
    store._server.statement_bytes_max = 1
    for name in ("a/2", "a/10", "b", "a", "A/1"):
        store.put_object(name, b"three")
    assert store.object_names("a/") == ["a/10", "a/2"]
    assert store.object_names("") == ["A/1", "a", "a/10", "a/2", "b"]
    store.drop_objects(["a/2", "none"])
    store.drop_objects([])
    assert store.object_names("a/") == ["a/10"]


# --- the tables


def test_tables_that_are_there_are_not_made_again(server: Server) -> None:
    """To make them takes a right that not every user has."""
    SqlRecordStore(server).close()
    assert [text for text in server.statements if text.startswith("CREATE")]
    server.statements.clear()
    SqlRecordStore(server).close()
    assert server.statements == []


def test_a_user_without_the_right_to_make_tables_is_told(server: Server) -> None:
    server.table_ending = " WITHOUT SUCH A WORD"
    with pytest.raises(Refused, match="syntax error"):
        SqlRecordStore(server)


def test_a_record_is_never_larger_than_a_statement_may_be(server: Server) -> None:
    server.statement_bytes_max = 1_000
    store = SqlRecordStore(server)
    assert store.record_bytes_max == 1_000
    store.close()


def test_a_url_opens_the_server_that_it_names(tmp_path: Path) -> None:
    store = open_records(f"sqlite:///{tmp_path}/y.db")
    store.put_object("name", b"x")
    assert store.summary.startswith("SQLite")
    store.close()
    assert (tmp_path / "y.db").exists()


def test_no_file_has_a_byte_of_what_was_deleted(tmp_path: Path) -> None:
    """Records of many sizes of several logs, which move from page to page as others come and go."""
    store = open_records(f"sqlite:///{tmp_path}/x.db")
    random = np.random.default_rng(11)
    logs = [store.open("t", number) for number in range(5)]
    lasts, dropped = [0] * len(logs), 0
    for _ in range(600):
        place = int(random.integers(len(logs)))
        words = int(random.choice([2, 60, 300, 5_000]))
        logs[place].append(lasts[place], [[b"marker %d " % lasts[place] * words]])
        lasts[place] += 1
        if random.random() < 0.1:
            logs[place].drop_before(int(random.integers(lasts[place])))
            dropped += 1
        if random.random() < 0.2:
            store.put_object(f"o{random.integers(9)}", b"marker " * words)
    assert dropped > 30
    for log, last in zip(logs, lasts, strict=True):
        log.append(last, [[b"the last one stays"]])
        log.drop_before(last + 1)
    assert files_with("marker", tmp_path), "the write-ahead log has pages of before"
    store.drop_objects(store.object_names(""))
    store.overwrite_deleted()
    assert files_with("marker", tmp_path) == []
    assert files_with("the last one stays", tmp_path) != []
    store.close()
    assert files_with("marker", tmp_path) == []
