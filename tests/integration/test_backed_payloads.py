"""Covers: backups of messages whose payloads are in the payload store: what `dejaq backup payloads`
says of them, that a restored broker reads them after they are done in the first, and leaves them;
copies of them beside the backup, and how a restore puts them back.

Not covered: what a backup has of messages themselves (test_backup.py).
"""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import dejaqueue
from dejaqueue import Client, limits
from dejaqueue.backup.archive import Archive
from dejaqueue.backup.payload_copies import PayloadCopies
from dejaqueue.broker.backup.restoring import Restore, RestorePlan
from dejaqueue.cli.backed_payloads import backed_payloads
from dejaqueue.cli.backup import backup
from dejaqueue.cli.restore import restore
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.registry import open_store
from dejaqueue.setting_groups import BackupSettings, PayloadSettings
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.patience import PATIENCE_SECONDS, until

LARGE = b"large" * 1_000
STREAMED = b"s" * limits.PART_BYTES + b"the end"


def client_on(folder: Path, name: str) -> Client:
    payloads = PayloadSettings(
        url=str(folder / "payloads"), inline_bytes_max=1_024, keep_ms=86_400_000
    )
    journal = JournalSettings(url=str(folder / name))
    return dejaqueue.open(
        folder / name, settings=BrokerSettings(journal=journal, payloads=payloads)
    )


def taken(client: Client) -> list[bytes]:
    found = []
    idle_ms = int(PATIENCE_SECONDS * 1_000)
    with client.consume("t", max_messages=3, idle_ms=idle_ms) as messages:
        for message in messages:
            with message.open() as payload:
                found.append(payload.read())
            message.ack()
    return found


def asked(folder: Path, *more: str) -> Result:
    url = f"payloads.url={folder / 'payloads'}"
    return CliRunner().invoke(
        backed_payloads, [str(folder / "backups"), "--set", url, *more], standalone_mode=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a backup of a broker whose messages are all done since."""
    with client_on(tmp_path, "first") as client:
        client.create_topic("t", max_payload_bytes=64 << 20)
        client.send_batch("t", [{"payload": b"small"}, {"payload": LARGE}])
        client.send("t", io.BytesIO(STREAMED))
        client.backup(str(tmp_path / "backups"))
        until(lambda: client.backup_progress()["state"] == "done", "the backup is taken")
        assert sorted(taken(client)) == sorted([b"small", LARGE, STREAMED])
    return tmp_path


def test_a_backup_says_what_it_needs__and_what_is_missing(folder: Path) -> None:
    result = asked(folder, "--json")
    assert result.exception is None
    found: dict[str, Any] = json.loads(result.output)
    assert (found["payloads"], found["missing"]) == (2, [])
    assert found["bytes"] == len(LARGE) + len(STREAMED)
    kept = [path for path in folder.glob("payloads/*/1-t/*/*") if path.is_file()]
    # Beside the content there is the note that a message has taken the upload.
    parts = sorted(path for path in kept if path.name != "taken")
    assert len(parts) == 3
    parts[0].write_bytes(b"short")
    parts[2].unlink()
    result = asked(folder)
    assert isinstance(result.exception, JournalDamaged)
    names = [path.relative_to(folder / "payloads").as_posix() for path in (parts[0], parts[2])]
    assert [line for line in result.output.splitlines() if line.startswith("missing")] == [
        f"missing: {name}" for name in names
    ]


def test_what_is_restored_has_its_payloads_and_leaves_them(folder: Path) -> None:
    archive = Archive.open(str(folder / "backups"))
    manifest = archive.newest()
    assert manifest is not None
    store = open_store(str(folder / "second"))
    Restore(archive, manifest, store).run(RestorePlan())
    store.close()
    before = sorted(folder.glob("payloads/*/1-t/**/*"))
    with client_on(folder, "second") as client:
        assert sorted(taken(client)) == sorted([b"small", LARGE, STREAMED])
    assert sorted(folder.glob("payloads/*/1-t/**/*")) == before


def restored(folder: Path, name: str) -> Result:
    """A restore of the newest backup beside another payload store."""
    arguments = [str(folder / "backups"), "--data", str(folder / name)]
    url = f"payloads.url={folder / 'elsewhere'}"
    return CliRunner().invoke(restore, [*arguments, "--set", url], standalone_mode=False)


def test_with_copies_a_backup_needs_its_payload_store_no_more(folder: Path) -> None:
    result = asked(folder, "--copy", "--json")
    assert result.exception is None
    found = json.loads(result.output)
    assert (found["copies"], found["new_objects"]) == (4, 4)  # two parts and their list
    again = json.loads(asked(folder, "--copy", "--json").output)
    assert (again["copies"], again["new_objects"]) == (4, 0)
    shutil.rmtree(folder / "payloads")
    result = restored(folder, "second")
    assert result.exception is None, result.output
    assert "4 of 4 objects of large payloads were put back" in result.stderr
    shutil.move(folder / "elsewhere", folder / "payloads")
    with client_on(folder, "second") as client:
        assert sorted(taken(client)) == sorted([b"small", LARGE, STREAMED])


def test_a_damaged_copy_is_found_by_name__and_not_put_back(folder: Path) -> None:
    asked(folder, "--copy")
    listed = CliRunner().invoke(backup, ["list", str(folder / "backups")], standalone_mode=False)
    assert "copied" in listed.output
    [large] = [
        path
        for path in folder.glob("backups/payloads/objects/*/*/*")
        if path.is_file() and path.stat().st_size == len(LARGE)
    ]
    large.write_bytes(b"x" * len(LARGE))
    checked = CliRunner().invoke(backup, ["verify", str(folder / "backups")], standalone_mode=False)
    assert isinstance(checked.exception, JournalDamaged)
    assert f"{large.name} is not what was copied" in checked.output
    result = restored(folder, "second")
    assert isinstance(result.exception, JournalDamaged)
    assert not (folder / "second" / "topics").is_dir() or not list(
        (folder / "second" / "topics").glob("t")
    )


def test_what_is_missing_is_named_and_the_others_are_copied(folder: Path) -> None:
    for path in folder.glob("payloads/*/1-t/*"):
        if path.is_file():
            path.unlink()
    result = asked(folder, "--copy", "--json")
    assert isinstance(result.exception, JournalDamaged)
    assert json.loads(result.output)["copies"] == 3


def test_the_broker_copies_by_itself__before_a_payload_that_is_done_goes(tmp_path: Path) -> None:
    payloads = PayloadSettings(url=str(tmp_path / "payloads"), inline_bytes_max=1_024)
    settings = BrokerSettings(
        journal=JournalSettings(url=str(tmp_path / "first")),
        payloads=payloads,
        backup=BackupSettings(payloads=True),
    )
    with dejaqueue.open(tmp_path / "first", settings=settings) as client:
        client.create_topic("t")
        client.send_batch("t", [{"payload": LARGE}, {"payload": LARGE + b"2"}])
        client.backup(str(tmp_path / "backups"))
        until(lambda: client.backup_progress()["state"] == "done", "the backup is taken")
        assert client.backup_progress()["payload_objects"] == 2
    copies = PayloadCopies(Archive.open(str(tmp_path / "backups")).bucket)
    assert len(copies.needed(copies.backups()[0]) or {}) == 2


def test_copies_go_with_the_last_backup_that_needs_them(folder: Path) -> None:
    asked(folder, "--copy")
    archive = Archive.open(str(folder / "backups"))
    archive.forget(archive.ids())
    later_ms = 4_000_000_000_000
    archive.sweep(later_ms)
    assert not [path for path in folder.glob("backups/payloads/**/*") if path.is_file()]
