"""Covers: any instant between two backups: what is restored of it, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.instants import manifest_at
from dejaqueue.backup.manifest import ROWS
from dejaqueue.broker.backup.copying import PartitionReader
from dejaqueue.broker.backup.restoring import Restore, RestorePlan
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import BadRequest, Refused
from dejaqueue.journal.memory import MemoryStore
from tests.backups import client_of, started, taken
from tests.patience import until

FAR = 3_600


def instant_after(broker: Broker) -> int:
    """An instant behind all that was done, and before all that will be."""
    now_ms = broker.clock.utc_ms()
    until(lambda: broker.clock.utc_ms() > now_ms + 1, "the clock goes on")
    return now_ms + 1


def test_any_millisecond_between_two_backups_is_restored(tmp_path: Path) -> None:
    broker, where = started(tmp_path / "data"), tmp_path / "backups"
    client = client_of(broker)
    client.create_topic("a")
    first = client.send("a", b"1", delay=FAR)
    taken(broker, where)
    expected: dict[int, set[bytes]] = {}
    client.send("a", b"2", delay=FAR)
    expected[instant_after(broker)] = {b"1", b"2"}
    client.cancel("a", id=first)
    expected[instant_after(broker)] = {b"2"}
    client.create_topic("b")
    client.send("b", b"3", delay=FAR)
    expected[instant_after(broker)] = {b"2", b"3"}
    broker.stop()  # with snapshots
    broker = started(tmp_path / "data")
    client_of(broker).send("a", b"4", delay=FAR)
    end = taken(broker, where)
    broker.stop()
    archive = Archive.open(str(where))
    for instant_ms, payloads in {**expected, end["cut_ms"]: {b"2", b"3", b"4"}}.items():
        manifest, store = manifest_at(archive, instant_ms), MemoryStore()
        found = Restore(archive, manifest, store).run(RestorePlan(until_ms=instant_ms))
        assert (found.cut_ms, found.messages) == (instant_ms, len(payloads))
        again = Broker(store=store)
        again.start()
        seen = [client_of(again).peek(topic).column("payload").to_pylist() for topic in ("a", "b")]
        assert {one for of_topic in seen for one in of_topic} == payloads
        again.stop()
    for outside in (0, end["cut_ms"] + 1):
        with pytest.raises(BadRequest, match="to: from 20.* to 20"):
            manifest_at(archive, outside)


def test_an_instant_of_which_entries_are_gone_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, where = started(tmp_path / "data"), tmp_path / "backups"
    client_of(broker).create_topic("a")
    client_of(broker).send("a", b"1", delay=FAR)
    taken(broker, where)
    client_of(broker).send("a", b"2", delay=FAR)
    instant_ms = instant_after(broker)
    broker.stop()
    broker = started(tmp_path / "data")
    monkeypatch.setattr(PartitionReader, "_entries_there", lambda *_: [])  # they were given back
    taken(broker, where)
    broker.stop()
    archive = Archive.open(str(where))
    newest = archive.newest()
    assert newest is not None
    assert ROWS in {one.kind for one in newest.partitions[0].stretches}
    with pytest.raises(Refused, match="a/0 has no entries between backups"):
        manifest_at(archive, instant_ms)
    assert manifest_at(archive, newest.cut_ms) == newest
