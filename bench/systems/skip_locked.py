"""A queue as a table of PostgreSQL: SELECT … FOR UPDATE SKIP LOCKED, a thousand rows at a time.

Room: bench. Written as well as such a queue can be: batches go in as arrays in one statement, an
index has what is due in order, a lease is one UPDATE that returns its rows, an ack one DELETE.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.load import Load
from bench.systems.system import Measured, Plan, Stopwatch, batches

LEASE_MS = 30_000

_TABLE = """
DROP TABLE IF EXISTS waiting;
CREATE TABLE waiting (
    id BIGSERIAL PRIMARY KEY, due_ms BIGINT NOT NULL, payload BYTEA NOT NULL
);
CREATE INDEX waiting_due ON waiting (due_ms);
"""
_SEND = "INSERT INTO waiting (due_ms, payload) SELECT * FROM unnest(%b::bigint[], %b::bytea[])"
_LEASE = """
WITH due AS (
    SELECT id FROM waiting WHERE due_ms <= %b ORDER BY due_ms LIMIT 1000 FOR UPDATE SKIP LOCKED
)
UPDATE waiting SET due_ms = %b FROM due WHERE waiting.id = due.id
RETURNING waiting.id, waiting.payload
"""
_ACK = "DELETE FROM waiting WHERE id = ANY(%b::bigint[])"


class SkipLockedQueue:
    """The queue on one connection, each statement durable when it returns."""

    def __init__(self, url: str) -> None:
        import psycopg

        self._connection: Any = psycopg.connect(url, autocommit=True)

    def enqueue(self, load: Load, plan: Plan) -> Measured:
        """Batches of 1,000 into an empty table."""
        self._connection.execute(_TABLE)
        payloads, dues_ms = load.payloads(), load.dues_ms.tolist()
        sent = 0
        watch = Stopwatch(plan.seconds)
        for part in batches(load):
            if watch.is_over():
                break
            self._connection.execute(_SEND, (dues_ms[part], payloads[part]), binary=True)
            sent += len(payloads[part])
        return Measured(sent, watch.seconds())

    def lease_ack(self, now_ms: int, plan: Plan) -> Measured:
        """Lease and ack 1,000 at a time until nothing is due."""
        acked = 0
        watch = Stopwatch(plan.seconds)
        while not watch.is_over():
            leased = self._connection.execute(_LEASE, (now_ms, now_ms + LEASE_MS), binary=True)
            rows = leased.fetchall()
            if not rows:
                break
            ids = np.array([row[0] for row in rows]).tolist()
            self._connection.execute(_ACK, (ids,), binary=True)
            acked += len(rows)
        return Measured(acked, watch.seconds())

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()
