"""Covers: journals are told from older copies of themselves, and from others, by the last piece.

Not covered: what a broker does then (test_archiver.py, tests/disasters).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dejaqueue.backup.archive import Archive
from dejaqueue.broker.backup.archived_line import check_line
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import Refused
from tests.backups import client_of, newest, taken
from tests.unit.broker.backup.test_archiver import archived, sent, started


def check(broker: Broker, tmp_path: Path) -> None:
    where = tmp_path / "backups"
    check_line(Archive.open(str(where)), newest(where), broker.backups.archiver.store)


def test_journals_know_what_was_archived_of_them__older_and_other_copies_do_not(
    tmp_path: Path,
) -> None:
    broker = started(tmp_path)
    client_of(broker).create_topic("a")
    assert taken(broker, tmp_path / "backups")["state"] == "done"
    broker.stop()
    shutil.copytree(tmp_path / "data", tmp_path / "old")
    broker = started(tmp_path)
    check(broker, tmp_path)
    sent(broker, b"1")
    archived(broker)
    check(broker, tmp_path)
    broker.stop()
    older = started(tmp_path, "old")
    with pytest.raises(Refused, match="older than piece"):
        check(older, tmp_path)
    sent(older, *(b"%d" % number for number in range(9)))
    with pytest.raises(Refused, match="another copy"):
        check(older, tmp_path)
    older.stop()
    broker = started(tmp_path)
    sent(broker, b"2")
    check(broker, tmp_path)
    broker.stop()


def test_a_backup_without_a_chain_says_nothing(tmp_path: Path) -> None:
    broker = started(tmp_path)
    store = broker.backups.archiver.store
    client_of(broker).create_topic("a")
    assert taken(broker, tmp_path / "elsewhere")["state"] == "done"
    found = Archive.open(str(tmp_path / "elsewhere"))
    assert newest(tmp_path / "elsewhere").chain == ""
    check_line(found, newest(tmp_path / "elsewhere"), store)
    check_line(found, None, store)
    broker.stop()
