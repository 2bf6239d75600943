"""Commands as journal entries, and back.

Room: broker. Pure translation; what a kind's `params` and `ints` mean is said here and nowhere
else.
Holds: to_command(to_entry(command)) does the same to an engine as the command.
See: docs/reference/journal-format.md.

    kind        params                                        ints              texts · extra
    OPEN_EPOCH  epoch
    ENQUEUE     payload bytes · has keys (1), replaces (2)    dues, replaced    all · sub-batches
    LEASE       until · count · lease end · leased
    ACK         lease id                                      sequences, attempts (none: whole
    lease) NACK        lease id · due                                as ACK
    EXTEND      lease id · lease end                          as ACK
    MOVE                                                      sequences, dues
    CANCEL                                                    sequences
    RELOCATE                                                  sequences         all
"""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue.engine import commands
from dejaqueue.engine.commands import Command, Int64s, SubBatch, UInt16s
from dejaqueue.engine.keys import hash_keys
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.interface import Entry, EntryKind, TextColumn
from dejaqueue.schema.checks import text_offsets

HAS_KEYS = 1
HAS_REPLACED = 2
"""Bits of an ENQUEUE entry's second parameter: the columns beyond `dues` that it has."""


def text_column(column: pa.Array) -> TextColumn:
    """A binary or utf8 column without nulls as a journal column; no copy of the bytes."""
    offsets = text_offsets(column)
    first, last = int(offsets[0]), int(offsets[-1])
    if first:
        offsets = offsets - np.int32(first)
    content = column.buffers()[2]
    if content is None:
        return TextColumn(offsets, b"")
    return TextColumn(
        offsets,
        content if last == content.size and not first else content.slice(first, last - first),
    )


def arrow_column(text: TextColumn, kind: pa.DataType) -> pa.Array:
    """A journal column as an Arrow column over the same bytes."""
    rows = len(text.offsets) - 1
    return pa.Array.from_buffers(
        kind, rows, [None, pa.py_buffer(text.offsets), pa.py_buffer(text.data)]
    )


def hash_column(text: TextColumn) -> Int64s:
    """The key hashes of a key column; 0 where the key is empty."""
    hashes = hash_keys(text.offsets, np.frombuffer(text.data, dtype=np.uint8))
    hashes[text.offsets[1:] == text.offsets[:-1]] = 0
    return hashes


def enqueue_entry(command: commands.Enqueue, texts: dict[str, TextColumn]) -> Entry:
    """The entry of an Enqueue, whose texts the command does not carry."""
    rows = len(command.dues_ms)
    flags, ints = 0, [command.dues_ms]
    if command.key_hashes is not None:
        flags |= HAS_KEYS
    if command.replaced is not None:
        flags |= HAS_REPLACED
        ints.append(np.full(rows, -1, dtype=np.int64))
        ints[-1][: len(command.replaced)] = command.replaced
    return Entry(
        EntryKind.ENQUEUE,
        command.now_ms,
        (command.payload_bytes, flags, 0, 0),
        rows,
        tuple(ints),
        texts,
        _pack_sub_batches(command.sub_batches),
    )


def relocate_entry(command: commands.Relocate, texts: dict[str, TextColumn]) -> Entry:
    """The entry of a Relocate, whose texts the command does not carry."""
    rows = len(command.sequences)
    return Entry(
        EntryKind.RELOCATE, command.now_ms, (0, 0, 0, 0), rows, (command.sequences,), texts
    )


def _settled(
    kind: EntryKind, command: commands.Ack | commands.Nack | commands.Extend, argument: int
) -> Entry:
    params = (command.lease_id, argument, 0, 0)
    if command.sequences is None or command.attempts is None:
        return Entry(kind, command.now_ms, params)
    ints = (command.sequences, command.attempts.astype(np.int64))
    return Entry(kind, command.now_ms, params, len(command.sequences), ints)


def to_entry(command: Command, leased_count: int = 0) -> Entry:
    """The entry of a command without texts.

    Args:
        leased_count: for a Lease: how many rows it took, checked at replay.
    """
    match command:
        case commands.Lease():
            params = (command.until_ms, command.count, command.lease_end_ms, leased_count)
            return Entry(EntryKind.LEASE, command.now_ms, params)
        case commands.Ack():
            return _settled(EntryKind.ACK, command, 0)
        case commands.Nack():
            return _settled(EntryKind.NACK, command, command.due_ms)
        case commands.Extend():
            return _settled(EntryKind.EXTEND, command, command.lease_end_ms)
        case commands.Move():
            ints: tuple[Int64s, ...] = (command.sequences, command.dues_ms)
            return Entry(EntryKind.MOVE, command.now_ms, rows=len(ints[0]), ints=ints)
        case commands.Cancel():
            rows = len(command.sequences)
            return Entry(EntryKind.CANCEL, command.now_ms, rows=rows, ints=(command.sequences,))
        case commands.OpenEpoch():
            return Entry(EntryKind.OPEN_EPOCH, command.now_ms, (command.epoch, 0, 0, 0))
        case commands.Enqueue() | commands.Relocate():
            raise TypeError("commands with texts have a function of their own")


def to_command(entry: Entry, position: int) -> Command:
    """The command of an entry, for replay.

    Raises:
        JournalDamaged: the entry is not one that `to_entry` writes.
    """
    now_ms, params = entry.now_ms, entry.params
    try:
        match entry.kind:
            case EntryKind.OPEN_EPOCH:
                return commands.OpenEpoch(now_ms, params[0])
            case EntryKind.ENQUEUE:
                key = entry.texts.get("key") if params[1] & HAS_KEYS else None
                replaced = entry.ints[1] if params[1] & HAS_REPLACED else None
                return commands.Enqueue(
                    now_ms,
                    position,
                    entry.ints[0],
                    _unpack_sub_batches(entry.extra, entry.rows),
                    None if key is None else hash_column(key),
                    params[0],
                    replaced=None if replaced is None else replaced[replaced >= 0],
                )
            case EntryKind.LEASE:
                until_ms, count, lease_end_ms, leased = params
                return commands.Lease(now_ms, position, until_ms, count, lease_end_ms, leased)
            case EntryKind.ACK:
                return commands.Ack(now_ms, params[0], *_named_rows(entry))
            case EntryKind.NACK:
                return commands.Nack(now_ms, params[1], params[0], *_named_rows(entry))
            case EntryKind.EXTEND:
                return commands.Extend(now_ms, params[1], params[0], *_named_rows(entry))
            case EntryKind.MOVE:
                return commands.Move(now_ms, entry.ints[0], entry.ints[1])
            case EntryKind.CANCEL:
                return commands.Cancel(now_ms, entry.ints[0])
            case EntryKind.RELOCATE:
                return commands.Relocate(now_ms, position, entry.ints[0])
    except (IndexError, ValueError, TypeError, KeyError) as wrong:
        raise JournalDamaged(f"entry {position} ({entry.kind!r}): {wrong}") from wrong
    raise JournalDamaged(f"entry {position}: unknown kind {entry.kind!r}")


def _named_rows(entry: Entry) -> tuple[Int64s | None, UInt16s | None]:
    if not entry.ints:
        return None, None
    attempts: npt.NDArray[np.uint16] = entry.ints[1].astype(np.uint16)
    return entry.ints[0], attempts


def _pack_sub_batches(sub_batches: tuple[SubBatch, ...]) -> bytes:
    """JSON of the producers' batches; nothing if no answer has to be remembered."""
    if not any(batch.producer for batch in sub_batches):
        return b""
    return json.dumps(
        [
            [b.producer, b.number, b.count, b.refused_indices, b.refused_ids, b.refused_statuses]
            if b.refused_indices
            else [b.producer, b.number, b.count]
            for b in sub_batches
        ],
        separators=(",", ":"),
    ).encode()


def _unpack_sub_batches(extra: bytes, rows: int) -> tuple[SubBatch, ...]:
    if not extra:
        return (SubBatch("", 0, rows),)
    return tuple(
        SubBatch(row[0], row[1], row[2], *(tuple(part) for part in row[3:]))
        for row in json.loads(bytes(extra))
    )
