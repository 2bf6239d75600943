"""Covers: that the clients in other languages are pinned, by hash and without the place of a
registry; that each queue asked by Go or Node has its client; that what is missing is named.

Not here: a turn of each of them (test_peers.py).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.systems import compiled, peers


@pytest.fixture
def nothing_known() -> Iterator[None]:
    """What was found before is forgotten, and what is found here afterwards."""
    compiled.lack_of_go.cache_clear()
    yield
    compiled.lack_of_go.cache_clear()


def test_a_missing_program_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nothing_known: None
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    assert compiled.lack_of_go() == "the program go is not installed"
    assert compiled.lack_of_node() == "the program node is not installed"
    monkeypatch.setattr(shutil, "which", lambda name, path=None: name)
    monkeypatch.setattr(compiled, "NODE_FOLDER", tmp_path)
    assert compiled.lack_of_node() == "scripts/install_peers.sh has not installed bullmq"


def test_every_package_of_node_has_a_hash__and_no_place() -> None:
    text = (compiled.NODE_SOURCE / "package-lock.json").read_text(encoding="utf-8")
    assert "resolved" not in text
    assert "://" not in re.sub(r'"url": "[^"]*"', "", text)  # where to give to whoever made it
    packages = json.loads(text)["packages"]
    assert len(packages) > 2
    assert all("integrity" in package for place, package in packages.items() if place)


def test_every_module_of_go_has_a_hash__and_no_place() -> None:
    modules = (compiled.GO_SOURCE / "go.mod").read_text(encoding="utf-8")
    sums = (compiled.GO_SOURCE / "go.sum").read_text(encoding="utf-8")
    assert "://" not in modules + sums
    for name, version in re.findall(r"^\t(\S+\.\S+) (v\S+)", modules, re.MULTILINE):
        assert f"{name} {version} h1:" in sums


def test_each_client_says_its_version() -> None:
    go = [kind for kind in peers.KINDS if kind.language == "go"]
    assert {kind.name for kind in go} >= {"dejaq_go", "jetstream_go", "postgresql_go"}
    assert all(re.search(r"\d", compiled.go_version(kind.package)) for kind in go if kind.package)
    assert re.fullmatch(r"bullmq \d+\.\d+\.\d+", compiled.node_version("bullmq"))


def test_each_queue_by_go_has_its_client_there() -> None:
    source = (compiled.GO_SOURCE / "peer.go").read_text(encoding="utf-8")
    for kind in peers.KINDS:
        if kind.language == "go":
            assert f'"{kind.module}":' in source
