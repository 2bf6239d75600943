"""The record contract: what a server must do so that a journal can live on it, in numbered duties.

Room: journal. A record is bytes with a number; only journal.py knows that entries are in it.
A backend is one file beside this one. It keeps bytes and compares numbers; splitting of large
entries, checksums, unknown outcomes, payload reads and what is live are done once, above it.

Duties of a `RecordLog` (one object = one partition):

 1. Numbers are dense from the log's first: an append after n makes n+1, n+2, …
 2. `append` is durable on the server when it returns, as the server's own guarantees go; the
    store refuses to open where the server's settings say that acknowledged is not durable.
 3. `append` with an `after` that is not the last number appends nothing and raises Fenced: the
    comparison and the append are one step of the server. No clock, no lease is involved.
 4. An append of several records may leave a prefix of them, never another part.
 5. Where the server's answer is lost, `append` raises Unavailable: the outcome is unknown. A
    backend never sends the same append again by itself.
 6. `last` is read so that an append that was acknowledged to anybody before is seen.
 7. `read` gives the records asked for that are there, in order; it does not pretend: what is not
    there is left out, and what is there is given as it was stored (the reader checks it).
 8. `drop_before(n)` lets the server forget records below n, some time later. The numbers of the
    others stay; `last` stays, also when nothing is left.
 9. Any thread may call `read` while another appends.
10. Where the store `erases`, `drop_before(n)` returns when the server has deleted the records below
    n, but the last one: nobody can read them any more. Files that the store writes itself have no
    byte of what was deleted when `overwrite_deleted` returns; what a server keeps in logs and files
    of its own is said in docs/guides/erasure.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

Bytes: TypeAlias = bytes | memoryview


class RecordLog(ABC):
    """The numbered records of one partition. See the duties on top of this file.

    Attributes:
        last_at_opening: what `last` said while it was being opened, so that who reads it need not
            ask again; None = nobody asked, or it was used.
    """

    last_at_opening: int | None = None

    @abstractmethod
    def last(self) -> int:
        """Number of the last record, 0 if there never was one. Raises Unavailable."""

    @abstractmethod
    def append(self, after: int, records: Sequence[Sequence[Bytes]]) -> None:
        """Append records durably behind the record `after`.

        Args:
            records: at least one; each a list of pieces to be stored one after the other, together
                at most `RecordStore.record_bytes_max`.

        Raises:
            Fenced: `after` is not the last number; nothing was appended.
            ResourceExhausted: the server has no room; nothing was appended.
            Unavailable: no answer; the outcome is unknown.
        """

    @abstractmethod
    def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield (number, record) of the records from `first` to before `end`, in order.

        Raises:
            Unavailable.
        """

    def replicas(self) -> Sequence[str]:
        """Names of the replicas that `read_from` can ask one by one; none where there are none."""
        return ()

    def read_from(self, replica: str, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """As `read`, from one replica alone: asked when what the server gave is not whole.

        Raises:
            Unavailable: this replica cannot be asked.
        """
        return iter(())

    @abstractmethod
    def drop_before(self, number: int) -> None:
        """Records below `number` are not needed any more. Raises Unavailable."""

    @abstractmethod
    def byte_count(self) -> int:
        """About how many bytes the records take on the server; may be seconds old."""

    @abstractmethod
    def close(self) -> None:
        """Release everything; twice is fine."""


class RecordStore(ABC):
    """All record logs of a cluster on one server (or group of servers), and small named objects.

    Objects are for snapshots, the catalogue and documents: names are text of at most 500 bytes of
    A-Z a-z 0-9 . _ - = and /; content is of any size (a backend splits what is too large for it),
    and replaced whole or not at all.

    Attributes:
        record_bytes_max: bytes of one record at most, for all logs of this store.
        summary: for status: the server's name and version, without secrets.
        erases: see duty 10.
        lease_ahead_ms: see JournalStore.lease_ahead_ms.
    """

    record_bytes_max: int = 1 << 20
    summary: str = ""
    erases: bool = False
    lease_ahead_ms: int = 0

    @abstractmethod
    def open(self, topic: str, partition: int) -> RecordLog:
        """Open a partition's log, creating it if needed. Raises Unavailable."""

    @abstractmethod
    def drop(self, topic: str) -> None:
        """Delete all logs of a topic. Raises Unavailable."""

    @abstractmethod
    def put_object(self, name: str, content: bytes | memoryview) -> None:
        """Store an object durably. Raises ResourceExhausted, Unavailable (outcome unknown)."""

    @abstractmethod
    def get_object(self, name: str) -> bytes | None:
        """An object's content as it was stored, None if there is none. Raises Unavailable."""

    def get_objects(self, names: Sequence[str]) -> dict[str, bytes]:
        """The contents of objects, as far as they are to be had together: what is not among them is
        asked for alone. A few megabytes at a time. Raises Unavailable."""
        found = ((name, self.get_object(name)) for name in names)
        return {name: content for name, content in found if content is not None}

    @abstractmethod
    def object_names(self, prefix: str) -> list[str]:
        """Names of the objects that begin so, sorted. Raises Unavailable."""

    def servers(self, *, now: bool = True) -> list[dict[str, Any]]:
        """See JournalStore.servers."""
        return []

    def copies(self, topic: str, partitions: int) -> list[dict[str, Any]]:
        """See JournalStore.copies."""
        return []

    @abstractmethod
    def drop_objects(self, names: Sequence[str]) -> None:
        """Delete objects; names that are not there are fine. Raises Unavailable."""

    def overwrite_deleted(self) -> None:
        """Have no file with bytes of what was deleted, where the store writes the files itself.

        Raises:
            Unavailable.
        """
        return

    @abstractmethod
    def close(self) -> None:
        """Release everything; twice is fine."""
