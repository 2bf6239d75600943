"""A queue as a table of PostgreSQL, by psycopg: INSERT, and DELETE … FOR UPDATE SKIP LOCKED.

Room: bench. A message is deleted by the statement that takes it, and its ack is the commit: one
sync, and a transaction that is open while the message is worked on (`held` in skip_locked.py).
Holds: a consumer that finds nothing sleeps until the next due time, or until it is notified: an
INSERT notifies where somebody waits for it (`Queue.is_waited_on`), else it does not, as a
notification takes a lock of the whole database at its commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psycopg

from bench.peers.peer import Consumer, Peer, Queue, Sender
from dejaqueue.clock import SystemClock


def make_peer(url: str, _variant: str) -> Peer:
    """By its URL."""
    return Postgresql(url)


class Postgresql(Peer):
    """A server with a table for each queue."""

    def __init__(self, url: str) -> None:
        self._url = url

    def make(self, queue: Queue) -> None:
        """See Peer."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(
                f"CREATE TABLE {queue.name} ("
                "id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
                "due_ms BIGINT NOT NULL, payload BYTEA NOT NULL)".encode()
            )
            connection.execute(f"CREATE INDEX ON {queue.name} (due_ms)".encode())

    def sender(self, queue: Queue) -> Sender:
        """See Peer."""
        return _Sender(psycopg.connect(self._url, autocommit=True), queue)

    def consumer(self, queue: Queue) -> Consumer:
        """See Peer."""
        return _Consumer(psycopg.connect(self._url), queue)


class _Sender(Sender):
    def __init__(self, connection: Any, queue: Queue) -> None:
        self._connection = connection
        self._clock = SystemClock()
        put = f"INSERT INTO {queue.name} (due_ms, payload) VALUES (%s, %s)"
        if queue.is_waited_on:
            put = f"WITH put AS ({put} RETURNING 1) SELECT pg_notify('{queue.name}', '') FROM put"
        self._put = put.encode()

    def send(self, payload: bytes) -> None:
        self._connection.execute(self._put, (self._clock.now_ms(), payload))

    def send_later(self, payload: bytes, due_ms: int, delay_ms: int) -> None:
        self._connection.execute(self._put, (due_ms, payload))

    def close(self) -> None:
        self._connection.close()


class _Consumer(Consumer):
    def __init__(self, connection: Any, queue: Queue) -> None:
        self._connection = connection
        self._clock = SystemClock()
        self._take = (
            f"DELETE FROM {queue.name} WHERE id = (SELECT id FROM {queue.name} "
            "WHERE due_ms <= %s ORDER BY due_ms LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING payload"
        ).encode()
        self._next = f"SELECT min(due_ms) FROM {queue.name}".encode()
        connection.execute(f"LISTEN {queue.name}".encode())
        connection.commit()

    def messages(self, idle_seconds: float) -> Iterator[bytes]:
        last = time.perf_counter()
        while True:
            taken = self._connection.execute(self._take, (self._clock.now_ms(),)).fetchone()
            if taken is not None:
                yield bytes(taken[0])  # its transaction stays open until the ack
                last = time.perf_counter()
                continue
            (due_ms,) = self._connection.execute(self._next).fetchone()
            self._connection.commit()
            left = last + idle_seconds - time.perf_counter()
            if left <= 0:
                return
            if due_ms is not None:
                left = min(left, max(0, due_ms - self._clock.now_ms()) / 1_000)
            for _ in self._connection.notifies(timeout=left, stop_after=1):
                pass

    def ack(self) -> None:
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()
