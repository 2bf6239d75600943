"""Covers: the last release's client works with today's broker, and today's client with its broker.

The release is a commit (releases.toml). Not covered: the release's files on disk (tests/replay),
brokers of two versions in one cluster (test_versions_mixed.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.compatibility.released import RELEASES, ROOT, code_of, git, need_commit
from tests.patience import PATIENCE_SECONDS

TODAY = ROOT / "src"
PROGRAM = Path(__file__).with_name("program.py")
COMMIT = RELEASES["released"]["commit"]
SERVE = ("-m", "dejaqueue", "serve", "--data", "kept", "--port", "0", "--json")


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The released code, as PYTHONPATH takes it."""
    return code_of(COMMIT, tmp_path_factory.mktemp("released"))


def environment(code: Path) -> dict[str, str]:
    kept = {name: v for name, v in os.environ.items() if not name.startswith("DEJAQ_")}
    return kept | {"PYTHONPATH": str(code)}


@contextmanager
def serving(code: Path, place: Path) -> Iterator[str]:
    """The address of a broker of this code."""
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *SERVE],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=place,
            env=environment(code),
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (place / "log").read_text()
        yield json.loads(line)["url"]
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, (place / "log").read_text()


def run_program(code: Path, url: str) -> list[str]:
    """What the program did on this code."""
    found = subprocess.run(
        [sys.executable, str(PROGRAM), url],
        env=environment(code),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    told = json.loads(found.stdout)
    assert Path(told["code"]).is_relative_to(code), "it ran on other code"
    steps: list[str] = told["steps"]
    return steps


def test_the_release_is_in_this_history() -> None:
    need_commit(COMMIT)
    assert git("merge-base", "--is-ancestor", COMMIT, "HEAD").returncode == 0
    assert len(COMMIT) == 40


def test_the_released_client_works_with_this_broker(released: Path, tmp_path: Path) -> None:
    with serving(TODAY, tmp_path) as url:
        assert "transactions" in run_program(released, url)


def test_this_client_works_with_the_released_broker(released: Path, tmp_path: Path) -> None:
    with serving(released, tmp_path) as url:
        assert "transactions" in run_program(TODAY, url)


def test_the_program_works_with_what_is_here(tmp_path: Path) -> None:
    with serving(TODAY, tmp_path) as url:
        assert "move_and_cancel" in run_program(TODAY, url)
