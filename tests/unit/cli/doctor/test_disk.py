"""Covers: what `dejaq doctor` makes of the place of the journal: file system, room, syncs, rights.

Not covered: a disk that lies about a sync; `make powercut` is about what is lost then.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.cli.doctor import disk
from dejaqueue.findings import Level
from dejaqueue.settings import BrokerSettings, JournalSettings


def at(url: str, reserve_bytes: int = 0) -> BrokerSettings:
    return BrokerSettings(journal=JournalSettings(url=url, reserve_bytes=reserve_bytes))


def test_a_directory_is_looked_at_and_left_as_it_was(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir(mode=0o755)
    found = {one.check: one for one in disk.check_disk(at(str(there)))}
    assert found.keys() == {"directory", "file system", "room", "disk sync"}
    assert found["directory"].mend == f"chmod 700 {there}"
    assert "a sync of 4 KiB takes" in found["disk sync"].text
    assert list(there.iterdir()) == []
    missing = tmp_path / "not" / "yet"
    checks = [one.check for one in disk.check_disk(at(f"segment://{missing}"))]
    assert (checks, missing.parent.exists()) == (["file system", "room", "disk sync"], False)


def test_memory_is_told__a_server_is_not_looked_at() -> None:
    [found] = disk.check_disk(at("memory:"))
    assert (found.level, "end with the broker" in found.text) == (Level.LOOK, True)
    assert list(disk.check_disk(at("postgresql://u@h/d"))) == []


def test_what_cannot_be_written_hurts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    [found] = disk.check_disk(at(str(tmp_path / "q")))
    assert (found.level, "cannot be written" in found.text) == (Level.HURTS, True)


def test_the_innermost_mount_counts(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/a rw\n"
        "2 1 0:1 / /var/lib rw shared:1 - xfs /dev/b rw\n"
        "3 1 0:2 / /var/lib/with\\040space rw - nfs4 server:/x rw\n"
        "4 1 0:3 / /var/lib/dejaq rw - tmpfs tmpfs rw\n"
    )
    kinds = {
        "/srv": "ext4",
        "/var/lib/other": "xfs",
        "/var/lib/with space/q": "nfs4",
        "/var/lib/dejaq/a/b": "tmpfs",
        "/var/library": "ext4",
    }
    assert {path: disk.file_system_of(Path(path), mounts) for path in kinds} == kinds
    assert disk.file_system_of(Path("/"), tmp_path / "none") == ""


def test_file_systems_that_forget_hurt() -> None:
    levels = [
        disk.check_file_system(Path("/q"), kind).level
        for kind in ("tmpfs", "overlay", "nfs4", "ext4", "")
    ]
    assert levels == [Level.HURTS, Level.HURTS, Level.LOOK, Level.FINE, Level.FINE]


def test_slow_syncs_hurt() -> None:
    slow = disk.check_syncs(Path("/q"), [19.0, 30.0, 30.0])
    assert (slow.level, "30.00 ms" in slow.text) == (Level.HURTS, True)
    assert disk.check_syncs(Path("/q"), [0.4, 0.5, 90.0]).level is Level.FINE
