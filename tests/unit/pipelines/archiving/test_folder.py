"""The folder of an archive: how far it is, and what is too old."""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.pipelines.archiving.folder import DAY_MS, Folder

DAY = 20_000 * DAY_MS


def test_how_far_a_topic_is_archived_is_remembered(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "archive"))
    assert folder.archived_ms("mail") == 0
    folder.archived("mail", 5)
    folder.archived("mail", 7)
    folder.archived("sms", 3)
    again = Folder(f"file://{tmp_path}/archive")
    assert (again.archived_ms("mail"), again.archived_ms("sms")) == (7, 3)


def test_days_that_are_over_for_long_enough_go(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    assert folder.prune(DAY) == 0
    for topic, day in (("mail", "2024-10-04"), ("mail", "2024-10-05"), ("sms", "2024-10-04")):
        path = tmp_path / f"topic={topic}" / f"date={day}" / "hour=1"
        path.mkdir(parents=True)
        (path / "part.parquet").touch()
    (tmp_path / "topic=mail" / "date=soon").mkdir()
    (tmp_path / "notes").mkdir()
    assert folder.prune(DAY + DAY_MS - 1) == 0
    assert folder.prune(DAY + DAY_MS) == 2
    assert [path.parent.parent.name for path in tmp_path.rglob("*.parquet")] == ["date=2024-10-05"]
    assert (tmp_path / "topic=mail" / "date=soon").exists()


def test_what_is_no_place_is_refused() -> None:
    with pytest.raises(BadRequest, match="--out"):
        Folder("nowhere://x")
