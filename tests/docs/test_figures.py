"""Covers: the figures of README.md are those of docs/benchmarks.md, and of a commit that is known.

Not covered: that they would be measured again (make figures does); the other figures of the page
(tests/unit/bench/test_results.py).
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
RELEASES = ROOT / "tests/compatibility/releases.toml"
GENERATED = re.compile(r"<!-- generated: (?:cluster-)?figures -->\n(.*?)<!-- end of", re.DOTALL)
FIGURE = re.compile(r"\b([0-9][0-9,.]*[0-9]|[0-9]) (messages/s|ms|s|bytes)\b")


def blocks() -> list[str]:
    """The generated parts of README.md with figures."""
    found = GENERATED.findall(README)
    assert len(found) == 2
    return found


def commits() -> list[str]:
    """The commits that README.md names, each perhaps with -dirty behind it."""
    found = [commit for block in blocks() for commit in re.findall(r"`([0-9a-f]{7,}\S*)`", block)]
    assert found
    return found


def git(*words: str) -> int:
    found = subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, timeout=PATIENCE_SECONDS, check=False
    )
    return found.returncode


def is_before(commit: str, later: str) -> bool:
    """True if a commit is another one, or before it. Skips where this clone has no such commit."""
    if git("cat-file", "-e", f"{commit}^{{commit}}"):
        pytest.skip(f"this clone has no commit {commit}: git fetch --unshallow")
    return git("merge-base", "--is-ancestor", commit, later) == 0


def test_the_figures_are_of_commits_of_this_history() -> None:
    named = [commit.removesuffix("-dirty") for commit in commits()]
    assert [commit for commit in named if not is_before(commit, "HEAD")] == []


def test_the_figures_are_of_one_clean_commit__at_most_one_release_old() -> None:
    named = sorted(set(commits()))
    assert len(named) == 1, "figures of one page are of one commit: make figures"
    before = tomllib.loads(RELEASES.read_text(encoding="utf-8"))["before"]["commit"]
    assert not named[0].endswith("-dirty"), "figures are of what is committed: make figures"
    assert is_before(before, named[0]), "more than one release old: make figures"


def measured() -> set[tuple[float, str]]:
    """Value and unit of each row of docs/benchmarks.md."""
    rows = re.findall(r"^\| [^|]+ \| \w+ \| ([0-9.,]+) \| ([^|]+) \|", PAGE, re.MULTILINE)
    return {(float(value.replace(",", "")), unit) for value, unit in rows}


def is_measured(value: str, unit: str) -> bool:
    """True if the page has it. README.md has three digits that count, the page three or more."""
    shown = float(value.replace(",", ""))
    return any(found == unit and abs(shown - of) <= 0.006 * of for of, found in measured())


def test_every_figure_is_one_of_the_page_of_benchmarks() -> None:
    shown = [found for block in blocks() for found in FIGURE.findall(block)]
    assert len(shown) > 10
    # What every line asks for is no result.
    asked = ("10,000", "messages/s")
    assert [found for found in shown if found != asked and not is_measured(*found)] == []


def test_a_figure_that_was_not_measured_is_found() -> None:
    value, unit = max(measured())
    assert is_measured(f"{value:,.0f}", unit)
    assert not is_measured(f"{2 * value:,.0f}", unit)
    assert not is_measured(f"{value:,.0f}", f"{unit} or so")
