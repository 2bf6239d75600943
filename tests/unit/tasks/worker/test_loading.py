"""Covers: MODULE:NAME gives the application, and what is wrong is said with the name.

Not covered: the command (tests/unit/cli/test_worker.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.tasks import Tasks
from dejaqueue.tasks.worker.loading import load


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["elsewhere"])
    monkeypatch.setattr("sys.modules", dict(__import__("sys").modules))
    return tmp_path


def test_a_module_of_the_current_directory(folder: Path) -> None:
    (folder / "found_here.py").write_text("from dejaqueue.tasks import Tasks\napp = Tasks()\n")
    assert isinstance(load("found_here:app"), Tasks)


@pytest.mark.parametrize("place", ["", "found", "nowhere:app", "json:app", "json:dumps", "json:"])
def test_what_is_no_application(folder: Path, place: str) -> None:
    with pytest.raises(BadRequest, match="MODULE:NAME"):
        load(place)


def test_what_a_module_lacks_itself_is_its_own_error(folder: Path) -> None:
    (folder / "lacks.py").write_text("import no_such_module\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        load("lacks:app")
