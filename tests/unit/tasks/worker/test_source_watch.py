"""Covers: a Python file that is changed, new or gone is noticed, and no other.

Not covered: what a worker does then (test_supervisor.py).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dejaqueue.tasks.worker import source_watch
from dejaqueue.tasks.worker.source_watch import SourceWatch


def test_source_files_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_watch, "LOOK_US", -1)
    (tmp_path / "inner").mkdir()
    (tmp_path / ".venv").mkdir()
    file = tmp_path / "inner" / "a.py"
    file.write_text("1")
    watch = SourceWatch(tmp_path)
    assert not watch.has_changed()
    os.utime(file, ns=(1, 1))
    assert watch.has_changed()
    assert not watch.has_changed()
    (tmp_path / "notes.txt").write_text("1")
    (tmp_path / ".venv" / "b.py").write_text("1")
    assert not watch.has_changed()
    (tmp_path / "b.py").write_text("1")
    assert watch.has_changed()
    file.unlink()
    assert watch.has_changed()


def test_it_looks_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_watch, "LOOK_US", 3_600_000_000)
    watch = SourceWatch(tmp_path)
    (tmp_path / "a.py").write_text("1")
    assert not watch.has_changed()
