"""ArchiveTail: what an archive has behind a backup, sorted by partition, while it is restored.

Pieces are read once, each with all partitions; their entries go to a file of this machine as they
are, encrypted where they are, so that partitions can be restored one after the other.

Room: broker. A temporary file.
Holds: entries are those up to a moment that a piece says, so they are one cut; what does not reach
such a moment is left out.
See: restoring.py; archived_partition.py, which replays them; backup/log_chain.py.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from dejaqueue.backup.log_chain import LogChain, following
from dejaqueue.backup.log_pieces import LogPiece, owned_entries
from dejaqueue.backup.manifest import Manifest
from dejaqueue.catalogue.changes import from_bytes
from dejaqueue.catalogue.state import CatalogueState
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.encryption.data_keys import DataKeys
from dejaqueue.journal.interface import Entry
from dejaqueue.journal.segments.store import OWN_NAME, PARTITION_BITS, cipher_name

_CATALOGUE_NUMBER = 0


def partition_number(topic_number: int, partition: int) -> int:
    """What a partition is called in its log."""
    return topic_number << PARTITION_BITS | partition


class ArchiveTail:
    """What is behind a backup.

    Attributes:
        at_ms: as of when, UTC; 0 = there is nothing.
        number: of the last piece that counts; 0 = none does.
        data_keys: wrapped keys that pieces have, as in manifests.
        keys: to decrypt with; given when they are known.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._file = tempfile.TemporaryFile(prefix="dejaq-restore-")  # noqa: SIM115 - ends with self
        self._file_bytes = 0
        self._extents: dict[int, list[tuple[int, int]]] = {}
        """By partition, as in logs: from where to where in the file."""
        self._logs: dict[int, str] = {}
        self._known = {
            partition_number(one.topic_number, one.partition): one.position
            for one in manifest.partitions
        }
        self._memory: mmap.mmap | None = None
        self.at_ms = self.number = 0
        self.data_keys: dict[str, str] = {}
        self.keys: DataKeys | None = None

    def __enter__(self) -> Self:
        """For a block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        wrong: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """The file is gone; entries that are referenced stay readable."""
        self._file.close()

    def read(
        self,
        chain: LogChain,
        *,
        until_ms: int | None,
        last: int | None,
        damaged: Callable[[str], None] | None,
    ) -> None:
        """Read the pieces.

        Args:
            until_ms: up to the first moment that is not before this one; None = all.
            last: number of the last piece to read; None = of all.
            damaged: told what is damaged, and nothing behind that is read; None = it is raised.

        Raises:
            JournalDamaged, Unavailable.
        """
        pending: list[tuple[int, int, int]] = []
        for piece in following(chain, self._manifest, damaged):
            if last is not None and piece.number > last:
                break
            pending += self._put(piece)
            self.data_keys |= piece.data_keys
            if not piece.at_ms:
                continue
            for number, start, end in pending:
                self._add(number, start, end)
            pending = []
            self.at_ms, self.number = piece.at_ms, piece.number
            if until_ms is not None and piece.at_ms >= until_ms:
                break

    def _put(self, piece: LogPiece) -> Iterator[tuple[int, int, int]]:
        """Put a piece into the file: of each entry the partition, and from where to where it is."""
        for one in piece.slices:
            self._file.write(one.content)
            for number, local, stored in owned_entries(one, f"piece {piece.number}"):
                start, self._file_bytes = self._file_bytes, self._file_bytes + len(stored)
                if self._is_new(one.log, number, local):
                    self._logs[number] = one.log
                    yield number, start, self._file_bytes

    def _is_new(self, log: str, number: int, local: int) -> bool:
        """Whether the backup lacks an entry; of the catalogue, its revision says it."""
        return log == OWN_NAME or local > self._known.get(number, 0)

    def _add(self, number: int, start: int, end: int) -> None:
        extents = self._extents.setdefault(number, [])
        if extents and extents[-1][1] == start:
            extents[-1] = extents[-1][0], end
        else:
            extents.append((start, end))

    def partitions(self, topic_number: int) -> list[int]:
        """Partitions of a topic of which there are entries."""
        found = (one for one in self._extents if one >> PARTITION_BITS == topic_number)
        return sorted(one & ((1 << PARTITION_BITS) - 1) for one in found if one)

    def entries(self, number: int) -> Iterator[tuple[int, int, Entry]]:
        """The entries of a partition in order: its position, epoch, and the entry.

        Raises:
            JournalDamaged: one is not what was written. EncryptionKeyMissing.
        """
        extents = self._extents.get(number)
        if not extents:
            return
        view = self._view()
        cipher = None
        if self.keys is not None:
            cipher = self.keys.cipher(cipher_name(self._logs[number]))
        for start, end in extents:
            at = start
            while at < end:
                try:
                    found = entry_format.decode(view, at, cipher=cipher)
                except JournalDamaged as damage:
                    raise JournalDamaged(f"the archive, an entry of {number}: {damage}") from damage
                yield entry_format.owner_of(view, at)[1], found.head.epoch, found.entry
                at += found.byte_count

    def _view(self) -> memoryview:
        """The file, when all of it is written."""
        if self._memory is None:
            self._file.flush()
            self._memory = mmap.mmap(self._file.fileno(), 0, prot=mmap.PROT_READ)
        return memoryview(self._memory)

    def change(self, state: CatalogueState) -> None:
        """Have the catalogue of the backup be that of this moment.

        Raises:
            JournalDamaged: a change is missing.
        """
        for revision, _, entry in self.entries(_CATALOGUE_NUMBER):
            if revision <= state.revision:
                continue
            if revision != state.revision + 1:
                raise JournalDamaged(f"the archive: change {state.revision + 1} is missing")
            state.apply(from_bytes(bytes(entry.extra)), revision)
