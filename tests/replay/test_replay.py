"""Rule 13 beyond one process: the same journal gives the same state under other interpreters, CPU
features and hash seeds; and journals of every released format are read for ever."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import dejaqueue
from tests.replay.hashes import GOLDEN, all_hashes, read_image, state_hashes

ALL = os.environ.get("DEJAQ_RELIABILITY") == "all"
ROOT = Path(__file__).parents[2]


@cache
def here() -> dict[str, Any]:
    return all_hashes()


@cache
def features() -> tuple[str, ...]:
    """What numpy chooses by the CPU, and this CPU has."""
    core: Any = importlib.import_module("numpy._core._multiarray_umath")

    has: dict[str, bool] = core.__cpu_features__
    return tuple(name for name in core.__cpu_dispatch__ if has.get(name))


def elsewhere(python: str = sys.executable, **environment: str) -> dict[str, Any]:
    """The hashes, computed in another process."""
    source = str(Path(dejaqueue.__file__).parents[1])
    done = subprocess.run(
        [python, "-m", "tests.replay.hashes"],
        env=os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{ROOT}"} | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.zip")), ids=lambda path: path.stem)
def test_golden_journals_replay_to_their_hashes(path: Path) -> None:
    hashes = state_hashes(read_image(path))
    assert hashes == json.loads(path.with_suffix(".json").read_text())
    assert any(len(both) == 2 for both in hashes.values())
    assert all(len(set(both)) == 1 for both in hashes.values()), "a snapshot is not its journal"


def test_there_is_a_golden_journal_of_the_present_format() -> None:
    from dejaqueue.journal import format as entry_format

    assert (GOLDEN / f"format-{entry_format.VERSION}.zip").is_file()


@pytest.mark.parametrize("seed", ["0", "1", "4294967295"] if ALL else ["1"])
def test_the_seed_of_hash_does_not_matter(seed: str) -> None:
    assert elsewhere(PYTHONHASHSEED=seed) == here()


@pytest.mark.parametrize("share", [1.0, 0.5] if ALL else [1.0])
def test_the_features_of_the_cpu_do_not_matter(share: float) -> None:
    names = features()
    if not names:
        pytest.skip("numpy has nothing to choose from here")
    off = names[-max(1, int(len(names) * share)) :]
    assert elsewhere(NPY_DISABLE_CPU_FEATURES=" ".join(off)) == here()


@pytest.mark.may_skip
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_the_interpreter_does_not_matter(version: str) -> None:
    """Where it is installed with the packages that DejaQ needs; scripts/install_pythons.sh does."""
    made = Path(sys.prefix, "other", version, "bin", "python")
    python = os.environ.get(f"DEJAQ_PYTHON_{version.replace('.', '')}")
    path = shutil.which(python or (made if made.exists() else f"python{version}"))
    if path is None or os.path.realpath(path) == os.path.realpath(sys.executable):
        pytest.skip(f"no other python{version} here")
    needs = "import numpy, pyarrow, xxhash, cronsim, pydantic_settings, pytest, hypothesis"
    # Not by what a test before put on the path of this interpreter.
    bare = os.environ | {"PYTHONPATH": ""}
    has = subprocess.run([path, "-c", needs], env=bare, capture_output=True, check=False)
    if has.returncode:
        pytest.skip(f"python{version} lacks packages")
    found = elsewhere(path)
    assert {name: found[name] for name in found if name.endswith(".zip")} == {
        name: here()[name] for name in here() if name.endswith(".zip")
    }
    assert found == here()
