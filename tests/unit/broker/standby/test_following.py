"""Covers: changes of a catalogue that is followed: in their order, journals made and dropped with
them; entries of a topic that is being deleted are kept for who ends it.

Not covered: whole turns (test_standby.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.standby.following import follow_change, follow_entries
from dejaqueue.broker.topic.lone_catalogue import LoneCatalogue
from dejaqueue.catalogue.changes import (
    Change,
    ClosedTopic,
    DeletedTopic,
    DeletingTopic,
    MadeTopic,
    UsedTopic,
)
from dejaqueue.errors import JournalDamaged
from dejaqueue.journal.interface import Entry
from dejaqueue.model import Topic
from tests.backups import client_of, started


def entries_of(broker: Broker) -> list[tuple[int, Entry]]:
    look = broker.runtime("a").look(
        0, lambda core: [(at, entry) for at, _, entry in core.journal.scan(0)]
    )
    return look.result()


def test_changes_and_entries_are_followed_to_the_end_of_a_topic(tmp_path: Path) -> None:
    source, broker = started(tmp_path / "source"), started(tmp_path / "data")
    client_of(source).create_topic("a")
    client_of(source).send("a", b"1", delay=3_600)
    found = entries_of(source)
    catalogue = broker.alone
    assert isinstance(catalogue, LoneCatalogue)

    def change(*changes: Change) -> None:
        for one in changes:
            follow_change(broker, catalogue, one, catalogue.revision + 1)

    change(MadeTopic(Topic("a")), UsedTopic("a"))
    assert "a" in broker.store.made()
    follow_change(broker, catalogue, DeletingTopic("a"), 1)  # an old one: it is passed over
    with pytest.raises(JournalDamaged, match="change 3 is missing"):
        follow_change(broker, catalogue, DeletingTopic("a"), 4)
    change(DeletingTopic("a"))
    assert follow_entries(broker, catalogue, "a", 0, found).result() is None
    assert follow_entries(broker, catalogue, "a", 0, found).result() is None  # once
    journal = broker.store.open("a", 0, only_made=True)
    assert journal.tail == len(found)
    journal.close()
    change(ClosedTopic("a", 7), DeletedTopic("a"))
    assert "a" not in broker.store.made()
    for one in (source, broker):
        one.stop()
