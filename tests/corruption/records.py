"""Replicated journals worth spoiling: records and objects of a server, as a broker reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from tests.corruption.images import Started, fill, start_on

RECORD_BYTES_MAX = 4 << 10
"""Small, so that some appends are in several records."""


class RecordImage:
    """What a server keeps: records/<topic>/<partition>/<number> and objects/<name>."""

    def __init__(self, store: MemoryRecordStore) -> None:
        self._store = store

    def contents(self) -> dict[Path, npt.NDArray[np.uint8]]:
        """All records and objects."""
        found = {
            Path("records", topic, str(partition), str(number)): content
            for (topic, partition), log in self._store.logs.items()
            for number, content in log.contents.items()
        }
        found |= {Path("objects", name): content for name, content in self._store.objects.items()}
        return {path: np.frombuffer(found[path], np.uint8) for path in sorted(found) if found[path]}

    def start(self, path: Path | None = None, at: int = 0, bit: int = 0) -> Started:
        """A broker that knows nothing of them, on a copy."""
        copy = self._copy()
        if path is not None:
            _flip(copy, path, at, bit)
        return start_on(RecordJournalStore(copy))

    def _copy(self) -> MemoryRecordStore:
        copy = MemoryRecordStore(RECORD_BYTES_MAX)
        copy.objects = dict(self._store.objects)
        for name, log in self._store.logs.items():
            mine = copy.open(*name)
            mine.contents, mine._last = dict(log.contents), log._last
        return copy


def record_image() -> RecordImage:
    """The same as on the disk of `rich_image`."""
    records = MemoryRecordStore(RECORD_BYTES_MAX)
    started = start_on(RecordJournalStore(records))
    fill(started)
    image = RecordImage(RecordImage(records)._copy())
    started.broker.stop()
    return image


def _flip(store: MemoryRecordStore, path: Path, at: int, bit: int) -> None:
    kind, *names = path.parts
    if kind == "objects":
        name = "/".join(names)
        store.objects[name] = _flipped(store.objects[name], at, bit)
    else:
        topic, partition, number = names
        contents = store.logs[topic, int(partition)].contents
        contents[int(number)] = _flipped(contents[int(number)], at, bit)


def _flipped(content: bytes, at: int, bit: int) -> bytes:
    altered = bytearray(content)
    altered[at] ^= 1 << bit
    return bytes(altered)
