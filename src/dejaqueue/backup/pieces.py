"""What is in a piece: entries of a partition, or rows of its messages, in the journal's own format.

    0  8 magic "DEJAQBK1"
    8  … entries, as journal/format.py has them, one after the other

A piece of entries has them as the journal has, at their positions. A piece of rows has one entry of
the kind RELOCATE for some messages: its int column are their locators, ascending, its texts what is
stored of them; its position counts from 1 in the piece. The chain begins anew with each piece.

Room: backup; pure.
Holds: `read_entries` gives what was added, or raises JournalDamaged.
See: journal/format.py; docs/reference/journal-format.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.interface import Entry

MAGIC: Final = b"DEJAQBK1"
PIECE_BYTES: Final = 8 << 20
"""A piece is stored when it is so large; a single larger entry makes a larger one."""


class PieceWriter:
    """A piece that is being filled.

    Attributes:
        byte_count: of what is in it.
        last: position of its last entry, 0 = it is empty.
        until_ms: time of its last entry.
    """

    def __init__(self) -> None:
        self._content: list[bytes | memoryview] = [MAGIC]
        self._chain = 0
        self.byte_count = len(MAGIC)
        self.last = 0
        self.until_ms = 0

    @property
    def is_full(self) -> bool:
        """Whether it is to be stored before more comes in."""
        return self.byte_count >= PIECE_BYTES

    def add(self, position: int, epoch: int, entry: Entry) -> None:
        """Add an entry, behind the last one."""
        encoded = entry_format.encode(entry, position, epoch, self._chain, position - 1)
        # Joined at once: its columns may be views of memory that the journal gives back.
        self._content.append(b"".join(encoded.pieces))
        self._chain = encoded.checksum
        self.byte_count += encoded.byte_count
        self.last, self.until_ms = position, entry.now_ms

    def content(self) -> bytes:
        """The bytes of the piece."""
        return b"".join(self._content)


def read_entries(content: bytes | memoryview, what: str) -> Iterator[tuple[int, int, Entry]]:
    """The entries of a piece: (position, epoch, entry); their columns are views of it.

    Args:
        what: the piece, for errors.

    Raises:
        JournalDamaged: it is not what was written.
    """
    view = memoryview(content)
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise JournalDamaged(f"{what}: no piece of a backup")
    at, chain = len(MAGIC), 0
    while at < len(view):
        try:
            found = entry_format.decode(view, at)
        except JournalDamaged as damage:
            raise JournalDamaged(f"{what}, offset {at}: {damage}") from damage
        if found.head.previous != chain:
            raise JournalDamaged(f"{what}, offset {at}: an entry is missing before it")
        yield found.head.position, found.head.epoch, found.entry
        at, chain = at + found.byte_count, found.checksum
