"""Code of other versions: commits that releases.toml names, from the history of this repository.

Room: tests. They run on the libraries that are installed here. A clone without that history is told
how to get it.
"""

from __future__ import annotations

import subprocess
import tarfile
import tomllib
from io import BytesIO
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
RELEASES = tomllib.loads(Path(__file__).with_name("releases.toml").read_text())


def git(*words: str) -> subprocess.CompletedProcess[bytes]:
    """What git says."""
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, timeout=PATIENCE_SECONDS, check=False
    )


def need_commit(commit: str) -> None:
    """Return if it is there; the test is left out only if this clone has not all of the history."""
    if git("cat-file", "-e", f"{commit}^{{commit}}").returncode == 0:
        return
    found = git("rev-parse", "--is-shallow-repository")
    if found.returncode or found.stdout.strip() == b"true":
        pytest.skip(f"this clone has no commit {commit}: git fetch --unshallow")
    raise AssertionError(f"releases.toml names {commit}, which is not in this history")


def code_of(commit: str, place: Path) -> Path:
    """The code of a commit, as PYTHONPATH takes it."""
    need_commit(commit)
    packed = git("archive", commit, "src/dejaqueue")
    assert packed.returncode == 0, packed.stderr.decode()
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(place, filter="data")
    return place / "src"
