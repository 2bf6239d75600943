"""The bytes of an entry: a fixed header, then columns in Arrow's layout, all little-endian.

    offset size field
         0    4 magic         u32  "DQE1"
         4    2 version       u16  1; 2 = the body is encrypted
         6    2 kind          u16  EntryKind
         8    8 position      u64
        16    8 epoch         u64  of the owner that wrote it
        24    8 now_ms        i64  the broker's time of it
        32    8 after         u64  the tail when it was written: every entry up to it was durable
        40    8 previous      u64  checksum of the entry before (the chain)
        48    4 body_bytes    u32  bytes after the header, a multiple of 8
        52    4 rows          u32
        56    4 int_columns   u32  0 to 8
        60    4 extra_bytes   u32
        64   32 params        i64 x 4
        96   40 directory     per column of TEXT_COLUMNS: u32 offset of the offsets buffer, u32
                              offset of the data buffer, from the entry's start; 0, 0 = absent
       136    8 partition     u64  the number of the partition that it is of, where several share
                              a log (segments/log.py); else zero
       144    8 local         u64  its position within that partition; else zero
       152    8 checksum      u64  xxh3_64 of the bytes 0 to 151 and of the body
       160    … body          int columns (i64 x rows each); extra; per text column offsets
                              (i32 x rows + 1, from 0) and data; each padded to 8 with zeros

An encrypted body (encryption/cipher.py) is that one, of the same length, and 32 bytes behind it,
which `body_bytes` counts: 16 tag, 8 number of the data key, 8 count of its uses. The tag is of the
bytes 0 to 151, too; the checksum is of what is stored.

Room: journal; every backend stores these bytes. Knows no files.
Holds: decode(encode(x)) == x; garbage raises JournalDamaged and nothing else; the payload is never
copied on the way out (buffers for writev) nor on the way in (views).
See: docs/reference/journal-format.md.
"""

from __future__ import annotations

import struct
import sys
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import xxhash

from dejaqueue import limits
from dejaqueue.errors import BadRequest, InternalError, JournalDamaged
from dejaqueue.journal.encryption.cipher import TRAILER_BYTES, Cipher, no_master_key
from dejaqueue.journal.interface import TEXT_COLUMNS, Entry, EntryKind, TextColumn

assert sys.byteorder == "little", (
    "DejaQ's journal is read through maps: little-endian machines only"
)

MAGIC: Final = int.from_bytes(b"DQE1", "little")
VERSION: Final = 1
SEALED: Final = 2
"""Version of an entry whose body is encrypted."""
HEADER_BYTES: Final = 160
CHECKSUM_OFFSET: Final = 152
DIRECTORY_OFFSET: Final = 96
ROWS_OFFSET: Final = 52
INT_COLUMNS_MAX: Final = 8
ENTRY_BYTES_MAX: Final = (1 << 31) - 8
"""Offsets within an entry are int32 when rows are gathered."""
JOINED_BYTES_MAX: Final = 1 << 15
"""Up to this size one joined copy is cheaper than many buffers (measured: 6 µs less per entry)."""

SCRATCH_BYTES: Final = 1 << 18
SCRATCH_BYTES_MAX: Final = 32 << 20
"""More is given back after an append that took it."""

_HEADER = struct.Struct("<IHHQQqQQIIII4q10IQQ")
"""Without the checksum that ends it."""
_FACTS = struct.Struct("<IHHQQqQQIIII")
_OWNER = struct.Struct("<QQ")
_OWNER_OFFSET: Final = 136
_CHECKSUM = struct.Struct("<Q")
_PADDING = tuple(bytes(count) for count in range(8))

assert _HEADER.size + _CHECKSUM.size == HEADER_BYTES
assert limits.BATCH_BYTES_MAX < ENTRY_BYTES_MAX

Piece: TypeAlias = bytes | memoryview


class Scratch:
    """Memory for the pieces of one append, used again by the next: memory of their own would be
    given back to the system each time, and asking for it costs more than to encrypt."""

    def __init__(self) -> None:
        self._content = memoryview(bytearray(0))
        self._used = 0

    def take(self, byte_count: int) -> memoryview:
        """Some bytes, until `reset`."""
        if self._used + byte_count > len(self._content):
            # What was taken before keeps its own; the next append finds room for as much.
            grown = max(2 * len(self._content), 2 * byte_count, SCRATCH_BYTES)
            self._content = memoryview(bytearray(grown))
            self._used = 0
        start, self._used = self._used, self._used + byte_count
        return self._content[start : self._used]

    def reset(self) -> None:
        """What was taken is not needed any more."""
        self._used = 0
        if len(self._content) > SCRATCH_BYTES_MAX:
            self._content = memoryview(bytearray(0))


class Encoded(NamedTuple):
    """An entry as bytes.

    Attributes:
        pieces: buffers to write one after the other; views of the caller's columns.
        byte_count: their total, a multiple of 8.
        checksum: the entry's own; the next entry carries it as `previous`.
        clear: of a small encrypted entry, header and body before they were encrypted, so that who
            reads it soon need not decrypt it; else empty.
    """

    pieces: list[Piece]
    byte_count: int
    checksum: int
    clear: bytes = b""


class Head(NamedTuple):
    """The fixed facts of an entry, as its header says them; not yet checked against the body."""

    kind: int
    position: int
    epoch: int
    now_ms: int
    after: int
    previous: int
    body_bytes: int
    rows: int
    int_columns: int
    extra_bytes: int
    is_sealed: bool = False


class Decoded(NamedTuple):
    """An entry and where it stands in the journal."""

    entry: Entry
    head: Head
    checksum: int
    byte_count: int


def _add(pieces: list[Piece], piece: Piece, at: int) -> int:
    """Append a piece and its padding; return the offset after it."""
    count = len(piece)
    if count == 0:
        return at
    pieces.append(piece)
    rest = -count & 7
    if rest:
        pieces.append(_PADDING[rest])
    return at + count + rest


def _bytes_of(column: object) -> Piece:
    """The bytes of a contiguous array or buffer, without a copy."""
    view = memoryview(column)  # type: ignore[arg-type]
    return view.cast("B") if view.nbytes else b""


def _fit(offsets: npt.NDArray[np.int32], rows: int, byte_count: int) -> bool:
    """Whether offsets are those of so many texts that lie one after the other in so many bytes."""
    if len(offsets) != rows + 1 or offsets.item(0) or not 0 <= offsets.item(rows) <= byte_count:
        return False
    return rows < 2 or not (offsets[1:] < offsets[:-1]).any()  # one has been looked at


def _add_text(pieces: list[Piece], text: TextColumn, rows: int, at: int) -> tuple[int, int, int]:
    """Append a text column; return the offsets of its two buffers, and the offset after it."""
    offsets = np.ascontiguousarray(text.offsets, dtype="<i4")
    content = _bytes_of(text.data)
    if not _fit(offsets, rows, len(content)):
        raise InternalError("a text column's offsets do not fit its rows and data")
    data_at = _add(pieces, _bytes_of(offsets), at)
    end = _add(pieces, content[: offsets.item(rows)], data_at)
    return at, data_at, end


def check_entry(entry: Entry) -> None:
    """Refuse an entry that `encode` cannot write: asked before its command is applied.

    Raises:
        BadRequest: a number that has no room, a text column whose offsets do not fit.
    """
    for number in entry.params:
        if not -(1 << 63) <= number < 1 << 63:
            raise BadRequest("number", "64 bits with a sign", number)
    for name, text in entry.texts.items():
        if not _fit(text.offsets, entry.rows, len(text.data)):
            raise BadRequest(name, "texts that lie in their buffer, in order", "others")
    _check_sizes(entry, 0)


def encode(
    entry: Entry,
    position: int,
    epoch: int,
    previous: int,
    after: int,
    owner: tuple[int, int] = (0, 0),
    cipher: Cipher | None = None,
    scratch: Scratch | None = None,
) -> Encoded:
    """The bytes of an entry that is to stand at `position`.

    Args:
        previous: checksum of the entry before, 0 for the first.
        after: the tail before the append that writes it; recovery tells a torn append from damage
            by it (segments/recovery.py).
        owner: the number of its partition and its position there, in a log of several.
        cipher: encrypts the body; None = it is stored as it is.
        scratch: where the pieces of a large encrypted entry are, until it is reset; None = in
            memory of their own.

    Raises:
        BadRequest: too large. InternalError: columns of different lengths.

    Cost: no copy of columns larger than JOINED_BYTES_MAX in all; encrypted, one, and the result.
    """
    rows = entry.rows
    pieces: list[Piece] = []
    at = HEADER_BYTES
    for column in entry.ints:
        values = np.ascontiguousarray(column, dtype="<i8")
        if len(values) != rows:
            raise InternalError(f"an int column has {len(values)} rows, the entry {rows}")
        at = _add(pieces, _bytes_of(values), at)
    at = _add(pieces, entry.extra, at)
    directory = [0] * 10
    for place, name in enumerate(TEXT_COLUMNS):
        text = entry.texts.get(name)
        if text is not None:
            directory[2 * place], directory[2 * place + 1], at = _add_text(pieces, text, rows, at)
    version, body_at = VERSION, at
    if cipher is not None:
        version, at = SEALED, at + TRAILER_BYTES
    _check_sizes(entry, at)
    # fmt: off
    head = _HEADER.pack(
        MAGIC, version, entry.kind, position, epoch, entry.now_ms, after, previous,
        at - HEADER_BYTES, rows, len(entry.ints), len(entry.extra), *entry.params, *directory,
        *owner,
    )
    # fmt: on
    is_small = at <= JOINED_BYTES_MAX
    clear = b""
    if cipher is not None:
        if is_small or scratch is None:
            clear = b"".join(pieces)
            pieces = [cipher.seal(clear, head)]
        else:
            joined, target = scratch.take(body_at - HEADER_BYTES), scratch.take(at - HEADER_BYTES)
            _join(pieces, joined)
            cipher.seal_into(joined, head, target)
            pieces = [target]
    state = xxhash.xxh3_64(head)
    for piece in pieces:
        state.update(piece)
    checksum = state.intdigest()
    head += _CHECKSUM.pack(checksum)
    pieces.insert(0, head)
    if is_small:
        pieces = [b"".join(pieces)]
    return Encoded(pieces, at, checksum, head + clear if cipher and is_small else b"")


def _join(pieces: list[Piece], target: memoryview) -> None:
    """Put pieces one after the other into memory that is as large as all of them."""
    at = 0
    for piece in pieces:
        target[at : at + len(piece)] = piece
        at += len(piece)


def _check_sizes(entry: Entry, byte_count: int) -> None:
    if byte_count > ENTRY_BYTES_MAX:
        raise BadRequest("batch", f"at most {limits.BATCH_BYTES_MAX} bytes", byte_count)
    if entry.rows > limits.BATCH_ROWS_MAX:
        raise BadRequest("batch", f"at most {limits.BATCH_ROWS_MAX} rows", entry.rows)
    if len(entry.ints) > INT_COLUMNS_MAX or not entry.texts.keys() <= set(TEXT_COLUMNS):
        raise InternalError("an entry has at most 8 int columns, and texts of TEXT_COLUMNS")


def peek(view: memoryview, at: int) -> Head | None:
    """What the header at offset `at` says, None if there is no header of this version."""
    if at + HEADER_BYTES > len(view):
        return None
    magic, version, *facts = _FACTS.unpack_from(view, at)
    if magic != MAGIC or not VERSION <= version <= SEALED:
        return None
    head = Head._make((*facts, version == SEALED))
    if head.body_bytes & 7 or at + HEADER_BYTES + head.body_bytes > len(view):
        return None
    return head


def verify(view: memoryview, at: int, head: Head) -> int | None:
    """The checksum of the entry at offset `at`, None if it is not what was written."""
    state = xxhash.xxh3_64(view[at : at + CHECKSUM_OFFSET])
    state.update(view[at + HEADER_BYTES : at + HEADER_BYTES + head.body_bytes])
    checksum = state.intdigest()
    return checksum if stored_checksum(view, at) == checksum else None


def owner_of(view: memoryview, at: int) -> tuple[int, int]:
    """Of the entry at offset `at`: the number of its partition, and its position there."""
    number, local = _OWNER.unpack_from(view, at + _OWNER_OFFSET)
    return number, local


def stored_checksum(view: memoryview, at: int) -> int:
    """The checksum that the entry at offset `at` carries of itself."""
    return int(_CHECKSUM.unpack_from(view, at + CHECKSUM_OFFSET)[0])


def clear_of(view: memoryview, at: int, head: Head, cipher: Cipher | None) -> memoryview:
    """Header and body of the entry at offset `at`, decrypted if they are encrypted.

    Who altered what is encrypted is found out here, also if the checksum was computed again.

    Raises:
        JournalDamaged: it is not what was encrypted at this place.
        EncryptionKeyMissing: there is no key to decrypt it with.
    """
    end = at + HEADER_BYTES + head.body_bytes
    if not head.is_sealed:
        if cipher is not None and cipher.refuses_plain:
            raise JournalDamaged("an entry is not encrypted, as everything here is")
        return view[at:end]
    if cipher is None:
        raise no_master_key(f"entry {head.position}")
    body = cipher.open(view[at + HEADER_BYTES : end], view[at : at + CHECKSUM_OFFSET])
    return memoryview(b"".join((view[at : at + HEADER_BYTES], body)))


def decrypt_into(view: memoryview, at: int, head: Head, cipher: Cipher, target: memoryview) -> int:
    """Put the entry at offset `at`, decrypted, at the same offset of other memory; how many bytes.

    Raises:
        JournalDamaged: it is not what was encrypted at this place; the target has anything.
        EncryptionKeyMissing.
    """
    body_at, end = at + HEADER_BYTES, at + HEADER_BYTES + head.body_bytes
    if not head.is_sealed:
        target[at:end] = clear_of(view, at, head, cipher)
        return end - at
    target[at:body_at] = view[at:body_at]
    clear_end = end - TRAILER_BYTES
    if clear_end < body_at:
        raise JournalDamaged("too short for what is encrypted")
    cipher.open_into(view[body_at:end], view[at : at + CHECKSUM_OFFSET], target[body_at:clear_end])
    return clear_end - at


def decode(
    view: memoryview, at: int = 0, *, trusted: bool = False, cipher: Cipher | None = None
) -> Decoded:
    """The entry at offset `at`; its columns are views, of `view` if it is not encrypted.

    Args:
        trusted: its checksum was verified before, and is not computed again.
        cipher: decrypts it.

    Raises:
        JournalDamaged: these are not the bytes of an entry, or not of the one encrypted here.
        EncryptionKeyMissing: there is no key to decrypt it with.
    """
    head = peek(view, at)
    if head is None:
        raise JournalDamaged("no header of an entry")
    checksum = stored_checksum(view, at) if trusted else verify(view, at, head)
    if checksum is None:
        raise JournalDamaged("the checksum of an entry is wrong")
    byte_count = HEADER_BYTES + head.body_bytes
    clear = clear_of(view, at, head, cipher)
    return Decoded(_columns(clear, head), head, checksum, byte_count)


def _columns(view: memoryview, head: Head) -> Entry:
    rows, ints_end = head.rows, HEADER_BYTES + 8 * head.rows * head.int_columns
    if head.int_columns > INT_COLUMNS_MAX or rows > limits.BATCH_ROWS_MAX:
        raise JournalDamaged("an entry has too many columns or rows")
    if ints_end + head.extra_bytes > len(view) or head.kind not in _KINDS:
        raise JournalDamaged("an entry is too short for its columns, or of an unknown kind")
    directory = struct.unpack_from("<10I", view, DIRECTORY_OFFSET)
    return Entry(
        kind=EntryKind(head.kind),
        now_ms=head.now_ms,
        params=struct.unpack_from("<4q", view, 64),
        rows=rows,
        ints=tuple(
            np.frombuffer(view, "<i8", rows, HEADER_BYTES + 8 * rows * place)
            for place in range(head.int_columns)
        ),
        texts={
            name: _text(view, rows, directory[2 * place], directory[2 * place + 1])
            for place, name in enumerate(TEXT_COLUMNS)
            if directory[2 * place]
        },
        extra=bytes(view[ints_end : ints_end + head.extra_bytes]),
    )


def _text(view: memoryview, rows: int, offsets_at: int, data_at: int) -> TextColumn:
    if offsets_at & 7 or offsets_at + 4 * (rows + 1) > len(view) or data_at > len(view):
        raise JournalDamaged("a text column lies outside its entry")
    offsets = np.frombuffer(view, "<i4", rows + 1, offsets_at)
    if offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any():
        raise JournalDamaged("the offsets of a text column are not in order")
    end = data_at + int(offsets[-1])
    if end > len(view):
        raise JournalDamaged("a text column lies outside its entry")
    return TextColumn(offsets, view[data_at:end])


_KINDS = frozenset(EntryKind)
