"""Covers: a partition that is not any more what it was at the cut is not copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.backup.archive import Archive
from dejaqueue.broker.backup.cut import held_cut
from dejaqueue.broker.backup.partition_copies import copied, known_of, target_of
from dejaqueue.errors import JournalDamaged, ResourceExhausted, Unavailable
from tests.backups import client_of, newest, started, taken

FAR = 3_600


def test_what_gave_room_back__was_closed__or_is_behind_a_backup_is_refused(tmp_path: Path) -> None:
    broker, where = started("memory:"), tmp_path / "backups"
    with client_of(broker) as client:
        client.create_topic("a")
        client.send("a", b"1", delay=FAR)
        assert taken(broker, where)["state"] == "done"
    archive = Archive.open(str(where))
    target = target_of(archive, broker.store, "0" * 16, replaces=False)
    known = known_of(newest(where))
    assert known_of(None) is None
    with held_cut(broker) as cut:
        [held] = cut.partitions
        [copy] = copied(target, [held], known)
        assert (copy.place, copy.position) == (held.place, held.position) == ("a/0", held.position)
        with pytest.raises(JournalDamaged, match="though a backup has"):
            list(copied(target, [held._replace(position=held.position - 1)], known))
        journal, held.core.journal = held.core.journal, broker.store.open("b", 0)
        with pytest.raises(Unavailable, match="a/0 was closed meanwhile"):
            list(copied(target, [held], known))
        held.core.journal = journal
        held.core.let_go()
        with pytest.raises(ResourceExhausted, match="a/0 gave room back"):
            list(copied(target, [held], known))
    broker.stop()
