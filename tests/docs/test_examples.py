"""Covers: every example runs as a program, and prints what its folder says it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/main.py"))


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_an_example_prints_what_it_says(folder: Path, tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-W", "error", str(folder / "main.py")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout == (folder / "output.txt").read_text(encoding="utf-8")
    assert found.stderr == ""


def test_every_example_is_in_the_list() -> None:
    listed = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    assert len(EXAMPLES) >= 4
    assert [folder.name for folder in EXAMPLES if f"[{folder.name}]" not in listed] == []
