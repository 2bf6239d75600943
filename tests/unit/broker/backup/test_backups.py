"""Covers: backups of a broker one after the other: what is stored anew, what is refused, and what a
broker that is stopped or killed in between leaves.

Not covered: load, S3, processes (tests/integration/test_backup.py).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dejaqueue.backup.archive import Archive
from dejaqueue.broker.backup import copying
from dejaqueue.broker.backup.backups import Backups
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.watching.health import health_of
from dejaqueue.errors import BadRequest, Refused, Unavailable
from dejaqueue.setting_groups import BackupSettings
from tests.backups import client_of, newest, restored, settings_of, started, taken
from tests.patience import until

FAR = 3_600


def sent(broker: Broker, count: int) -> None:
    client_of(broker).send_batch("a", [{"payload": b"x" * 500, "delay": FAR}] * count)


def test_after_the_first_backup_only_what_is_new_is_stored__and_each_is_whole(
    tmp_path: Path,
) -> None:
    broker, url = started(tmp_path / "data"), tmp_path / "backups"
    client_of(broker).create_topic("a")
    sent(broker, 2_000)
    first = taken(broker, url)
    assert (first["state"], first["parent"], first["topics"]) == ("done", "", 1)
    sent(broker, 20)
    broker.stop()  # with a snapshot
    broker = started(tmp_path / "data")
    second = taken(broker, url)
    assert (second["state"], second["parent"]) == ("done", first["id"])
    nothing = taken(broker, url)
    assert nothing["new_bytes"] < 1_000  # a snapshot for the sake of room may have come between
    full = taken(broker, url, full=True)
    assert full["parent"] == ""
    assert second["new_bytes"] * 5 < full["new_bytes"]
    broker.stop()
    archive = Archive.open(str(url))
    archive.forget([first["id"], nothing["id"], full["id"]])
    archive.sweep(1 << 43)
    assert restored(url, tmp_path / "new").messages == 2_020
    assert newest(url).id == second["id"]


def test_an_old_copy_of_the_directory_is_refused__until_a_full_backup_is_asked_for(
    tmp_path: Path,
) -> None:
    data, url = tmp_path / "data", tmp_path / "backups"
    broker = started(data)
    client_of(broker).create_topic("a")
    sent(broker, 3)
    taken(broker, url)
    broker.stop()
    shutil.copytree(data, tmp_path / "old")
    broker = started(data)
    sent(broker, 3)
    taken(broker, url)
    broker.stop()
    broker = started(tmp_path / "old")
    found = taken(broker, url)
    assert found["state"] == "failed"
    assert "an old copy was put in place" in found["error"]
    assert taken(broker, url, full=True)["state"] == "done"
    broker.stop()


def test_a_backup_that_breaks_off_leaves_the_ones_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, url = started(tmp_path / "data"), tmp_path / "backups"
    client_of(broker).create_topic("a")
    sent(broker, 3)
    first = taken(broker, url)
    sent(broker, 3)
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(Archive, "put_manifest", lambda *_: 1 / 0)
            found = taken(broker, url)
        assert (found["state"], "ZeroDivisionError" in found["error"]) == ("failed", True)
        assert newest(url).id == first["id"]
    assert not any(part.core.is_held for part in broker.runtime("a").partitions)
    assert taken(broker, url)["parent"] == first["id"]
    broker.stop()


def test_one_backup_at_a_time__none_of_a_broker_that_is_stopped(tmp_path: Path) -> None:
    broker = started(tmp_path / "data")
    for body in ({}, {"url": ""}, {"url": 7}, {"url": "backups"}, {"url": "./b"}, {"url": "~/b"}):
        with pytest.raises(BadRequest, match="url"):
            broker.call("backup", body)
    assert broker.call("backup_progress") == {"state": "none"}
    found = taken(broker, "ftp://nowhere")
    assert (found["state"], "s3://bucket/prefix" in found["error"]) == ("failed", True)
    broker.backups._is_running = True
    with pytest.raises(Refused, match="is being taken already"):
        broker.call("backup", {"url": str(tmp_path)})
    broker.backups._is_running = False
    broker.stop()
    with pytest.raises(Unavailable):
        broker.call("backup", {"url": str(tmp_path)})


def test_a_full_backup_heals_what_is_damaged(tmp_path: Path) -> None:
    broker, url = started(tmp_path / "data"), tmp_path / "backups"
    client_of(broker).create_topic("a")
    sent(broker, 3)
    first = taken(broker, url)
    archive = Archive.open(str(url))
    manifest = archive.manifest(first["id"])
    for piece in manifest.pieces:
        (url / "pieces" / piece.name[:2] / piece.name).write_bytes(b"flipped")
    assert list(archive.damage(manifest))
    assert taken(broker, url, full=True)["state"] == "done"
    assert list(archive.damage(newest(url))) == []
    assert list(archive.damage(manifest)) == []  # what is the same has the same name
    broker.stop()
    assert restored(url, tmp_path / "new").messages == 3


def test_a_backup_whose_parent_is_deleted_meanwhile_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, url = started(tmp_path / "data"), tmp_path / "backups"
    client_of(broker).create_topic("a")
    first = taken(broker, url)
    archive = Archive.open(str(url))

    def forgotten(*_: object) -> dict[str, str]:
        archive.forget([first["id"]])
        return {}

    with monkeypatch.context() as patch:
        patch.setattr(Backups, "_data_keys", forgotten)
        found = taken(broker, url)
    assert (found["state"], "was deleted" in found["error"]) == ("failed", True)
    assert archive.ids() == []
    assert taken(broker, url)["state"] == "done"
    broker.stop()


def test_how_backups_went_is_told__over_a_restart(tmp_path: Path) -> None:
    data, url = tmp_path / "data", tmp_path / "backups"
    settings = settings_of(data).model_copy(
        update={"backup": BackupSettings(url=str(url), interval_ms=86_400_000)}
    )
    broker = Broker(settings)
    broker.start()
    (tmp_path / "file").touch()
    until(lambda: broker.backups.progress()["state"] == "done", "the first by itself")
    assert taken(broker, tmp_path / "file" / "x")["state"] == "failed"
    assert "the last backup failed: the log says why" in health_of(broker).warnings
    found = taken(broker, url)
    assert "the last backup failed: the log says why" not in health_of(broker).warnings
    counts = broker.backups.counts
    assert (counts.done, counts.failed, counts.last_ms) == (2, 1, found["cut_ms"])
    broker.stop()
    again = Broker(settings)
    again.start()
    assert again.backups.counts.last_ms >= found["cut_ms"]
    again.stop()


def test_what_was_merged_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "SMALL_COUNT", 3)
    broker, url = started(tmp_path / "data", snapshot_entries=4), tmp_path / "backups"
    client_of(broker).create_topic("a")
    for _ in range(16):
        sent(broker, 3)
        assert taken(broker, url)["state"] == "done"
    broker.stop()
    assert len(newest(url).partitions[0].stretches) < 16
    assert restored(url, tmp_path / "new").messages == 48
