"""Columns of history: what each change has, and what is null where it has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dejaqueue.broker.history.encode import open_parquet, tables_of
from dejaqueue.broker.history.pieces import Piece
from dejaqueue.broker.shard.entries import text_column
from dejaqueue.broker.shard.entry_changes import EntryChanges
from dejaqueue.engine.arrays import Words
from dejaqueue.engine.effects import Change
from dejaqueue.model import ChangeKind, pack_id
from dejaqueue.schema.history import STORED


def change(kind: ChangeKind, *sequences: int, **more: Any) -> Change:
    values: dict[str, Any] = {
        "dues_ms": None, "attempts": None, "priorities": None, "groups": None,
    }  # fmt: skip
    return Change(kind, np.array(sequences, dtype=np.int64), **values | more)


def piece(position: int, *changes: Change, **more: Any) -> Piece:
    rows = sum(one.sequences.size for one in changes)
    noted = EntryChanges(0, 1_000, changes, more.pop("keys", None), more.pop("ahead_ms", 0), rows)
    return Piece(position, position, position, (noted,), **more)


def encoded(*pieces: Piece, partition: int = 2) -> pa.Table:
    """As whoever reads the file sees it."""
    sink = pa.BufferOutputStream()
    writer = open_parquet(sink)
    for table in tables_of(pieces, partition):
        writer.write_table(table)
    writer.close()
    table = pq.read_table(pa.BufferReader(sink.getvalue()))
    assert table.schema.equals(STORED)
    return table


def test_what_changes_do_not_have_is_null() -> None:
    keys = text_column(pa.array(["one", "", "three"]))
    came = change(ChangeKind.ENQUEUED, 4, 5, 6, dues_ms=np.array([7, 8, 9]))
    acked = change(ChangeKind.ACKED, 4, attempts=np.array([1], dtype=np.uint16))
    found = encoded(piece(10, came, keys=keys), piece(11, acked)).to_pylist()
    assert [row["key"] for row in found] == ["one", None, "three", None]
    assert [row["due"] for row in found] == [7, 8, 9, None]
    assert [row["position"] for row in found] == [10, 10, 10, 11]
    assert [row["id"] for row in found] == [pack_id(2, number) for number in (4, 5, 6, 4)]
    assert [row["attempt"] for row in found] == [0, 0, 0, 1]
    nothing = ("group", "lateness_ms", "ahead_ms", "consumer", "reason", "missed")
    assert {row[name] for row in found for name in nothing} == {None}


def test_a_delivery_says_how_late_and_to_whom_and_whether_again() -> None:
    leased = change(
        ChangeKind.DELIVERED,
        1,
        2,
        dues_ms=np.array([900, 1_020]),
        attempts=np.array([1, 2], dtype=np.uint16),
    )
    moved = change(ChangeKind.MOVED, 3, dues_ms=np.array([5]), attempts=np.array([2], np.uint16))
    found = encoded(
        piece(5, leased, moved, ahead_ms=25, consumers={5: "worker"}, pushed_ms=1_003)
    ).to_pylist()
    assert [row["change"] for row in found] == ["delivered", "redelivered", "moved"]
    assert [row["lateness_ms"] for row in found] == [103, -17, None]
    assert [row["ahead_ms"] for row in found] == [25, 25, None]
    assert [row["consumer"] for row in found] == ["worker", "worker", None]
    again = encoded(piece(5, leased)).column("lateness_ms").to_pylist()
    assert again == [100, -20]  # read from the journal: as of the lease


def test_groups_of_many_changes_are_one_dictionary() -> None:
    first = Words(("x", ""), np.array([0, 1, 0], dtype=np.int32))
    second = Words(("", "y", "x"), np.array([1, 2], dtype=np.int32))
    changes = [
        change(ChangeKind.ENQUEUED, 1, 2, 3, groups=first),
        change(ChangeKind.ACKED, 4),
        change(ChangeKind.ACKED, 5, 6, groups=second),
    ]
    found = encoded(piece(1, *changes)).column("group").to_pylist()
    assert found == ["x", None, "x", None, "y", "x"]


def test_priorities_and_reasons() -> None:
    urgent = change(ChangeKind.DEAD, 1, priorities=np.array([3], np.uint16), reason="broken")
    found = encoded(piece(1, urgent, change(ChangeKind.ACKED, 2))).to_pylist()
    assert [(row["priority"], row["reason"]) for row in found] == [(3, "broken"), (32_768, None)]


def test_a_gap_stands_in_its_place() -> None:
    gap = Piece(2, 9, 0, (), missed=7, reason="why", gap_at_ms=500)
    unknown = Piece(11, 12, 0, (), missed=0, reason="off", gap_at_ms=600)
    acked = change(ChangeKind.ACKED, 1)
    found = encoded(piece(1, acked), gap, piece(10, acked), unknown).to_pylist()
    assert [row["change"] for row in found] == ["acked", "gap", "acked", "gap"]
    assert [row["position"] for row in found] == [1, 9, 10, 12]
    assert [row["missed"] for row in found] == [None, 7, None, None]
    assert found[1]["reason"] == "why"
    assert found[1]["sequence"] == -1
