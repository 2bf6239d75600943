"""References: what is stored in place of a payload that is kept in the payload store.

    reference:  12 mark · kind u8 · payload bytes u64 · SHA-256 · key of 32 bytes · name
    cold:       the same, of an object that has many payloads: SHA-256, key and name are the
                object's, and before the name are its bytes u64 and the payload's offset in it u64
    literal:    12 mark · 0 · a payload of a sender's own that begins with the mark

Room: schema. Pure; columns of payloads as the journal has them.
Holds: no sender can make a reference: what comes in and begins with the mark is stored as a
literal, and is the same again when it leaves; a payload's size follows from what is stored alone.
See: payloads/payload_store.py, which keeps what is referred to; cold_references.py, whole columns
of cold ones; docs/adr/0068, docs/adr/0085.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue.errors import JournalDamaged
from dejaqueue.schema.plain import binary_column
from dejaqueue.schema.text_columns import text_bytes, text_offsets

MARK: Final = bytes.fromhex("ff8b1d6ea45e90c3f7d21b58")
"""What no text begins with, as 0xff is none in UTF-8; drawn at random."""
_LITERAL: Final = MARK + b"\0"
_HEAD: Final = struct.Struct("<12sBQ32s32s")
_PLAIN, _SEALED, _COLD, _COLD_SEALED = 1, 2, 3, 4
_WITHIN: Final = struct.Struct("<QQ")
_NO_KEY: Final = bytes(32)
_MARK_BYTES: Final = np.frombuffer(MARK, dtype=np.uint8)
_NO_ROWS: Final = np.zeros(0, dtype=np.int64)


class Reference(NamedTuple):
    """Where a payload is, and what it is to be.

    Attributes:
        name: of the object in the store; with a slash at its end it is what the names of the
            payload's parts begin with (payload_parts.py).
        byte_count: of the payload.
        digest: SHA-256 of the payload, or of the list of its parts.
        key: that it is encrypted with there; b"" = it is not.
        object_bytes: of a cold payload: bytes of the payloads of its object together; digest and
            key are the object's. 0 = the object has this payload alone.
        offset: of a cold payload: where it begins among them.
    """

    name: str
    byte_count: int
    digest: bytes
    key: bytes = b""
    object_bytes: int = 0
    offset: int = 0

    @property
    def is_cold(self) -> bool:
        """Whether its object has the payloads of other messages, too."""
        return self.object_bytes > 0

    @property
    def whole(self) -> Reference:
        """What refers to its object as a whole."""
        if not self.is_cold:
            return self
        return Reference(self.name, self.object_bytes, self.digest, self.key)

    @property
    def is_streamed(self) -> bool:
        """Whether it is stored in parts, and delivered as a voucher (vouchers.py)."""
        return self.name.endswith("/")

    def encode(self) -> bytes:
        """As it is stored in place of the payload."""
        key = self.key or _NO_KEY
        if self.is_cold:
            kind, within = _COLD, _WITHIN.pack(self.object_bytes, self.offset)
        else:
            kind, within = _PLAIN, b""
        kind += bool(self.key)
        head = _HEAD.pack(MARK, kind, self.byte_count, self.digest, key)
        return head + within + self.name.encode()


def decode(stored: bytes) -> Reference | bytes:
    """A stored payload that begins with the mark: what it refers to, or the payload itself.

    Raises:
        JournalDamaged: it is neither.
    """
    if stored.startswith(_LITERAL):
        return stored[len(_LITERAL) :]
    try:
        _, kind, byte_count, digest, key = _HEAD.unpack_from(stored)
        within, named_at = (0, 0), _HEAD.size
        if kind in (_COLD, _COLD_SEALED):
            within, named_at = _WITHIN.unpack_from(stored, _HEAD.size), _HEAD.size + _WITHIN.size
        name = stored[named_at:].decode()
    except (struct.error, UnicodeDecodeError) as wrong:
        raise JournalDamaged(f"a reference to a payload: {wrong}") from wrong
    if not _PLAIN <= kind <= _COLD_SEALED or not name or (kind >= _COLD and not within[0]):
        raise JournalDamaged(f"a reference to a payload of kind {kind}, which is not known")
    own_key = key if kind in (_SEALED, _COLD_SEALED) else b""
    return Reference(name, byte_count, digest, own_key, *within)


def escaped(payload: bytes) -> bytes:
    """A payload as it is stored where it is."""
    return _LITERAL + payload if payload.startswith(MARK) else payload


def marked_rows(column: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """Rows whose payload begins with the mark; of next to all columns there is none.

    Cost: a look at one byte of each row.
    """
    content = column.buffers()[2]
    if content is None or not len(column):
        return _NO_ROWS
    if len(column) == 1:  # the usual batch of a program that sends one message
        first, end = text_offsets(column).tolist()
        if end - first < len(MARK) or bytes(content[first : first + len(MARK)]) != MARK:
            return _NO_ROWS
    return _marked(text_offsets(column), np.frombuffer(content, dtype=np.uint8))


def _marked(
    offsets: npt.NDArray[np.int32], content: npt.NDArray[np.uint8]
) -> npt.NDArray[np.int64]:
    starts = offsets[:-1]
    rows: npt.NDArray[np.int64] = np.flatnonzero(offsets[1:] - starts >= len(MARK))
    rows = rows[content[starts[rows]] == MARK[0]]
    if not rows.size:
        return rows
    begins = content[starts[rows][:, None] + np.arange(len(MARK))]
    marked: npt.NDArray[np.int64] = rows[(begins == _MARK_BYTES).all(axis=1)]
    return marked


def payload_sizes(column: pa.BinaryArray) -> npt.NDArray[np.uint32]:
    """Bytes of each payload, wherever it is, shape (n,)."""
    content = column.buffers()[2]
    held = np.zeros(0, np.uint8) if content is None else np.frombuffer(content, dtype=np.uint8)
    return stored_sizes(text_offsets(column), held)


def stored_sizes(
    offsets: npt.NDArray[np.int32], content: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint32]:
    """The same, of a column of the journal."""
    sizes = np.diff(offsets).astype(np.uint32)
    for row in _marked(offsets, content).tolist() if content.size else ():
        try:
            stored = decode(content[offsets[row] : offsets[row + 1]].tobytes())
        except JournalDamaged:  # who reads it is told
            continue
        size = stored.byte_count if isinstance(stored, Reference) else len(stored)
        sizes[row] = min(size, 0xFFFF_FFFF)
    return sizes


def payload_bytes(column: pa.BinaryArray) -> int:
    """Bytes of all payloads together, wherever they are."""
    if not marked_rows(column).size:
        return text_bytes(column)
    return int(payload_sizes(column).sum(dtype=np.int64))


def replaced(column: pa.BinaryArray, changes: dict[int, bytes]) -> pa.BinaryArray:
    """The column with other payloads in these rows; those between are copied as they lie."""
    if not changes:
        return column
    parts: list[pa.Array] = []
    first = 0
    for row in sorted(changes):
        if row > first:
            parts.append(column.slice(first, row - first))
        parts.append(binary_column([changes[row]]))
        first = row + 1
    if first < len(column):
        parts.append(column.slice(first))
    return pa.concat_arrays(parts)
