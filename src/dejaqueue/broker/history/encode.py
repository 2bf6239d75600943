"""Encoding: what was noted as columns, and columns as a Parquet file.

Room: broker. On the history's own thread; loops over commands, never over messages.
Holds: the columns are those of schema/history.py; a column that nobody filled is all null.
See: docs/adr/0010-history-is-parquet-written-once.md for why these encodings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dejaqueue import limits
from dejaqueue.broker.entries import arrow_column
from dejaqueue.broker.history.noted import Noted, Piece
from dejaqueue.engine.changes import Change
from dejaqueue.engine.commands import Int64s, Words
from dejaqueue.model import ChangeKind
from dejaqueue.schema.history import CHANGE_NAMES, STORED
from dejaqueue.schema.messages import DEFAULT_PRIORITY

_SIMILAR = ("at_ms", "id", "sequence", "position", "due")
"""Integers that lie near the ones before them."""
_WORDS = ("change", "group", "consumer", "reason")
"""Texts that repeat: a dictionary here, as Parquet writes them; readers see text."""
_WORD = pa.dictionary(pa.int32(), pa.utf8())
ENCODED = pa.schema([field.with_type(_WORD) if field.name in _WORDS else field for field in STORED])
"""The columns of STORED as they are written."""
_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": [name for name in STORED.names if name not in (*_SIMILAR, "key")],
    "column_encoding": dict.fromkeys(_SIMILAR, "DELTA_BINARY_PACKED"),
    # Readers see text, not the dictionary that it came from.
    "store_schema": False,
}


def open_parquet(sink: pa.NativeFile) -> pq.ParquetWriter:
    """A file to write tables of `table_of` to."""
    return pq.ParquetWriter(sink, ENCODED, **_OPTIONS)


@dataclass(frozen=True, slots=True)
class _Part:
    """One change, and what its command and its piece add to it."""

    change: Change
    position: int
    noted: Noted
    piece: Piece

    @property
    def size(self) -> int:
        return int(self.change.sequences.size)


def _parts(pieces: Sequence[Piece]) -> Iterator[_Part]:
    for piece in pieces:
        for noted in piece.noted:
            for change in noted.changes:
                yield _Part(change, piece.base + noted.place, noted, piece)


def tables_of(pieces: Sequence[Piece], partition: int) -> list[pa.Table]:
    """The pieces as tables, in order: gaps stand alone."""
    tables: list[pa.Table] = []
    together: list[Piece] = []
    for piece in pieces:
        if piece.is_gap:
            tables += [_table(list(_parts(together)), partition), _gap(piece, partition)]
            together = []
        else:
            together.append(piece)
    tables.append(_table(list(_parts(together)), partition))
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
    sizes = np.array([part.size for part in parts], dtype=np.int64)
    count = int(sizes.sum())
    sequences = np.concatenate([part.change.sequences for part in parts])
    attempts = np.concatenate(
        [
            np.zeros(part.size, dtype=np.int32)
            if part.change.attempts is None
            else part.change.attempts
            for part in parts
        ]
    ).astype(np.int32)

    def spread(values: list[int]) -> Int64s:
        return np.repeat(np.array(values, dtype=np.int64), sizes)

    kinds = np.repeat(np.array([part.change.kind for part in parts], dtype=np.int32), sizes)
    delivered = kinds == ChangeKind.DELIVERED
    kinds[delivered & (attempts > 1)] = ChangeKind.REDELIVERED
    dues_ms = _dues(parts)
    lateness_ms: Int64s | None = None
    if delivered.any():
        lateness_ms = spread([_pushed_ms(part) for part in parts]) - dues_ms
    columns: dict[str, pa.Array] = {
        "change": _dictionary(kinds, list(CHANGE_NAMES)),
        "at_ms": pa.array(spread([part.noted.at_ms for part in parts])),
        "id": pa.array(sequences | (partition << limits.SEQUENCE_BITS)),
        "sequence": pa.array(sequences),
        "position": pa.array(spread([part.position for part in parts])),
        "due": pa.array(dues_ms, mask=_mask(dues_ms < 0)),
        "key": _keys(parts, count),
        "group": _groups(parts, sizes),
        "priority": pa.array(_priorities(parts)),
        "attempt": pa.array(attempts),
        "consumer": _words([_consumer(part) for part in parts], sizes),
        "reason": _words([part.change.reason for part in parts], sizes),
        "missed": pa.nulls(count, pa.int64()),
    }
    for name, values in (
        ("lateness_ms", lateness_ms),
        ("ahead_ms", spread([part.noted.ahead_ms for part in parts])),
    ):
        known = lateness_ms is not None and values is not None
        columns[name] = (
            pa.array(values, mask=_mask(~delivered)) if known else pa.nulls(count, pa.int64())
        )
    return pa.Table.from_arrays([columns[name] for name in ENCODED.names], schema=ENCODED)


def _mask(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_] | None:
    return mask if mask.any() else None


def _pushed_ms(part: _Part) -> int:
    """When a lease went to its consumer: when it was pushed, or as the journal says."""
    return max(part.piece.pushed_ms, part.noted.at_ms)


def _consumer(part: _Part) -> str:
    if part.change.kind is not ChangeKind.DELIVERED:
        return ""
    return part.piece.consumers.get(part.position, "")


def _dues(parts: list[_Part]) -> Int64s:
    """-1 where a change has no due time."""
    return np.concatenate(
        [
            np.full(part.size, -1, dtype=np.int64)
            if part.change.dues_ms is None
            else part.change.dues_ms
            for part in parts
        ]
    )


def _priorities(parts: list[_Part]) -> npt.NDArray[np.int32]:
    if all(part.change.priorities is None for part in parts):
        return np.full(sum(part.size for part in parts), DEFAULT_PRIORITY, dtype=np.int32)
    return np.concatenate(
        [
            np.full(part.size, DEFAULT_PRIORITY, dtype=np.int32)
            if part.change.priorities is None
            else part.change.priorities.astype(np.int32)
            for part in parts
        ]
    )


def _words(texts: list[str], sizes: Int64s) -> pa.Array:
    """One text for all rows of a change; null where it is empty."""
    names = {name: place for place, name in enumerate(dict.fromkeys(filter(None, texts)))}
    if not names:
        return pa.nulls(int(sizes.sum()), _WORD)
    indices = np.array([names.get(text, -1) for text in texts], dtype=np.int32)
    return _dictionary(np.repeat(indices, sizes), list(names))


def _dictionary(indices: npt.NDArray[np.int32], names: list[str]) -> pa.Array:
    """Texts by their places; null where that is -1."""
    array = pa.array(np.maximum(indices, 0), mask=_mask(indices < 0))
    return pa.DictionaryArray.from_arrays(array, pa.array(names, pa.utf8()))


def _groups(parts: list[_Part], sizes: Int64s) -> pa.Array:
    """The group of each message; null where it has none."""
    if all(part.change.groups is None for part in parts):
        return pa.nulls(int(sizes.sum()), _WORD)
    names: dict[str, int] = {"": -1}
    columns = []
    for part in parts:
        groups = part.change.groups or Words(("",), np.zeros(part.size, dtype=np.int32))
        places = [names.setdefault(name, len(names) - 1) for name in groups.names]
        columns.append(np.array(places, dtype=np.int32)[groups.indices])
    del names[""]
    if not names:
        return pa.nulls(int(sizes.sum()), _WORD)
    return _dictionary(np.concatenate(columns), list(names))


def _keys(parts: list[_Part], count: int) -> pa.Array:
    """The keys of new messages; null where there is none, and for what happened later."""
    came = (ChangeKind.ENQUEUED, ChangeKind.STAGED)
    columns, found = [], False
    for part in parts:
        keys = part.noted.keys
        if part.change.kind in came and keys is not None and len(keys.offsets) == part.size + 1:
            columns.append(arrow_column(keys, pa.utf8()))
            found = True
        else:
            columns.append(pa.nulls(part.size, pa.utf8()))
    if not found:
        return pa.nulls(count, pa.utf8())
    column = pa.concat_arrays(columns)
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.utf8()), column)
