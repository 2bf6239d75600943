"""Refused rows in files: kept for attempts that count, dropped for others, counted by status."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from dejaqueue.client.branch import Refused
from dejaqueue.errors import BadRequest
from dejaqueue.model import RowStatus
from dejaqueue.spark import refusals


def refused(*rows: tuple[str, RowStatus, int], **more: str) -> Refused:
    batch = pa.record_batch({"key": [row[0] for row in rows], **{n: [v] for n, v in more.items()}})
    statuses = np.array([row[1] for row in rows], dtype=np.uint8)
    ids = np.array([row[2] for row in rows], dtype=np.int64)
    return Refused(batch, np.arange(len(ids)), statuses, ids)


DUPLICATE = refused(("a", RowStatus.DUPLICATE, 7), ("b", RowStatus.KEPT, 8))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_rows_are_written_with_their_status_and_the_live_id(tmp_path: Path) -> None:
    name = refusals.write(str(tmp_path / "r"), "1.2.x", [DUPLICATE])
    rows = parquet.read_table(tmp_path / "r" / name).to_pylist()
    assert rows == [
        {"key": "a", "status": "DUPLICATE", "live_id": 7},
        {"key": "b", "status": "KEPT", "live_id": 8},
    ]


def test_batches_of_different_columns_are_one_file(tmp_path: Path) -> None:
    other = refused(("c", RowStatus.DUPLICATE, 9), group="g")
    name = refusals.write(str(tmp_path), "b", [DUPLICATE, other])
    rows = parquet.read_table(tmp_path / name).to_pylist()
    assert [(row["key"], row["group"]) for row in rows] == [("a", None), ("b", None), ("c", "g")]


def test_nothing_is_written_where_nobody_asked_or_nothing_was_refused(tmp_path: Path) -> None:
    assert refusals.write("", "b", [DUPLICATE]) == ""
    assert refusals.write(str(tmp_path / "r"), "b", []) == ""
    refusals.keep("", ["x"], "job", {"OK": 1})
    refusals.drop("", ["x"])
    assert names(tmp_path) == []


def test_files_of_attempts_that_count_are_kept_and_of_others_dropped(tmp_path: Path) -> None:
    path = f"{tmp_path}/"
    won, lost = (refusals.write(path, branch, [DUPLICATE]) for branch in ("won", "lost"))
    assert names(tmp_path) == ["_staged-lost.parquet", "_staged-won.parquet"], "not a table's yet"
    refusals.keep(path, [won, ""], "job", {"OK": 3, "DUPLICATE": 1})
    refusals.drop(path, [lost, "", "_staged-gone.parquet"])
    assert names(tmp_path) == ["_counts-job.json", "refused-won.parquet"]


def test_counts_are_summed_over_jobs__and_one_that_is_done_again_counts_once(
    tmp_path: Path,
) -> None:
    path = str(tmp_path)
    refusals.keep(path, [], "query-1", {"OK": 3})
    refusals.keep(path, [], "query-2", {"OK": 4, "DUPLICATE": 1})
    refusals.keep(path, [], "query-2", {"OK": 4, "DUPLICATE": 1})
    (tmp_path / "_counts-mine.txt").write_text("no counts")
    assert refusals.status_counts(path) == {"OK": 7, "DUPLICATE": 1}


def test_a_folder_may_be_a_uri(tmp_path: Path) -> None:
    path = tmp_path.as_uri()
    refusals.keep(path, [refusals.write(path, "b", [DUPLICATE])], "job", {"KEPT": 1})
    assert names(tmp_path) == ["_counts-job.json", "refused-b.parquet"]
    assert refusals.status_counts(path) == {"KEPT": 1}


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="a folder that jobs wrote refusals to"):
        refusals.status_counts(str(tmp_path / "none"))
