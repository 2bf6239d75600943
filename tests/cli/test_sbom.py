"""Covers: the list of what the image brings has every package of its lock, each with its version,
hashes and licence; the same bytes each time.

Not covered: the list that a tool makes of an installed environment (`make sbom-check`).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dejaqueue import __version__
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements/image.txt"


def made(lock: Path, target: Path) -> subprocess.CompletedProcess[str]:
    # As the Dockerfile does it: a Python without any package.
    return subprocess.run(
        [sys.executable, "-I", "-S", str(ROOT / "scripts/lock_sbom.py"), str(lock), str(target)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.fixture
def listed(tmp_path: Path) -> dict[str, Any]:
    """The list of the image."""
    said = made(LOCK, tmp_path / "sbom.json")
    assert said.returncode == 0, said.stderr
    found: dict[str, Any] = json.loads((tmp_path / "sbom.json").read_text(encoding="utf-8"))
    return found


def test_every_package_is_listed__with_what_was_locked(listed: dict[str, Any]) -> None:
    text = LOCK.read_text(encoding="utf-8")
    locked = re.findall(r"^([\w.-]+)==([^ ;\\]+)", text, re.MULTILINE)
    parts = listed["components"]
    assert [(one["name"], one["version"]) for one in parts] == locked
    assert len(locked) > 20
    hashes = [
        each["content"]
        for one in parts
        for reference in one["externalReferences"]
        for each in reference["hashes"]
    ]
    assert hashes == re.findall(r"--hash=sha256:(\w+)", text)
    assert all(one["licenses"][0]["expression"] for one in parts)
    [uvloop] = [one for one in parts if one["name"] == "uvloop"]
    assert uvloop["licenses"] == [{"expression": "Apache-2.0 OR MIT"}]


def test_it_is_of_this_version__and_the_same_each_time(
    listed: dict[str, Any], tmp_path: Path
) -> None:
    assert listed["metadata"]["component"]["version"] == __version__
    assert (listed["bomFormat"], listed["specVersion"]) == ("CycloneDX", "1.6")
    for name in ("one", "two"):
        assert made(LOCK, tmp_path / name).returncode == 0
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert json.loads((tmp_path / "one").read_text(encoding="utf-8")) == listed


def test_a_package_without_a_licence_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("of-nobody==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n", encoding="utf-8")
    said = made(lock, tmp_path / "sbom.json")
    assert said.returncode == 1
    assert "of-nobody is not in the table of licences" in said.stderr


def test_the_image_is_given_it() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "scripts/lock_sbom.py requirements/image.txt /opt/dejaq/sbom.cdx.json" in text
    sent = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    needed = ("scripts/lock_sbom.py", "requirements/image.txt", "docs/reference/licences.md", "src")
    assert {f"!{path}" for path in needed} <= set(sent)
