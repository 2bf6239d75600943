"""Where files of history lie, which positions are recorded, and what is pruned."""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.broker.history.files import Files

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOON_MS = 20_000 * DAY_MS + 12 * HOUR_MS


def add(files: Files, hour_ms: int, first: int, last: int, number: int = 0) -> None:
    path = files.open_path("t", number, first)
    path.write_bytes(b"x" * 10)
    files.finish(path, "t", number, hour_ms, first, last)


def test_a_finished_file_is_where_hive_would_look(tmp_path: Path) -> None:
    files = Files(tmp_path / "history")
    add(files, NOON_MS, 1, 7)
    (path,) = tmp_path.rglob("*.parquet")
    assert str(path.relative_to(tmp_path)) == (
        "history/topic=t/partition=0/date=2024-10-04/hour=12/"
        "0000000000000000001-0000000000000000007.parquet"
    )
    (found,) = files.find("t", 0, 1 << 60)
    assert (found.first, found.last, found.hour_ms, found.byte_count) == (1, 7, NOON_MS, 10)
    assert files.path_of("t", 0, found.name) == path


def test_files_are_found_by_their_hours(tmp_path: Path) -> None:
    files = Files(tmp_path)
    for place in range(3):
        add(files, NOON_MS + place * HOUR_MS, place + 1, place + 1)
    add(files, NOON_MS, 1, 5, number=1)
    assert [file.first for file in files.find("t", NOON_MS + HOUR_MS, NOON_MS + 2 * HOUR_MS)] == [2]
    assert len(files.find("t", 0, NOON_MS)) == 0
    assert len(files.find("t", NOON_MS - 1, NOON_MS + 1)) == 2
    assert files.find("other", 0, 1 << 60) == []


def test_the_last_recorded_position_outlives_its_file(tmp_path: Path) -> None:
    files = Files(tmp_path)
    assert files.recorded("t", 0) == 0
    add(files, NOON_MS, 1, 10)
    add(files, NOON_MS + DAY_MS, 11, 20)
    assert files.recorded("t", 0) == 20
    assert files.prune(NOON_MS + HOUR_MS) == 1
    assert files.recorded("t", 0) == 20
    assert files.prune(NOON_MS + 2 * DAY_MS) == 1
    assert files.recorded("t", 0) == 20
    assert not list(tmp_path.rglob("*.parquet"))
    assert not list(tmp_path.rglob("date=*"))


def test_what_is_not_over_for_long_enough_stays(tmp_path: Path) -> None:
    files = Files(tmp_path)
    add(files, NOON_MS, 1, 10)
    assert files.prune(NOON_MS + HOUR_MS - 1) == 0
    assert files.prune(NOON_MS + HOUR_MS) == 1


def test_what_was_being_written_is_dropped_at_the_start(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.open_path("t", 0, 1).write_bytes(b"half")
    files.begin()
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize("name", ["", "../x", "date=2024-10-04/hour=12/x.parquet", "/etc/passwd"])
def test_a_name_that_is_none_leads_nowhere(tmp_path: Path, name: str) -> None:
    assert Files(tmp_path).path_of("t", 0, name) is None


def test_what_others_put_there_is_left_alone(tmp_path: Path) -> None:
    files = Files(tmp_path)
    add(files, NOON_MS, 1, 10)
    odd = files.partition("t", 0) / "date=soon" / "hour=12"
    odd.mkdir(parents=True)
    (odd / "notes.txt").write_text("mine")
    assert len(files.find("t", 0, 1 << 60)) == 1
    assert files.prune(1 << 60) == 1
    assert (odd / "notes.txt").exists()
