"""Covers: every notebook runs from its first cell to its last, and shows what it is kept with.

Not covered: the one that needs Spark (tests/spark/test_notebook.py); that Jupyter shows it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs import notebooks
from tests.docs.notebooks import NOTEBOOKS, Notebook

ROOT = notebooks.ROOT
LINK = re.compile(r"\]\((?P<target>[^)\s#]+)")
PLAIN = [path for path in NOTEBOOKS if "spark" not in path.stem]


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_is_kept_with(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = notebooks.load(path)
    shown = notebooks.run(notebook, path.name, "")
    assert notebooks.with_outputs(notebook, shown) == notebook, (
        f"python -m tests.docs.notebooks {path.stem}"
    )
    assert list(tmp_path.iterdir()) == [], "a notebook leaves nothing behind where it runs"


def test_there_are_notebooks__and_those_for_spark_are_run_elsewhere() -> None:
    assert len(PLAIN) >= 2
    assert [path.stem for path in NOTEBOOKS if path not in PLAIN] == ["campaign-with-spark"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_in_the_one_form__and_its_links_lead_somewhere(path: Path) -> None:
    notebook = notebooks.load(path)
    assert path.read_text(encoding="utf-8") == notebooks.text_of(notebook)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells = notebook["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    assert all(cell["metadata"] == {} for cell in cells), "a tool left its own notes"
    assert notebooks.source_of(cells[0]).startswith("# ")
    texts = [notebooks.source_of(cell) for cell in cells if cell["cell_type"] == "markdown"]
    targets = [match["target"] for text in texts for match in LINK.finditer(text)]
    inside = [target for target in targets if not target.startswith("http")]
    assert [target for target in inside if not (path.parent / target).exists()] == []


def test_every_notebook_is_in_the_list() -> None:
    listed = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    assert [path.stem for path in NOTEBOOKS if f"(notebooks/{path.name})" not in listed] == []


def cell(source: str) -> dict[str, Any]:
    return {"cell_type": "code", "source": [source], "outputs": []}


def test_what_cells_show_is_found__prints_and_the_last_value() -> None:
    notebook: Notebook = {"cells": [cell("a = 1\nprint(a)\na + 1"), cell("a = 5"), cell("a")]}
    first, second, third = notebooks.run(notebook, "n", "")
    assert first[0]["text"] == ["1\n"]
    assert first[1]["data"] == {"text/plain": ["2"]}
    assert second == []
    assert third[0]["data"] == {"text/plain": ["5"]}
    kept = notebooks.with_outputs(notebook, [first, second, third])
    assert kept != notebook
    assert json.loads(notebooks.text_of(kept)) == kept


def test_a_cell_that_fails_is_named() -> None:
    with pytest.raises(ZeroDivisionError) as failed:
        notebooks.run({"cells": [cell("1"), cell("1 / 0")]}, "page.ipynb", "")
    assert any("page.ipynb, cell 2" in str(entry.path) for entry in failed.traceback)
