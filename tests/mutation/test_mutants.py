"""Each bug planted in a part is noticed by the tests of that part."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.mutants import MUTANTS

ROOT = Path(__file__).parents[2]
ALL = os.environ.get("DEJAQ_RELIABILITY") == "all"


@pytest.mark.parametrize("name", sorted(MUTANTS) if ALL else sorted(MUTANTS)[:1])
def test_a_planted_bug_is_noticed(name: str) -> None:
    _, tests = MUTANTS[name]
    options = [
        "-q",
        "-x",
        "-p",
        "tests.mutation.plant",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
    ]
    path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=ROOT,
        env=os.environ | {"DEJAQ_MUTANT": name, "PYTHONPATH": path, "REQUIRE_ALL": ""},
        capture_output=True,
        text=True,
        timeout=800,  # shorter than a test may take
        check=False,
    )
    # 1 = tests failed; anything else = they did not run.
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout[-2_000:] + done.stderr
