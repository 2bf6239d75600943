"""A log piece: what the logs of a broker have got since the piece before, as one object.

     0  8 magic "DEJAQLP1"
     8  4 header_bytes u32           12  4 zero
    16  … header     JSON: the fields of LogPiece, and of each slice its log, bounds, bytes, and the
                     xxh3_128 of its content
     … 32 digest     SHA-256 of all that is before it
     …  … content    of the slices, one after the other: stored entries, as journal/format.py has
                     them, encrypted as they are in the log

Room: backup; pure.
Holds: `LogPiece.decode(piece.encode()) == piece`, or JournalDamaged; pieces of a chain name the
digest of the one before, so none can be left out or put in another's place unnoticed; checking
needs no keys.
See: log_chain.py, where pieces are stored; journal/segments/log_turn.py, where slices come from.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import xxhash

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.segments.log_turn import LogSlice

MAGIC: Final = b"DEJAQLP1"
_HEAD = struct.Struct("<8sII")
_DIGEST_BYTES: Final = 32
BUFFER_BYTES: Final = 16 << 20
"""A buffer that is larger is given back once it is not needed."""


class PieceScratch:
    """Memory for one piece after the other: memory of its own for each would have to be asked of
    the system, which takes longer than to fill it."""

    def __init__(self) -> None:
        self._content = np.zeros(0, dtype=np.uint8)

    def fill(self, parts: Sequence[memoryview]) -> memoryview:
        """The parts, one after the other, until it is filled again."""
        byte_count = sum(len(part) for part in parts)
        if byte_count > len(self._content) or len(self._content) > max(byte_count, BUFFER_BYTES):
            self._content = np.zeros(byte_count, dtype=np.uint8)
        at = 0
        for part in parts:
            end = at + len(part)
            # numpy copies without the interpreter's lock.
            np.copyto(self._content[at:end], np.frombuffer(part, dtype=np.uint8))
            at = end
        return self._content.data[:byte_count]


@dataclass(frozen=True, slots=True)
class LogPiece:
    """One object of a chain.

    Attributes:
        chain: the chain's id.
        number: from 1, within the chain.
        previous: digest of the piece before, in hexadecimal digits; "" = it is the first.
        store: of which journals it is, as in manifests.
        at_ms: all that was acknowledged by then, UTC, is in this piece and those before; 0 = only
            with those behind it, as what there was did not fit in one.
        slices: of logs; of one log they follow each other.
        reached: up to which position of each log the chain goes with this piece.
        data_keys: wrapped keys that those before did not have, as in manifests.
        ends: of a cut through the logs of several processes, as of `at_ms`: where each log ended;
            the entries up to there are in the strands of all of them. Empty = it says none.
        clocks: of that cut, as in manifests.
        fence: id of the standby that ended the chain with this piece, which has no slices, and as
            `reached` that of the piece before; "" = it is one like all others.
    """

    chain: str
    number: int
    previous: str
    store: str
    at_ms: int
    slices: tuple[LogSlice, ...]
    reached: dict[str, int] = field(default_factory=dict)
    data_keys: dict[str, str] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    clocks: int = 1
    fence: str = ""

    def encode(self, buffer: PieceScratch | None = None) -> memoryview:
        """As it is stored.

        Args:
            buffer: where it is put, in place of what is in it; None = into memory of its own.
        """
        header = json.dumps(
            {
                "chain": self.chain,
                "number": self.number,
                "previous": self.previous,
                "store": self.store,
                "at_ms": self.at_ms,
                "slices": [
                    [
                        one.log,
                        one.after,
                        one.last,
                        len(one.content),
                        xxhash.xxh3_128_hexdigest(one.content),
                    ]
                    for one in self.slices
                ],
                "reached": self.reached,
                "data_keys": self.data_keys,
                **({"ends": self.ends} if self.ends else {}),
                **({"clocks": self.clocks} if self.clocks > 1 else {}),
                **({"fence": self.fence} if self.fence else {}),
            },
            separators=(",", ":"),
        ).encode()
        head = _HEAD.pack(MAGIC, len(header), 0) + header
        head += hashlib.sha256(head).digest()
        return (buffer or PieceScratch()).fill(
            (memoryview(head), *(s.content for s in self.slices))
        )

    @classmethod
    def decode(cls, name: str, stored: bytes | memoryview) -> LogPiece:
        """The piece of `encode`.

        Args:
            name: where it is, for errors.

        Raises:
            JournalDamaged: it is not what was written.
        """
        view = memoryview(stored)
        try:
            at = _head_bytes(view)
            if hashlib.sha256(view[:at]).digest() != view[at : at + _DIGEST_BYTES]:
                raise ValueError("checksum")
            values: dict[str, Any] = json.loads(bytes(view[_HEAD.size : at]))
            slices = []
            at += _DIGEST_BYTES
            for log, after, last, byte_count, checksum in values.pop("slices"):
                content = view[at : at + byte_count]
                if xxhash.xxh3_128_hexdigest(content) != checksum:
                    raise ValueError(f"checksum of log {log}")
                slices.append(LogSlice(log, after, last, content))
                at += byte_count
            if at != len(view):
                raise ValueError(f"{len(view)} bytes, not {at}")
            return cls(slices=tuple(slices), **values)
        except (ValueError, KeyError, TypeError, struct.error) as wrong:
            raise JournalDamaged(f"{name}: is not what was stored ({wrong!r})") from wrong


def _head_bytes(view: memoryview) -> int:
    magic, header_bytes, _ = _HEAD.unpack_from(view)
    if magic != MAGIC:
        raise ValueError(magic)
    return _HEAD.size + int(header_bytes)


def digest_of(stored: bytes | memoryview) -> str:
    """The digest of a stored piece, in hexadecimal digits: the next one names it, and it is that of
    all of the piece, as it is of the checksums of its slices."""
    at = _head_bytes(memoryview(stored))
    return bytes(stored[at : at + _DIGEST_BYTES]).hex()


def owned_entries(one: LogSlice, what: str) -> Iterator[tuple[int, int, memoryview]]:
    """Of each entry of a slice: its partition's number, its position there, its stored bytes.

    Raises:
        JournalDamaged: an entry is missing, or is not what was written.
    """
    view, at, position = one.content, 0, one.after
    while at < len(view):
        position += 1
        head = entry_format.peek(view, at)
        if head is None or head.position != position:
            raise JournalDamaged(f"{what}, log {one.log}: entry {position} is missing or cut off")
        number, local = entry_format.owner_of(view, at)
        end = at + entry_format.HEADER_BYTES + head.body_bytes
        yield number, local, view[at:end]
        at = end
    if position != one.last:
        raise JournalDamaged(f"{what}, log {one.log}: ends at {position}, not at {one.last}")


def check_slice(one: LogSlice, what: str) -> None:
    """Raise JournalDamaged unless all entries of a slice are what was written; needs no keys."""
    for _, local, stored in owned_entries(one, what):
        head = entry_format.peek(stored, 0)
        if head is None or entry_format.verify(stored, 0, head) is None:
            raise JournalDamaged(f"{what}, log {one.log}: entry {local} is not what was written")


def farther(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """The later position of each log."""
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {*one, *other}}
