"""Encoding: changes as columns, and columns as a Parquet file.

Room: broker. On the history's own thread; loops over commands, never over messages.
Holds: the columns are those of schema/history.py; a column that nobody filled is all null.
See: docs/adr/0010-history-is-parquet-written-once.md for why these encodings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dejaqueue import limits
from dejaqueue.broker.history.pieces import Piece
from dejaqueue.broker.shard.entries import arrow_column
from dejaqueue.broker.shard.entry_changes import EntryChanges
from dejaqueue.engine.arrays import Int64s, Words
from dejaqueue.engine.effects import Change
from dejaqueue.model import ChangeKind
from dejaqueue.schema import arrow_calls as pc
from dejaqueue.schema.history import CHANGE_NAMES, STORED
from dejaqueue.schema.messages import DEFAULT_PRIORITY
from dejaqueue.schema.texts import mended

_SIMILAR = ("at_ms", "id", "sequence", "position", "due", "lateness_ms")
"""Integers that lie near the ones before them."""
_WORDS = ("change", "group", "consumer", "reason")
"""Texts that repeat: a dictionary here, as Parquet writes them; readers see text."""
_WORD = pa.dictionary(pa.int32(), pa.utf8())
ENCODED = pa.schema([field.with_type(_WORD) if field.name in _WORDS else field for field in STORED])
"""The columns of STORED as they are written."""
_OPTIONS: dict[str, Any] = {
    # The encodings leave little to compress but keys.
    "compression": {name: "zstd" if name == "key" else "none" for name in STORED.names},
    "write_statistics": ["at_ms", "id"],
    # A page and a step of the encoders for each chunk: they are small as it is.
    "write_batch_size": 1 << 16,
    "data_page_size": 8 << 20,
    "use_dictionary": [name for name in STORED.names if name not in (*_SIMILAR, "key")],
    "column_encoding": dict.fromkeys(_SIMILAR, "DELTA_BINARY_PACKED"),
    # Readers see text, not the dictionary that it came from.
    "store_schema": False,
}


def open_parquet(sink: pa.NativeFile, encryption: Any = None) -> pq.ParquetWriter:
    """A file to write tables of `table_of` to.

    Args:
        encryption: Parquet's properties of it; None = it is not encrypted.
    """
    return pq.ParquetWriter(sink, ENCODED, encryption_properties=encryption, **_OPTIONS)


class _Part(NamedTuple):
    """One change, and what its command and its piece add to it."""

    change: Change
    size: int
    position: int
    entry: EntryChanges
    piece: Piece


def _parts(pieces: Sequence[Piece]) -> list[_Part]:
    return [
        _Part(change, change.sequences.size, piece.base + entry.entry_index, entry, piece)
        for piece in pieces
        for entry in piece.changes
        for change in entry.changes
    ]


def tables_of(pieces: Sequence[Piece], partition: int) -> list[pa.Table]:
    """The pieces as tables, in order: gaps stand alone."""
    tables: list[pa.Table] = []
    together: list[Piece] = []
    for piece in pieces:
        if piece.is_gap:
            tables += [_table(_parts(together), partition), _gap(piece, partition)]
            together = []
        else:
            together.append(piece)
    tables.append(_table(_parts(together), partition))
    return [table for table in tables if table.num_rows]


def _gap(piece: Piece, partition: int) -> pa.Table:
    """The row that stands for what was not recorded."""
    row = dict.fromkeys(STORED.names)
    row |= {
        "change": CHANGE_NAMES[ChangeKind.GAP],
        "at_ms": piece.gap_at_ms,
        "id": partition << limits.SEQUENCE_BITS | limits.SEQUENCE_MAX,
        "sequence": -1,
        "position": piece.last,
        "priority": DEFAULT_PRIORITY,
        "attempt": 0,
        "reason": piece.reason,
        "missed": piece.missed or None,
    }
    return pa.Table.from_pylist([row], STORED).cast(ENCODED)


def _table(parts: list[_Part], partition: int) -> pa.Table:
    if not parts:
        return ENCODED.empty_table()
    columns = _columns(_Spread(parts), partition)
    return pa.Table.from_arrays([columns[name] for name in ENCODED.names], schema=ENCODED)


class _Spread:
    """Makes columns of what changes, each of many messages, have in common."""

    def __init__(self, parts: list[_Part]) -> None:
        self.parts = parts
        self.sizes = np.array([part.size for part in parts], dtype=np.int64)
        self.count = int(self.sizes.sum())

    def values(self, values: list[int]) -> Int64s:
        """One number for all rows of a change."""
        return np.repeat(np.array(values, dtype=np.int64), self.sizes)

    def joined(
        self, columns: list[npt.NDArray[Any] | None], default: int, kind: type[np.generic]
    ) -> npt.NDArray[Any]:
        """A number for each row; the default where a change has none."""
        if all(column is None for column in columns):
            return np.full(self.count, default, dtype=kind)
        given = [
            np.full(part.size, default, dtype=kind) if column is None else column
            for part, column in zip(self.parts, columns, strict=True)
        ]
        return np.concatenate(given).astype(kind, copy=False)

    def nullable(self, values: npt.NDArray[Any], known: list[bool], kind: pa.DataType) -> pa.Array:
        """A column, null in all rows of those changes of which it is not known."""
        buffers = [None, pa.py_buffer(values)]
        if not all(known):
            bits = np.repeat(np.array(known, dtype=np.bool_), self.sizes)
            buffers[0] = pa.py_buffer(np.packbits(bits, bitorder="little"))
        return pa.Array.from_buffers(kind, self.count, buffers)

    def words(self, texts: list[str]) -> pa.Array:
        """One text for all rows of a change; null where it is empty."""
        names = {name: index for index, name in enumerate(dict.fromkeys(filter(None, texts)))}
        if not names:
            return pa.nulls(self.count, _WORD)
        name_indices = np.array([names.get(text, 0) for text in texts], dtype=np.int32)
        known = [bool(text) for text in texts]
        indices = self.nullable(np.repeat(name_indices, self.sizes), known, pa.int32())
        return pa.DictionaryArray.from_arrays(indices, pa.array(list(names), pa.utf8()))


def _columns(spread: _Spread, partition: int) -> dict[str, pa.Array]:
    parts, count = spread.parts, spread.count
    changes = [part.change for part in parts]
    sequences = np.concatenate([change.sequences for change in changes])
    attempts = spread.joined([change.attempts for change in changes], 0, np.int32)
    dues_ms = spread.joined([change.dues_ms for change in changes], 0, np.int64)
    priorities = [change.priorities for change in changes]
    delivered = [change.kind is ChangeKind.DELIVERED for change in changes]
    lateness_ms, ahead_ms = pa.nulls(count, pa.int64()), pa.nulls(count, pa.int64())
    if any(delivered):
        late_ms = spread.values([_pushed_ms(part) for part in parts])
        late_ms -= dues_ms
        lateness_ms = spread.nullable(late_ms, delivered, pa.int64())
        ahead = spread.values([part.entry.ahead_ms for part in parts])
        ahead_ms = spread.nullable(ahead, delivered, pa.int64())
    return {
        "change": _kinds(spread, delivered, attempts),
        "at_ms": pa.array(spread.values([part.entry.at_ms for part in parts])),
        "id": pa.array(sequences | (partition << limits.SEQUENCE_BITS)),
        "sequence": pa.array(sequences),
        "position": pa.array(spread.values([part.position for part in parts])),
        "due": spread.nullable(
            dues_ms, [change.dues_ms is not None for change in changes], pa.int64()
        ),
        "key": _keys(parts, count),
        "group": _groups(parts, count),
        "priority": pa.array(spread.joined(list(priorities), DEFAULT_PRIORITY, np.int32)),
        "attempt": pa.array(attempts),
        "lateness_ms": lateness_ms,
        "ahead_ms": ahead_ms,
        "consumer": spread.words([_consumer(part) for part in parts]),
        "reason": spread.words([change.reason for change in changes]),
        "missed": pa.nulls(count, pa.int64()),
    }


def _kinds(spread: _Spread, delivered: list[bool], attempts: npt.NDArray[np.int32]) -> pa.Array:
    """What happened; a delivery that is not the first of its message is one again."""
    kinds = np.repeat(
        np.array([part.change.kind for part in spread.parts], dtype=np.int32), spread.sizes
    )
    if any(delivered) and int(attempts.max()) > 1:
        kinds[(kinds == ChangeKind.DELIVERED) & (attempts > 1)] = ChangeKind.REDELIVERED
    return pa.DictionaryArray.from_arrays(kinds, pa.array(CHANGE_NAMES))


def _pushed_ms(part: _Part) -> int:
    """When a lease went to its consumer: when it was pushed, or as the journal says."""
    return max(part.piece.pushed_ms, part.entry.at_ms)


def _consumer(part: _Part) -> str:
    if part.change.kind is not ChangeKind.DELIVERED:
        return ""
    return part.piece.consumers.get(part.position, "")


def _groups(parts: list[_Part], count: int) -> pa.Array:
    """The group of each message; null where it has none."""
    if all(part.change.groups is None for part in parts):
        return pa.nulls(count, _WORD)
    names: dict[str, int] = {"": -1}
    columns = []
    for part in parts:
        groups = part.change.groups or Words(("",), np.zeros(part.size, dtype=np.int32))
        name_indices = [names.setdefault(name, len(names) - 1) for name in groups.names]
        columns.append(np.array(name_indices, dtype=np.int32)[groups.indices])
    del names[""]
    if not names:
        return pa.nulls(count, _WORD)
    indices = np.concatenate(columns)
    array = pa.array(np.maximum(indices, 0), mask=indices < 0)
    return pa.DictionaryArray.from_arrays(array, pa.array(list(names), pa.utf8()))


def _keys(parts: list[_Part], count: int) -> pa.Array:
    """The keys of new messages; null where there is none, and for what happened later."""
    if all(part.entry.keys is None for part in parts):
        return pa.nulls(count, pa.utf8())
    came = (ChangeKind.ENQUEUED, ChangeKind.STAGED)
    columns, has_keys = [], False
    for part in parts:
        keys = part.entry.keys
        if part.change.kind in came and keys is not None and len(keys.offsets) == part.size + 1:
            columns.append(mended(arrow_column(keys, pa.utf8())))
            has_keys = True
        else:
            columns.append(pa.nulls(part.size, pa.utf8()))
    if not has_keys:
        return pa.nulls(count, pa.utf8())
    column = pa.concat_arrays(columns)
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.utf8()), column)
