"""Covers: the table of features of docs/guides/cluster.md: no cell is empty, each test is there.

A test of the rules has to run on what the column is about. Not covered: that a test tries what its
row says.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/guides/cluster.md"
TEST = re.compile(r"`(tests/[\w./]+\.py)(?:::(\w+))?`")
COLUMNS = ("feature", "one broker", "many brokers", "many processes")
MARKS = {"many brokers": {"one_broker"}, "many processes": {"one_broker", "one_process"}}
"""Column → marks of tests of the rules that do not run there."""
WITHOUT = ("refused", "not ")
"""What a cell may say in place of a test."""


def rows() -> list[list[str]]:
    table = PAGE.read_text().partition("<!-- features -->")[2].partition("<!-- end")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


FEATURES = rows()[2:]


def functions_of(path: Path) -> dict[str, ast.FunctionDef]:
    found = ast.parse(path.read_text()).body
    return {one.name: one for one in found if isinstance(one, ast.FunctionDef)}


def runs_in(test: ast.FunctionDef, column: str) -> bool:
    """Whether a test of the rules runs on what a column is about."""
    if column not in MARKS:
        return True
    marks = {
        one.func.attr
        for one in test.decorator_list
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)
    }
    names = {argument.arg for argument in test.args.args}
    return bool(names & {"make_broker", "on_files"}) and not marks & MARKS[column]


def test_the_table_has_its_columns() -> None:
    assert rows()[0] == list(COLUMNS)
    assert len(FEATURES) > 20
    assert len({row[0] for row in FEATURES}) == len(FEATURES)


@pytest.mark.parametrize("row", FEATURES, ids=[row[0] for row in FEATURES])
def test_no_cell_is_empty_and_its_tests_are_there(row: list[str]) -> None:
    assert len(row) == len(COLUMNS)
    for column, cell in zip(COLUMNS[1:], row[1:], strict=True):
        named = TEST.findall(cell)
        assert named or cell.startswith(WITHOUT), f"{row[0]}, {column}: {cell!r} names no test"
        for path, name in named:
            tests = functions_of(ROOT / path)
            assert not name or name in tests, f"{path} has no {name}"
            if path.startswith("tests/rules/"):
                assert any(
                    runs_in(test, column) for word, test in tests.items() if word.startswith("test")
                ), f"{row[0]}: no test of {path} runs on {column}"
