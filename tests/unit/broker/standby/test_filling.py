"""Covers: an empty store that is filled with a backup goes on where that was, by its journals; a
directory that is emptied keeps what it knows of itself.

Not covered: what is done with it then (test_standby.py).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dejaqueue.backup.archive import Archive
from dejaqueue.broker.standby.filling import clear, fill
from dejaqueue.catalogue.log import CatalogueLog
from dejaqueue.engine.view_snapshots import restore_views
from dejaqueue.journal.segments.store import SegmentStore
from tests.backups import client_of, newest, started, taken


def test_journals_go_on_where_the_backup_was(tmp_path: Path) -> None:
    broker = started(tmp_path / "active", segment_bytes=1 << 16)
    client = client_of(broker)
    client.create_topic("a")
    client.create_topic("unused")
    for number in range(40):
        client.send("a", b"%d" % number, delay=3_600 if number % 2 else 0)
    with client.consume("a", idle_ms=300) as messages:
        for message in messages:
            message.ack()
    assert taken(broker, tmp_path / "archive")["state"] == "done"
    revision = broker.catalogue_state().revision
    broker.stop()
    archive, manifest = Archive.open(str(tmp_path / "archive")), newest(tmp_path / "archive")
    store, said = SegmentStore(tmp_path / "standby"), list[str]()
    assert fill(archive, manifest, store, (), said.append) == 20
    assert said == ["filling a/0"]
    for _ in range(2):  # as it was written, and as it is found at the next start
        log = CatalogueLog(store)
        assert (log.state.revision, set(log.state.rows)) == (revision, {"a", "unused"})
        log.close()
        journal = store.open("a", 0, only_made=True)
        assert journal.tail == manifest.partitions[0].position
        assert list(journal.scan(journal.tail)) == []
        snapshot = journal.latest_snapshot()
        assert snapshot is not None
        views = restore_views(snapshot.meta, journal.read_snapshot_file)
        locators = np.concatenate(list(views.live_locators()))
        found = journal.read(locators, ["payload"]).column("payload").to_pylist()
        assert sorted(map(int, found)) == list(range(1, 40, 2))
        journal.close()
        store.close()
        store = SegmentStore(tmp_path / "standby")
    store.close()


def test_a_directory_is_emptied_but_for_what_it_knows_of_itself(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path / "data")
    store.store_document("standby", "{}")
    store.store_document("keys", "{}")
    store.open("a", 0).close()
    store.close()
    clear(tmp_path / "data")
    assert {one.name for one in (tmp_path / "data").iterdir()} == {"lock", "standby.json"}
    again = SegmentStore(tmp_path / "data")
    assert (again.load_document("standby"), again.made()) == ("{}", [])
    again.close()
