"""Covers: any instant between two backups: what is restored of it, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.instants import chosen, manifest_at
from dejaqueue.backup.manifest import ROWS
from dejaqueue.broker.backup import schedule
from dejaqueue.broker.backup.copying import PartitionReader
from dejaqueue.broker.backup.restoring import Restore, RestorePlan
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import BadRequest, Refused
from dejaqueue.journal.memory import MemoryStore
from dejaqueue.setting_groups import BackupSettings
from tests.backups import client_of, settings_of, started, taken
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


def test_between_backups_of_a_cluster_of_several_machines_there_is_no_instant(
    tmp_path: Path,
) -> None:
    broker, where = started("memory:"), tmp_path / "backups"
    client_of(broker).create_topic("a")
    taken(broker, where)
    instant_ms = instant_after(broker)
    instant_after(broker)
    taken(broker, where)
    broker.stop()
    archive = Archive.open(str(where))
    assert manifest_at(archive, instant_ms).partitions == ()
    second = archive.manifest(archive.ids()[-1])
    archive.forget([second.id])
    archive.put_manifest(replace(second, clocks=3))
    with pytest.raises(Refused, match="are of a cluster: clocks of several machines"):
        manifest_at(archive, instant_ms)
    assert manifest_at(archive, second.cut_ms).id == second.id


@pytest.mark.parametrize("is_scheduled", [True, False])
def test_entries_of_a_busy_topic_are_there_between_two_backups_where_a_schedule_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_scheduled: bool
) -> None:
    """Without one the journal gives them back as soon as snapshots cover them."""
    monkeypatch.setattr(schedule, "FIRST_MS", 3_600_000)
    where = tmp_path / "backups"
    settings = settings_of(tmp_path / "data", segment_bytes=1 << 18, snapshot_entries=50)
    if is_scheduled:
        backup = BackupSettings(url=str(where), interval_ms=3_600_000)
        settings = settings.model_copy(update={"backup": backup})
    broker = Broker(settings)
    broker.start()
    client = client_of(broker)
    client.create_topic("a")
    client.send("a", b"stays", delay=FAR)
    assert taken(broker, where)["state"] == "done"
    instant_ms = count = 0

    def snapshots() -> int:
        return int(broker.call("stats", {"topic": "a"})["snapshots"])

    while snapshots() < 5:
        count += 1
        rows = [{"payload": b"x" * 1_000, "delay": FAR}] * 20
        client.cancel("a", ids=client.send_batch("a", rows).ids)
        if count == 20:
            client.send("a", b"also stays", delay=FAR)
            instant_ms = instant_after(broker)
    assert count > 20
    assert taken(broker, where)["state"] == "done"
    broker.stop()
    archive = Archive.open(str(where))
    if not is_scheduled:
        with pytest.raises(Refused, match="had given them back"):
            manifest_at(archive, instant_ms)
        return
    manifest, store = manifest_at(archive, instant_ms), MemoryStore()
    Restore(archive, manifest, store).run(RestorePlan(until_ms=instant_ms))
    again = Broker(store=store)
    again.start()
    payloads = client_of(again).peek("a", limit=1_000).column("payload").to_pylist()
    assert {b"stays", b"also stays"} <= {*payloads}
    again.stop()


def test_what_is_restored_follows_the_newest_backup__unless_one_is_named(tmp_path: Path) -> None:
    broker, where = started(tmp_path / "data"), tmp_path / "backups"
    client_of(broker).create_topic("a")
    first, second = taken(broker, where), taken(broker, where)
    broker.stop()
    archive = Archive.open(str(where))
    newest = archive.manifest(second["id"])
    assert chosen(archive) == (newest, False)
    archive.forget([newest.id])
    newest = replace(newest, chain="c", logs={"0": 1})
    archive.put_manifest(newest)
    assert chosen(archive) == (newest, True)
    assert chosen(archive, instant_ms=newest.cut_ms + 1) == (newest, True)
    assert chosen(archive, first["id"]) == (archive.manifest(first["id"]), False)
    assert chosen(archive, instant_ms=first["cut_ms"])[1] is False
    with pytest.raises(BadRequest, match="a place with backups"):
        chosen(Archive.open(str(tmp_path / "empty"), make=True))
