"""A queue as a table of PostgreSQL: SELECT … FOR UPDATE SKIP LOCKED, a thousand rows at a time.

Room: bench. Written as well as such a queue can be: batches go in by COPY in binary, made from
columns before they are sent; an index has what is due in order. It is measured in both usual forms:

- **leased**: a lease is one UPDATE that returns its rows, an ack one DELETE; it outlives who took
  it, as a lease of DejaQ does;
- **held**: rows are deleted and returned by one statement, and the transaction stays open until
  they are acked by its commit: half the writing, and a connection for each batch that is worked on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.load import PAYLOAD_BYTES, Load
from bench.systems.system import Measured, Plan, Stopwatch, batches

LEASE_MS = 30_000

_TABLE = """
DROP TABLE IF EXISTS waiting;
CREATE TABLE waiting (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    due_ms BIGINT NOT NULL, payload BYTEA NOT NULL
);
CREATE INDEX waiting_due ON waiting (due_ms);
"""
_SEND = "COPY waiting (due_ms, payload) FROM STDIN (FORMAT BINARY)"
_DUE = "SELECT id FROM waiting WHERE due_ms <= %b ORDER BY due_ms LIMIT 1000 FOR UPDATE SKIP LOCKED"
_LEASE = f"""
WITH due AS ({_DUE})
UPDATE waiting SET due_ms = %b FROM due WHERE waiting.id = due.id
RETURNING waiting.id, waiting.payload
"""
_ACK = "DELETE FROM waiting WHERE id = ANY(%b::bigint[])"
_TAKE = f"""
WITH due AS ({_DUE})
DELETE FROM waiting USING due WHERE waiting.id = due.id RETURNING waiting.id, waiting.payload
"""
_ROW = np.dtype(
    [
        ("fields", ">i2"),
        ("due_bytes", ">i4"),
        ("due_ms", ">i8"),
        ("payload_bytes", ">i4"),
        ("payload", f"V{PAYLOAD_BYTES}"),
    ]
)
"""A row as COPY takes it."""
_COPY_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_END = b"\xff\xff"


class SkipLockedQueue:
    """The queue on one connection, each statement durable when it returns."""

    def __init__(self, url: str) -> None:
        import psycopg

        self._connection: Any = psycopg.connect(url, autocommit=True)

    def enqueue(self, load: Load, plan: Plan) -> Measured:
        """Batches of 1,000 into an empty table."""
        self._connection.execute(_TABLE)
        rows = np.zeros(load.rows, dtype=_ROW)
        rows["fields"], rows["due_bytes"], rows["payload_bytes"] = 2, 8, PAYLOAD_BYTES
        rows["due_ms"] = load.dues_ms
        rows["payload"] = np.frombuffer(load.block, dtype=f"V{PAYLOAD_BYTES}")
        sent = 0
        watch = Stopwatch(plan.seconds)
        with self._connection.cursor() as cursor:
            for part in batches(load):
                if watch.is_over():
                    break
                with cursor.copy(_SEND) as copy:
                    copy.write(_COPY_HEAD + rows[part].tobytes() + _COPY_END)
                sent += part.stop - part.start
        return Measured(sent, watch.seconds())

    def lease_ack(self, now_ms: int, plan: Plan, rows: int) -> Measured:
        """Lease and ack 1,000 at a time until so many are done, or the time is up."""
        acked = 0
        watch = Stopwatch(plan.seconds)
        while acked < rows and not watch.is_over():
            asked = (now_ms, now_ms + LEASE_MS)
            leased = self._connection.execute(_LEASE, asked, binary=True).fetchall()
            if not leased:
                break
            self._connection.execute(_ACK, ([row[0] for row in leased],), binary=True)
            acked += len(leased)
        return Measured(acked, watch.seconds())

    def take_commit(self, now_ms: int, plan: Plan, rows: int) -> Measured:
        """Take 1,000 at a time in a transaction, and commit it, until so many are done."""
        taken = 0
        watch = Stopwatch(plan.seconds)
        while taken < rows and not watch.is_over():
            with self._connection.transaction():
                found = self._connection.execute(_TAKE, (now_ms,), binary=True).fetchall()
            if not found:
                break
            taken += len(found)
        return Measured(taken, watch.seconds())

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()
