"""Covers: `dejaq backup` and its exit codes: taken of a broker, listed, verified.

Not covered: restoring (test_restore.py).
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.backups import newest
from tests.cli.conftest import Run, invoke


def test_backups_are_taken_listed_and_verified__damage_is_named(run: Run, tmp_path: Path) -> None:
    where = str(tmp_path / "backups")
    assert run("topic", "create", "a").exit_code == 0
    run("send", "a", "--text", "hello")
    found = run("backup", "to", where, "--json")
    assert found.exit_code == 0, found.output
    first = json.loads(found.stdout)
    assert (first["topics"], first["partitions"], first["parent"]) == (1, 1, "")
    assert f"backup {first['id'][:9]}" in run("backup", "to", where).stdout
    listed = [
        json.loads(line) for line in run("backup", "list", where, "--json").stdout.split("\n")[:-1]
    ]
    assert [one["parent"] for one in listed] == ["", first["id"]]
    assert "DAMAGED" not in run("backup", "list", where).stdout
    verified = invoke("backup", "verify", where, "--json")  # asks no broker
    assert (verified.exit_code, json.loads(verified.stdout)["damage"]) == (0, [])
    assert "backups 2" in invoke("backup", "verify", where).stdout

    piece = next(newest(where).pieces)
    (tmp_path / "backups" / "pieces" / piece.name[:2] / piece.name).write_bytes(b"")
    damaged = invoke("backup", "verify", where, newest(where).id)
    assert damaged.exit_code == 5
    assert f"{piece.name} is not what was stored" in damaged.stdout
    manifest = tmp_path / "backups" / "backups" / f"{first['id']}.json"
    manifest.write_bytes(manifest.read_bytes()[:-9])
    assert f"backups/{first['id']}.json" in invoke("backup", "verify", where).stdout
    assert "DAMAGED" in invoke("backup", "list", where).stdout


def test_backups_are_forgotten_by_name_or_by_what_is_to_be_kept(run: Run, tmp_path: Path) -> None:
    where = str(tmp_path / "backups")
    names = [json.loads(run("backup", "to", where, "--json").stdout)["id"] for _ in range(4)]
    assert invoke("backup", "forget", where, names[0], "--json").exit_code == 0
    assert "2 backups and 0 pieces" in invoke("backup", "forget", where, "--keep", "1").stdout
    assert invoke("backup", "forget", where, "--keep-for", "1d").exit_code == 0
    listed = invoke("backup", "list", where, "--json").stdout
    assert [json.loads(line)["id"] for line in listed.splitlines()] == names[3:]
    for arguments in ((), (names[3], "--keep", "1"), ("never",)):
        assert invoke("backup", "forget", where, *arguments).exit_code == 2


def test_what_fails_is_told_in_a_line(run: Run, tmp_path: Path) -> None:
    found = run("backup", "to", "ftp://nowhere")
    assert found.exit_code == 3
    assert "the backup failed: backup.url: a path" in found.stderr
    assert invoke("backup", "list", str(tmp_path)).exit_code == 2
