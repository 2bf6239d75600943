"""The version: one place says it, and everything else repeats that."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

import dejaqueue
from dejaqueue import version

ROOT = Path(__file__).resolve().parents[2]


def test_the_distribution_and_the_package_have_one_version() -> None:
    assert metadata.version("dejaqueue") == version.__version__ == dejaqueue.__version__


def test_no_other_place_says_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert "version" not in project["project"]


def test_it_has_three_numbers_and_perhaps_a_word() -> None:
    numbers = version.__version__.partition("-")[0].split(".")
    assert len(numbers) == 3
    assert all(number.isdigit() for number in numbers[:2])
