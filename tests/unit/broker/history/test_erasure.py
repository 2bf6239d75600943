"""Files of history are written again without what tells of some messages.

Here: which rows go, and that others stay as they were. Not here: the whole way
(tests/crash/test_erasure_kill.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dejaqueue.broker.history.encode import ENCODED, open_parquet
from dejaqueue.broker.history.erasure import RecordedChoice, erase_recorded, recorded_of
from dejaqueue.broker.history.files import Files
from dejaqueue.engine.message_filter import Selection
from dejaqueue.model import TagFilter
from dejaqueue.schema.history import STORED

NONE = np.zeros(0, dtype=np.int64)


def row(change: str, sequence: int, **more: Any) -> dict[str, Any]:
    fields = dict.fromkeys(STORED.names) | {"change": change, "sequence": sequence, "id": sequence}
    return fields | {"at_ms": 1, "position": 1, "priority": 5, "attempt": 0} | more


def write(files: Files, first: int, last: int, rows: list[dict[str, Any]]) -> None:
    path = files.open_path("orders", 0, first)
    with pa.OSFile(str(path), "wb") as sink:
        parquet = open_parquet(sink)
        parquet.write_table(pa.Table.from_pylist(rows, STORED).cast(ENCODED))
        parquet.close()
    files.finish(path, "orders", 0, 0, first, last)


def told(root: Path) -> list[tuple[str, int]]:
    tables = [pq.read_table(path, partitioning=None) for path in sorted(root.rglob("*.parquet"))]
    rows = pa.concat_tables(tables).to_pylist()
    return [(one["change"], one["sequence"]) for one in rows]


def made(tmp_path: Path) -> Files:
    files = Files(tmp_path)
    write(files, 1, 5, [row("enqueued", 1, key="k", group="g"), row("enqueued", 2, key="x")])
    write(files, 6, 9, [row("acked", 1), row("gap", -1), row("acked", 2, group="g")])
    return files


def test_all_that_is_told_of_a_key_goes__in_every_file(tmp_path: Path) -> None:
    files = made(tmp_path)
    erased = erase_recorded(files, "orders", 0, RecordedChoice(NONE, NONE, ("k",), None))
    assert erased.rows == 2
    assert told(tmp_path) == [("enqueued", 2), ("gap", -1), ("acked", 2)]
    assert files.recorded("orders", 0) == 9
    assert not any(one == b"k" for one in pq.read_table(tmp_path, partitioning=None)["key"])


def test_named_messages_go__and_spared_ones_stay(tmp_path: Path) -> None:
    files = made(tmp_path)
    choice = RecordedChoice(np.array([2]), np.array([1]), ("k",), None)
    assert erase_recorded(files, "orders", 0, choice).rows == 2
    assert told(tmp_path) == [("enqueued", 1), ("acked", 1), ("gap", -1)]


def test_a_group_is_found_in_any_change(tmp_path: Path) -> None:
    files = made(tmp_path)
    choice = RecordedChoice(NONE, NONE, None, Selection(group="g"))
    assert erase_recorded(files, "orders", 0, choice).rows == 4
    assert told(tmp_path) == [("gap", -1)]


def test_nothing_is_written_again_where_nothing_is_found(tmp_path: Path) -> None:
    files = made(tmp_path)
    choice = RecordedChoice(NONE, NONE, ("other",), None)
    assert erase_recorded(files, "orders", 0, choice) == (0, 0)


def test_letters_go_by_the_message_that_their_key_names(tmp_path: Path) -> None:
    files = Files(tmp_path)
    keys = {1: "a:7@9", 2: "a@sub=0-2:8@9", 3: "b:7@9", 4: "a:9@9"}
    rows = [row("enqueued", number, key=key, group="g") for number, key in keys.items()]
    write(files, 1, 5, [*rows, row("acked", 1), row("acked", 3, group="g")])

    def gone(**chosen: Any) -> list[int]:
        choice = RecordedChoice(NONE, NONE, None, None, "a")._replace(**chosen)
        found: list[int] = recorded_of(files, "orders", 0, choice).tolist()
        return found

    assert gone() == []
    assert gone(ids=(7, 8)) == [1, 2]
    assert gone(selection=Selection(group="g")) == [1, 2, 4]
    assert gone(selection=Selection(group="other")) == []
    assert gone(selection=Selection(tags=TagFilter(any_of=("t",)))) == []
    choice = RecordedChoice(NONE, NONE, None, None, "a", (7,))
    assert erase_recorded(files, "orders", 0, choice).rows == 2
    assert told(tmp_path) == [("enqueued", 2), ("enqueued", 3), ("enqueued", 4), ("acked", 3)]
