"""Records in memory: the smallest server there can be, for tests and as an example of the port.

Room: journal, one backend.
Holds: what any other server holds, until the process ends.
See: interface.py beside.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from dejaqueue.errors import Fenced
from dejaqueue.journal.records.interface import Bytes, RecordLog, RecordStore


class MemoryRecords(RecordLog):
    """The records of one partition, shared by everybody who opened them.

    Attributes:
        contents: records by number; tests may alter them, as rot does.
        is_dropped: whoever still has it open can append nothing.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.contents: dict[int, bytes] = {}
        self.is_dropped = False
        self._last = 0
        self._guard = threading.Lock()

    def last(self) -> int:
        """See RecordLog.last."""
        return self._last

    def append(self, after: int, records: Sequence[Sequence[Bytes]]) -> None:
        """See RecordLog.append."""
        with self._guard:
            if self.is_dropped:
                raise Fenced(f"{self.name} was dropped")
            if after != self._last:
                raise Fenced(f"{self.name} ends at record {self._last}, not {after}")
            for pieces in records:
                self._last += 1
                self.contents[self._last] = b"".join(pieces)

    def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """See RecordLog.read."""
        with self._guard:
            numbers = [number for number in self.contents if first <= number < end]
            copies = [(number, self.contents[number]) for number in sorted(numbers)]
        return iter(copies)

    def drop_before(self, number: int) -> None:
        """See RecordLog.drop_before."""
        with self._guard:
            for gone in [known for known in self.contents if known < number]:
                del self.contents[gone]

    def byte_count(self) -> int:
        """See RecordLog.byte_count."""
        with self._guard:
            return sum(len(content) for content in self.contents.values())

    def close(self) -> None:
        """Nothing to do."""


class MemoryRecordStore(RecordStore):
    """A server's worth of records, in this process.

    Attributes:
        logs: by topic and partition.
        objects: by name.
    """

    summary = "memory"
    erases = True

    def __init__(self, record_bytes_max: int = 1 << 20) -> None:
        self.record_bytes_max = record_bytes_max
        self.logs: dict[tuple[str, int], MemoryRecords] = {}
        self.objects: dict[str, bytes] = {}

    def open(self, topic: str, partition: int) -> MemoryRecords:
        """See RecordStore.open."""
        return self.logs.setdefault((topic, partition), MemoryRecords(f"{topic}/{partition}"))

    def drop(self, topic: str) -> None:
        """See RecordStore.drop."""
        for name in [name for name in self.logs if name[0] == topic]:
            self.logs.pop(name).is_dropped = True

    def put_object(self, name: str, content: bytes | memoryview) -> None:
        """See RecordStore.put_object."""
        self.objects[name] = bytes(content)

    def get_object(self, name: str) -> bytes | None:
        """See RecordStore.get_object."""
        return self.objects.get(name)

    def object_names(self, prefix: str) -> list[str]:
        """See RecordStore.object_names."""
        return sorted(name for name in list(self.objects) if name.startswith(prefix))

    def drop_objects(self, names: Sequence[str]) -> None:
        """See RecordStore.drop_objects."""
        for name in names:
            self.objects.pop(name, None)

    def close(self) -> None:
        """Nothing to do."""
