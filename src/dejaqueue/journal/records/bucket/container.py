"""The bytes of a container: records of many partitions in one object, little-endian.

    offset size field
         0    4 magic        u32  "DQB1"
         4    2 version      u16  1
         6    2 reserved     zero
         8    4 head_bytes   u32  bytes of the head
        12    4 reserved     zero
        16    8 checksum     u64  xxh3_64 of the bytes 0 to 15 and of the head
        24    … head         JSON: {"runs": [[ownership, number of the first, [bytes, …]], …]}
        …     … records      one after the other, in the order of the head

A container that takes ownerships from the life in whose log it stands has the head
{"taken": [ownership, …], "by": life}, or {"taken": "all", …}, and no records.

Room: journal. Knows bytes, no bucket. What is in the records is checked by who reads them.
Holds: a head that is not what was written is refused.
See: life_log.py, which is made of these.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import xxhash

from dejaqueue.errors import JournalDamaged

MAGIC: Final = int.from_bytes(b"DQB1", "little")
VERSION: Final = 1
_START: Final = struct.Struct("<IHHII")
_CHECKSUM: Final = struct.Struct("<Q")
START_BYTES: Final = _START.size + _CHECKSUM.size
HEAD_READ_BYTES: Final = 16 << 10
"""So many bytes are asked for to have the head; most have all of it in them."""
ALL: Final = "all"


class Run(NamedTuple):
    """Records of one ownership that lie one behind the other.

    Attributes:
        ownership: id of it.
        first: number of the first record.
        offset: of its first byte in the container.
        sizes: bytes of each.
    """

    ownership: str
    first: int
    offset: int
    sizes: list[int]


class Head(NamedTuple):
    """What a container says of itself.

    Attributes:
        runs: the records in it.
        taken: ownerships whose records count no more from here on; ALL is that of the whole life.
    """

    runs: list[Run]
    taken: list[str]


def encode_records(parts: Sequence[tuple[str, int, Sequence[bytes]]]) -> bytes:
    """A container with records: (ownership, number of the first, contents) of each run."""
    runs = [
        [ownership, first, [len(one) for one in records]] for ownership, first, records in parts
    ]
    start = _start({"runs": runs})
    return b"".join([start, *(one for _, _, records in parts for one in records)])


def encode_taken(ownerships: Sequence[str], by: str) -> bytes:
    """A container that takes ownerships."""
    return _start({"taken": list(ownerships), "by": by})


def _start(facts: dict[str, Any]) -> bytes:
    head = json.dumps(facts, separators=(",", ":")).encode()
    start = _START.pack(MAGIC, VERSION, 0, len(head), 0)
    return start + _CHECKSUM.pack(_checksum(start, head)) + head


def _checksum(start: bytes, head: bytes) -> int:
    state = xxhash.xxh3_64(start)
    state.update(head)
    return state.intdigest()


def head_bytes(content: bytes, place: str) -> int:
    """How many bytes from the beginning on hold all of the head. Raises JournalDamaged."""
    if len(content) < START_BYTES:
        raise JournalDamaged(f"{place}: is no container")
    magic, version, _, length, _ = _START.unpack_from(content)
    if (magic, version) != (MAGIC, VERSION):
        raise JournalDamaged(f"{place}: is no container of version {VERSION}")
    return START_BYTES + int(length)


def decode_head(content: bytes, place: str) -> Head:
    """The head of a container whose beginning this is, with all of its head.

    Args:
        place: where it is, for errors.

    Raises:
        JournalDamaged: it is not what was written.
    """
    end = head_bytes(content, place)
    head = content[START_BYTES:end]
    expected = _CHECKSUM.unpack_from(content, _START.size)[0]
    if _checksum(content[: _START.size], head) != expected:
        raise JournalDamaged(f"{place}: its head is not what was written")
    facts = json.loads(head)
    offset = end
    runs = []
    for ownership, first, sizes in facts.get("runs", ()):
        runs.append(Run(ownership, first, offset, sizes))
        offset += sum(sizes)
    return Head(runs, list(facts.get("taken", ())))
