"""Covers: one process has a file of SQLite to itself, and every commit is on the disk."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dejaqueue.connections.sql import SqlFailure, Verdict
from dejaqueue.connections.sqlite import Sqlite
from dejaqueue.errors import Locked, Refused


def test_what_is_set_holds(tmp_path: Path) -> None:
    server = Sqlite(f"sqlite:///{tmp_path}/below/x.db")
    connection = server.connect()
    assert server.check(connection).startswith("SQLite 3")
    assert connection.rows("PRAGMA locking_mode") == [("exclusive",)]
    connection.change("PRAGMA synchronous = NORMAL")
    with pytest.raises(Refused, match="synchronous is 1, it must be 2"):
        server.check(connection)
    connection.close()
    connection.close()


def test_a_file_that_keeps_what_is_deleted_is_refused(tmp_path: Path) -> None:
    server = Sqlite(f"sqlite:///{tmp_path}/x.db")
    connection = server.connect()
    connection.rows("PRAGMA secure_delete = OFF")
    with pytest.raises(Refused, match="secure_delete is off, it must be on"):
        server.check(connection)
    connection.close()


def test_a_log_that_somebody_reads_is_not_emptied(tmp_path: Path) -> None:
    server = Sqlite(f"sqlite:///{tmp_path}/x.db", exclusive=False)
    writes, reads = server.connect(), server.connect()
    writes.change("CREATE TABLE t (a)")
    writes.change("INSERT INTO t VALUES (1)")
    reads.change("PRAGMA busy_timeout = 1")
    writes.rows("PRAGMA busy_timeout = 1")
    rows = reads.stream("SELECT a FROM t UNION ALL SELECT 2")
    assert next(rows) == (1,)
    writes.change("INSERT INTO t VALUES (2)")
    with pytest.raises(SqlFailure, match="others use") as failed:
        server.overwrite_deleted(writes)
    assert failed.value.verdict is Verdict.AGAIN
    assert list(rows) == [(2,)]
    server.overwrite_deleted(writes)
    assert (tmp_path / "x.db-wal").stat().st_size == 0
    writes.close()
    reads.close()


def test_another_process_is_kept_out(tmp_path: Path) -> None:
    connection = Sqlite(f"sqlite:///{tmp_path}/x.db").connect()
    program = f"import sqlite3; sqlite3.connect({str(tmp_path / 'x.db')!r}, timeout=0).execute("
    program += "'SELECT * FROM sqlite_master')"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert b"database is locked" in other.stderr
    with pytest.raises(Locked, match="in use"):
        Sqlite(f"sqlite:///{tmp_path}/x.db").connect()
    connection.close()
    Sqlite(f"sqlite:///{tmp_path}/x.db").connect().close()


def test_who_shares_a_file_waits_while_another_one_makes_it(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "x.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Locked):
        Sqlite(f"sqlite:///{tmp_path}/x.db").connect()
    done = threading.Timer(0.2, other.execute, ["COMMIT"])
    done.start()
    Sqlite(f"sqlite:///{tmp_path}/x.db", exclusive=False).connect().close()
    done.join()
    other.close()


def test_a_file_that_is_no_database_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"no database" * 1_000)
    with pytest.raises(SqlFailure) as failed:
        Sqlite(f"sqlite:///{tmp_path}/x.db").connect()
    assert failed.value.verdict is Verdict.UNKNOWN


def test_failures_say_what_they_mean(tmp_path: Path) -> None:
    connection = Sqlite(f"sqlite:///{tmp_path}/x.db").connect()
    connection.change("CREATE TABLE t (a INTEGER PRIMARY KEY, b BLOB)")
    connection.change("INSERT INTO t VALUES (1, ?)", (b"x",))
    cases = (
        (Verdict.TAKEN, "INSERT INTO t VALUES (1, 'y')"),
        (Verdict.WRONG, "SELECT nothing FROM nowhere"),
    )
    for verdict, statement in cases:
        with pytest.raises(SqlFailure) as failed:
            connection.change(statement)
        assert failed.value.verdict is verdict
        assert not connection.broken
    connection.change("PRAGMA max_page_count = 3")
    with pytest.raises(SqlFailure) as failed:
        connection.change("INSERT INTO t VALUES (2, ?)", (bytes(1 << 20),))
    assert failed.value.verdict is Verdict.FULL
    connection.begin()
    connection.change("INSERT INTO t VALUES (3, NULL)")
    connection.roll_back()
    assert connection.rows("SELECT a FROM t") == [(1,)]
    connection.close()
    assert sqlite3.connect(tmp_path / "x.db").execute("SELECT a FROM t").fetchall() == [(1,)]
