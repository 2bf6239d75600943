"""Covers: backups that a broker takes by itself, which of them it keeps, and how it says that one
is damaged."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dejaqueue.backup.archive import Archive
from dejaqueue.broker.backup import schedule
from dejaqueue.broker.broker import Broker
from dejaqueue.setting_groups import BackupSettings
from tests.backups import client_of, newest, restored, settings_of, taken
from tests.patience import until

FAR = 3_600


def test_a_broker_takes_backups_by_itself__keeps_some__and_reads_the_newest_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schedule, "FIRST_MS", 1)
    where = tmp_path / "backups"
    backup = BackupSettings(url=str(where), interval_ms=1_000, backups_max=2, verify_interval_ms=1)
    broker = Broker(settings_of(tmp_path / "data").model_copy(update={"backup": backup}))
    with caplog.at_level(logging.INFO, "dejaqueue.backup"):
        broker.start()
        client_of(broker).create_topic("a")
        client_of(broker).send("a", b"1", delay=FAR)
        until(lambda: "is whole" in caplog.text, "one is read back")
        seen = Archive.open(str(where)).ids()
        until(lambda: len({*seen, *Archive.open(str(where)).ids()}) >= 3, "more are taken")
        broker.stop()
    assert len(Archive.open(str(where)).ids()) <= 3
    assert restored(where, tmp_path / "new").messages == 1
    piece = newest(where).catalogue
    (where / "pieces" / piece.name[:2] / piece.name).write_bytes(b"")
    archive = Archive.open(str(where))
    assert broker.backups._schedule.verify(archive, newest(where).store) == 1
    assert f"{piece.name} is not what was stored" in caplog.text


def test_what_was_found_damaged_is_stored_anew_by_the_next_turn__also_of_another_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "FIRST_MS", 3_600_000)
    data, where = tmp_path / "data", tmp_path / "backups"
    backup = BackupSettings(url=str(where), interval_ms=3_600_000, verify_interval_ms=1)
    settings = settings_of(data).model_copy(update={"backup": backup})
    broker = Broker(settings)
    broker.start()
    client_of(broker).create_topic("a")
    client_of(broker).send("a", b"1", delay=FAR)
    turn = broker.backups._schedule.turn
    turn()
    [copy] = newest(where).partitions
    [piece] = copy.pieces
    (where / "pieces" / piece.name[:2] / piece.name).write_bytes(b"flipped")
    turn()  # finds it, as what did not change is named again
    archive = Archive.open(str(where))
    assert list(archive.damage(newest(where)))
    broker.stop()
    broker = Broker(settings)
    broker.start()
    broker.backups._schedule.turn()
    assert list(archive.damage(newest(where))) == []
    broker.stop()
    assert restored(where, tmp_path / "new").messages == 1


def test_what_fails_is_tried_again__and_does_not_end_the_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schedule, "FIRST_MS", 1)
    (tmp_path / "file").touch()
    backup = BackupSettings(url=str(tmp_path / "file" / "x"), interval_ms=1_000)
    broker = Broker(settings_of("memory:").model_copy(update={"backup": backup}))
    broker.start()
    until(lambda: caplog.text.count("cannot be used") >= 2, "it is tried again")
    assert taken(broker, tmp_path / "elsewhere")["state"] == "done"
    broker.stop()
