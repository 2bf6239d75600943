"""The record store on Cassandra: a partition for each log, whose last number is compared and set.

Room: journal. Needs the extra `cassandra`.
Holds: one conditional batch compares the log's last number, sets it and inserts the records: all
of it or nothing (a lightweight transaction at SERIAL). An object is the rows of one mark; its name
is changed to another mark by compare-and-set.
No time of a client decides: what has a condition is stamped by the servers, each later than the one
before. A delete of a range can have none, so it carries the stamp of the last append before it: it
hides what was there, and nothing that comes later, also when a dropped log begins at 1 again.
See: interface.py for the duties; connections/cassandra.py.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

import xxhash

from dejaqueue.connections.cassandra import CassandraSession
from dejaqueue.errors import Fenced, Unavailable
from dejaqueue.journal.records.interface import Bytes, RecordLog, RecordStore
from dejaqueue.journal.records.objects import read_whole

RECORD_BYTES_MAX = 512 << 10
BATCH_BYTES = 2 << 20
"""The server takes half a segment of its commit log: 16 MiB, if nobody changed that."""
BATCH_RECORDS = 200
READ_BYTES = 4 << 20
PIECE_BYTES = 512 << 10
TRIES = 5

_TABLES = (
    "CREATE TABLE IF NOT EXISTS {}.log (topic text, part int, number bigint, last bigint static, "
    "content blob, PRIMARY KEY ((topic, part), number))",
    "CREATE TABLE IF NOT EXISTS {}.topic (topic text, part int, PRIMARY KEY (topic, part))",
    "CREATE TABLE IF NOT EXISTS {}.object (bucket int, name text, mark text, count bigint, "
    "checksum text, PRIMARY KEY (bucket, name))",
    "CREATE TABLE IF NOT EXISTS {}.piece (mark text, place int, content blob, "
    "PRIMARY KEY (mark, place))",
)


def open_records(url: str) -> CassandraRecordStore:
    """The records of a `cassandra://` URL. Raises BadRequest, Refused, Unavailable."""
    return CassandraRecordStore(url)


class CassandraRecordStore(RecordStore):
    """All record logs and objects of a cluster in one keyspace."""

    record_bytes_max = RECORD_BYTES_MAX
    erases = True

    def __init__(self, url: str) -> None:
        """Connect. Raises BadRequest, Refused, Unavailable: see CassandraSession."""
        self._session = CassandraSession(url)
        self.summary = self._session.summary
        self._space = self._session.keyspace
        try:
            for table in _TABLES:
                self._session.change(table.format(self._space))
        except BaseException:
            self.close()
            raise

    def open(self, topic: str, partition: int) -> RecordLog:
        """Open a log; it is noted, so that `drop` finds it."""
        insert = f"INSERT INTO {self._space}.topic (topic, part) VALUES (?, ?) IF NOT EXISTS"
        self._session.run(insert, (topic, partition))
        return CassandraRecordLog(self._session, topic, partition)

    def drop(self, topic: str) -> None:
        """Delete all logs of a topic."""
        named = f"SELECT part FROM {self._space}.topic WHERE topic = ?"
        forget = f"DELETE FROM {self._space}.topic WHERE topic = ? AND part = ? IF EXISTS"
        for row in list(self._session.run(named, (topic,), serial=True)):
            CassandraRecordLog(self._session, topic, row.part).drop()
            self._session.run(forget, (topic, row.part))

    # --- objects -------------------------------------------------------------------------------

    def put_object(self, name: str, content: bytes | memoryview) -> None:
        """Store an object: its pieces first, then its name for them."""
        content = memoryview(content).cast("B")
        mark = secrets.token_hex(12)
        insert = f"INSERT INTO {self._space}.piece (mark, place, content) VALUES (?, ?, ?)"
        for place, first in enumerate(range(0, len(content), PIECE_BYTES)):
            piece = bytes(content[first : first + PIECE_BYTES])
            self._session.run(insert, (mark, place, piece))
        facts = (mark, len(content), xxhash.xxh3_128_hexdigest(content))
        for _ in range(TRIES):
            before = self._find(name)
            if self._name_pieces(name, facts, before[0] if before else None):
                if before:
                    self._forget(before[0])
                return
        raise Unavailable(f"object {name}: others store it again and again")

    def _name_pieces(self, name: str, facts: tuple[str, int, str], before: str | None) -> bool:
        """Name the pieces as an object's content, if it still has those of before."""
        if before is None:
            statement = (
                f"INSERT INTO {self._space}.object (bucket, name, mark, count, checksum) "
                "VALUES (0, ?, ?, ?, ?) IF NOT EXISTS"
            )
            return bool(self._session.run(statement, (name, *facts)).was_applied)
        statement = (
            f"UPDATE {self._space}.object SET mark = ?, count = ?, checksum = ? "
            "WHERE bucket = 0 AND name = ? IF mark = ?"
        )
        return bool(self._session.run(statement, (*facts, name, before)).was_applied)

    def _find(self, name: str) -> tuple[str, int, str] | None:
        statement = (
            f"SELECT mark, count, checksum FROM {self._space}.object WHERE bucket = 0 AND name = ?"
        )
        row = self._session.run(statement, (name,), serial=True).one()
        return None if row is None or row.mark is None else (row.mark, row.count, row.checksum)

    def _forget(self, mark: str) -> None:
        self._session.run(f"DELETE FROM {self._space}.piece WHERE mark = ?", (mark,))

    def get_object(self, name: str) -> bytes | None:
        """An object's content. Raises JournalDamaged if it is not what was stored."""
        return read_whole(f"{name} in {self.summary}", lambda: self._find(name), self._content)

    def _content(self, facts: tuple[str, int, str]) -> bytes | None:
        mark, count, checksum = facts
        one = f"SELECT content FROM {self._space}.piece WHERE mark = ? AND place = ?"
        rows = [
            self._session.run(one, (mark, place)).one() for place in range(-(-count // PIECE_BYTES))
        ]
        content = b"".join(row.content for row in rows if row is not None)
        is_whole = len(content) == count and xxhash.xxh3_128_hexdigest(content) == checksum
        return content if is_whole else None

    def object_names(self, prefix: str) -> list[str]:
        """Names of the objects that begin so, sorted."""
        statement = (
            f"SELECT name, mark FROM {self._space}.object "
            "WHERE bucket = 0 AND name >= ? AND name < ?"
        )
        # Names have letters below this one only.
        rows = self._session.run(statement, (prefix, prefix + "\U0010ffff"))
        return sorted(row.name for row in rows if row.mark is not None)

    def drop_objects(self, names: Sequence[str]) -> None:
        """Delete objects."""
        statement = f"DELETE FROM {self._space}.object WHERE bucket = 0 AND name = ? IF EXISTS"
        for name in names:
            before = self._find(name)
            if before is not None:
                self._session.run(statement, (name,))
                self._forget(before[0])

    def close(self) -> None:
        """Close the session; twice is fine."""
        self._session.close()


class CassandraRecordLog(RecordLog):
    """One partition's records as rows of one partition there."""

    def __init__(self, session: CassandraSession, topic: str, partition: int) -> None:
        self._session, self._key = session, (topic, partition)
        self._table = f"{session.keyspace}.log"
        self._closed = False
        self._mean_bytes = RECORD_BYTES_MAX

    def _check(self) -> None:
        if self._closed:
            raise Unavailable(f"{self._key}: the log is closed")

    def last(self) -> int:
        """The static column, read at SERIAL: what is under way is brought to its end first."""
        return self._last()[0]

    def _last(self) -> tuple[int, int]:
        """The last number, and when it was set by the servers' stamp; (0, 0) = never."""
        self._check()
        statement = (
            f"SELECT last, WRITETIME(last) AS written FROM {self._table} "
            "WHERE topic = ? AND part = ? LIMIT 1"
        )
        row = self._session.run(statement, self._key, serial=True).one()
        return (0, 0) if row is None or row.last is None else (int(row.last), int(row.written))

    def append(self, after: int, records: Sequence[Sequence[Bytes]]) -> None:
        """Append as many records as go into one conditional batch at once."""
        self._check()
        batch: list[bytes] = []
        place, byte_count = after, 0
        for pieces in records:
            content = b"".join(pieces)
            full = byte_count + len(content) > BATCH_BYTES or len(batch) == BATCH_RECORDS
            if batch and full:
                self._append_batch(place, batch, place > after)
                place, byte_count, batch = place + len(batch), 0, []
            batch.append(content)
            byte_count += len(content)
        self._append_batch(place, batch, place > after)

    def _append_batch(self, after: int, batch: list[bytes], is_continued: bool) -> None:
        setting = f"UPDATE {self._table} SET last = ? WHERE topic = ? AND part = ? IF last = ?"
        insert = f"INSERT INTO {self._table} (topic, part, number, content) VALUES (?, ?, ?, ?)"
        compared = (setting, (after + len(batch), *self._key, after or None))
        rows = [
            (insert, (*self._key, number, content))
            for number, content in enumerate(batch, after + 1)
        ]
        if self._session.run_together([compared, *rows]).was_applied:
            return
        if is_continued:
            raise Unavailable(f"{self._key}: another owner appended behind a part of this append")
        raise Fenced(f"{self._key}: the last record is not {after}")

    def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Read ranges of rows, each of about 4 MB."""
        statement = (
            f"SELECT number, content FROM {self._table} "
            "WHERE topic = ? AND part = ? AND number >= ? AND number < ? LIMIT ?"
        )
        while first < end:
            self._check()
            count = max(1, min(end - first, READ_BYTES // max(1, self._mean_bytes), 1000))
            rows = list(self._session.run(statement, (*self._key, first, end, count)))
            for row in rows:
                first = int(row.number) + 1
                yield first - 1, row.content
            if len(rows) < count:
                return
            self._mean_bytes = sum(len(row.content) for row in rows) // len(rows) + 1

    def drop_before(self, number: int) -> None:
        """Delete the rows below; the last number is a column of its own."""
        last, written = self._last()
        if last:
            self._delete_below(number, written)

    def _delete_below(self, number: int, written: int) -> None:
        statement = (
            f"DELETE FROM {self._table} USING TIMESTAMP ? "
            "WHERE topic = ? AND part = ? AND number < ?"
        )
        self._session.run(statement, (written, *self._key, number))

    def drop(self) -> None:
        """Delete all of it. Whoever still believes to own it is fenced from then on.

        Raises:
            Unavailable: also where somebody appends again and again.
        """
        delete = f"DELETE last FROM {self._table} WHERE topic = ? AND part = ? IF last = ?"
        for _ in range(TRIES):
            last, written = self._last()
            if not last:
                return
            # The rows first: what is left if this breaks off has a last number, and goes next time.
            self._delete_below(last + 1, written)
            if self._session.run(delete, (*self._key, last)).was_applied:
                return
        raise Unavailable(f"{self._key}: somebody appends to it again and again")

    def byte_count(self) -> int:
        """About the records from the first on, by the mean size of those read last."""
        self._check()
        statement = f"SELECT number FROM {self._table} WHERE topic = ? AND part = ? LIMIT 1"
        row = self._session.run(statement, self._key).one()
        if row is None or row.number is None:
            return 0
        return max(0, self.last() - int(row.number) + 1) * self._mean_bytes

    def close(self) -> None:
        """The session is the store's."""
        self._closed = True
