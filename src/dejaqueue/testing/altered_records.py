"""A store of records whose logs fail as a test says, in front of a real one.

Room: testing; shipped, for whoever writes a backend.
Holds: what is not made to fail is as the real one has it.
See: shared_journal_conformance.py, which tests journals with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dejaqueue.errors import Unavailable
from dejaqueue.journal.records.interface import Bytes, RecordLog, RecordStore


class AlteredRecords(RecordLog):
    """A log that fails as a test says, in front of a real one.

    Attributes:
        fail_next: "before" = the next append does not arrive; "after" = its answer does not;
            "prefix" = only its first record arrives, and no answer.
        rotten: records to give otherwise than they were stored, None = not at all.
        whole_replicas: replicas that have everything.
    """

    def __init__(self, inner: RecordLog) -> None:
        self.inner = inner
        self.fail_next: list[str] = []
        self.rotten: dict[int, bytes | None] = {}
        self.whole_replicas: tuple[str, ...] = ()

    def last(self) -> int:
        """See RecordLog.last."""
        return self.inner.last()

    def append(self, after: int, records: Sequence[Sequence[Bytes]]) -> None:
        """See RecordLog.append."""
        how = self.fail_next.pop(0) if self.fail_next else ""
        if how == "before":
            raise Unavailable("lost before it arrived")
        self.inner.append(after, records[:1] if how == "prefix" else records)
        if how:
            raise Unavailable("lost after it arrived")

    def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """See RecordLog.read."""
        for number, content in self.inner.read(first, end):
            given = self.rotten.get(number, content)
            if given is not None:
                yield number, given

    def replicas(self) -> Sequence[str]:
        """See RecordLog.replicas."""
        return self.whole_replicas

    def read_from(self, replica: str, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """See RecordLog.read_from."""
        return self.inner.read(first, end)

    def drop_before(self, number: int) -> None:
        """See RecordLog.drop_before."""
        self.inner.drop_before(number)

    def byte_count(self) -> int:
        """See RecordLog.byte_count."""
        return self.inner.byte_count()

    def close(self) -> None:
        """See RecordLog.close."""
        self.inner.close()


class AlteredStore(RecordStore):
    """A store whose logs fail as a test says."""

    def __init__(self, inner: RecordStore) -> None:
        self.inner = inner
        self.record_bytes_max = inner.record_bytes_max
        self.erases = inner.erases
        self.logs: list[AlteredRecords] = []

    def open(self, topic: str, partition: int) -> AlteredRecords:
        """See RecordStore.open."""
        self.logs.append(AlteredRecords(self.inner.open(topic, partition)))
        return self.logs[-1]

    def drop(self, topic: str) -> None:
        """See RecordStore.drop."""
        self.inner.drop(topic)

    def put_object(self, name: str, content: bytes | memoryview) -> None:
        """See RecordStore.put_object."""
        self.inner.put_object(name, content)

    def get_object(self, name: str) -> bytes | None:
        """See RecordStore.get_object."""
        return self.inner.get_object(name)

    def object_names(self, prefix: str) -> list[str]:
        """See RecordStore.object_names."""
        return self.inner.object_names(prefix)

    def drop_objects(self, names: Sequence[str]) -> None:
        """See RecordStore.drop_objects."""
        self.inner.drop_objects(names)

    def overwrite_deleted(self) -> None:
        """See RecordStore.overwrite_deleted."""
        self.inner.overwrite_deleted()

    def close(self) -> None:
        """See RecordStore.close."""
        self.inner.close()


class LentStore(AlteredStore):
    """A store that somebody else closes."""

    def close(self) -> None:
        """Left to its owner."""
