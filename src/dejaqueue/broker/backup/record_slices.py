"""Slices of a journal that is kept as records on a server, as an archive has those of a log.

Such a journal has no file whose bytes could be stored as they are: entries are read, and written
once more as a log of several partitions has them, under their own positions.

Room: broker. Any thread: a journal is read beside the worker that appends to it.
Holds: a slice has each entry behind `after`, as it was durable, or it is refused.
See: record_archiver.py and catalogue_slices.py, who archive them; backup/log_pieces.py.
"""

from __future__ import annotations

from dejaqueue.backup.log_pieces import owned_entries
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.encryption.cipher import Cipher
from dejaqueue.journal.interface import Entry, Journal
from dejaqueue.journal.segments.log_turn import LogSlice


def record_slice(
    journal: Journal,
    log: str,
    number: int,
    bounds: tuple[int, int],
    byte_count_max: int,
    cipher: Cipher | None,
) -> LogSlice:
    """Entries of a journal, as many as fit, and one at least.

    Args:
        log: what the journal is called in the archive.
        number: of its partition; 0 = it is the catalogue's.
        bounds: from behind the one position up to the other, which is durable.
        cipher: encrypts them; None = they are stored as they are.

    Raises:
        JournalDamaged: they were given back. Unavailable: they cannot be read now, or it is closed.
    """
    after, last = bounds
    pieces: list[bytes] = []
    at, byte_count = after, 0
    for position, epoch, entry in journal.scan(after):
        if position != at + 1 or position > last:
            break
        encoded = entry_format.encode(
            entry, position, epoch, 0, at, (number, position), cipher=cipher
        )
        if pieces and byte_count + encoded.byte_count > byte_count_max:
            break
        pieces += [bytes(piece) for piece in encoded.pieces]
        byte_count += encoded.byte_count
        at = position
    if at == after:
        raise JournalDamaged(f"log {log}: entry {after + 1} was given back")
    return LogSlice(log, after, at, memoryview(b"".join(pieces)))


def differs(one: LogSlice, journal: Journal, cipher: Cipher | None) -> bool:
    """Whether a slice of the archive has something else than the journal at its positions; what
    the journal has given back is no difference.

    Raises:
        JournalDamaged: the slice is not what was stored. Unavailable.
    """
    try:
        known = {at: entry for at, _, entry in _until(journal, one.after, one.last)}
    except JournalDamaged:
        return False
    for _, local, stored in owned_entries(one, "the archive"):
        found = entry_format.decode(stored, 0, cipher=cipher).entry
        if local in known and _bytes_of(known[local]) != _bytes_of(found):
            return True
    return False


def _until(journal: Journal, after: int, last: int) -> list[tuple[int, int, Entry]]:
    found = []
    for one in journal.scan(after):
        if one[0] > last:
            break
        found.append(one)
    return found


def _bytes_of(entry: Entry) -> bytes:
    """An entry as it is stored, wherever it stands."""
    return b"".join(bytes(piece) for piece in entry_format.encode(entry, 1, 1, 0, 0).pieces)
