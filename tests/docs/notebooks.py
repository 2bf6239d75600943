"""Notebooks, run as programs: their cells of code in order, in one namespace, and what each shows.

    python -m tests.docs.notebooks [NAME ...]    # writes anew what the notebooks show

A kernel of Jupyter's would bring thirty packages for what this does in a page. What a cell shows is
what it prints, and its last expression's value as text: of a picture or a widget nothing is known
here, so our notebooks have none. Those that name `dejaq://localhost:7464` get a broker of their own
behind that address.

See: test_notebooks.py, tests/spark/test_notebook.py; scripts/generate_site.py shows notebooks as
pages.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))
ADDRESS = "dejaq://localhost:7464"

Notebook = dict[str, Any]
Shown = list[dict[str, Any]]


def load(path: Path) -> Notebook:
    """A notebook as it is kept."""
    found: Notebook = json.loads(path.read_text(encoding="utf-8"))
    return found


def source_of(cell: dict[str, Any]) -> str:
    """The text of a cell."""
    return "".join(cell["source"])


def names_a_broker(notebook: Notebook) -> bool:
    """Whether it wants one at the usual address."""
    return any(ADDRESS in source_of(cell) for cell in notebook["cells"])


def run(notebook: Notebook, name: str, address: str) -> list[Shown]:
    """Run a notebook's cells of code; what each of them shows, as a notebook keeps it."""
    namespace: dict[str, Any] = {"__name__": "__notebook__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [
        run_cell(source_of(cell).replace(ADDRESS, address), name, number, namespace)
        for number, cell in enumerate(cells, 1)
    ]


def run_cell(source: str, name: str, number: int, namespace: dict[str, Any]) -> Shown:
    """Run one cell of code; what it shows."""
    place = f"{name}, cell {number}"
    tree = ast.parse(source, place)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, place, "exec", dont_inherit=True), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), place, "eval"), namespace)
    shown: Shown = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        shown.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None:
        lines = repr(value).splitlines(keepends=True)
        shown.append(
            {
                "data": {"text/plain": lines},
                "execution_count": number,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    return shown


def with_outputs(notebook: Notebook, shown: list[Shown]) -> Notebook:
    """The notebook with what its cells of code show."""
    cells, left = [], list(enumerate(shown, 1))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number, outputs = left.pop(0)
            cell = {**cell, "execution_count": number, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def text_of(notebook: Notebook) -> str:
    """A notebook as it is written into its file, as Jupyter does."""
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main(names: list[str]) -> None:
    """Run the notebooks of these names, or all; write what they show."""
    from tests.crash.broker_process import BrokerProcess

    os.environ["PYSPARK_PYTHON"] = sys.executable
    for path in NOTEBOOKS:
        if names and path.stem not in names:
            continue
        notebook = load(path)
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            broker = BrokerProcess(Path(folder) / "data", Path(folder) / "log")
            if names_a_broker(notebook):
                broker.start()
                stack.callback(broker.stop)
            shown = run(notebook, path.name, broker.url)
        path.write_text(text_of(with_outputs(notebook, shown)), encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
