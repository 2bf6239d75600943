"""A broker that is alone, whose journals are records on a server: what it archives as it comes.

Covered: SQLite, encrypted or not: what is archived and restored, to any instant, a graceful stop, a
new start, a chain that ends and another one that begins, an older copy; a standby that follows it
and takes its place; the same in short on Redis, MariaDB, Cassandra, and in a bucket whose archive
is in another bucket.
Not covered: clusters (tests/cluster/test_archive.py); kills (tests/crash/test_cluster_archive.py).
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue.backup.archive import Archive
from dejaqueue.backup.instants import chosen
from dejaqueue.broker.backup.restoring import Restore, RestorePlan
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import NotActive
from dejaqueue.journal.encryption.master_keys import load_master_keys
from dejaqueue.journal.registry import open_store
from dejaqueue.settings import BrokerSettings
from tests.backups import client_of, newest, reach_ms, taken
from tests.integration.erasure_servers import server_url
from tests.object_store import s3_server
from tests.patience import until

FAR = 3_600


class Place:
    """A broker on a server, which is SQLite if none is named, and where it archives to."""

    def __init__(
        self, root: Path, url: str = "", where: str = "", *, is_encrypted: bool = False
    ) -> None:
        self.root, self.data = root, root / "broker.sqlite"
        self.url, self.where = url or f"sqlite:///{self.data}", where or str(root / "backups")
        self.key, self._started = "", list[Broker]()
        if is_encrypted:
            path = root / "master.key"
            path.touch(mode=0o600)
            path.write_text(base64.b64encode(os.urandom(32)).decode())
            self.key = f"file:{path}"

    def start(self, url: str = "") -> Broker:
        values = {
            "journal": {"url": url or self.url},
            "encryption": {"master_key": self.key},
            "backup": {
                "url": self.where,
                "archive_interval_ms": 10,
                "interval_ms": 86_400_000,
            },
        }
        if url:
            del values["backup"]
        broker = Broker(BrokerSettings.model_validate(values))
        broker.start()
        self._started.append(broker)
        return broker

    def standby(self) -> Broker:
        """One with a directory."""
        values = {
            "journal": {"url": str(self.root / "standby")},
            "encryption": {"master_key": self.key},
            "standby": {"url": self.where, "poll_ms": 10},
        }
        broker = Broker(BrokerSettings.model_validate(values))
        broker.start()
        self._started.append(broker)
        return broker

    def stop(self) -> None:
        """All brokers, before their server ends; twice is fine."""
        for broker in self._started:
            broker.stop()

    def archived(self, broker: Broker) -> int:
        now_ms = broker.clock.utc_ms()
        with client_of(broker) as client:
            client.send("marks", b"mark", delay=FAR)
        until(lambda: reach_ms(self.where) >= now_ms, "the archive has come so far")
        return reach_ms(self.where)

    def restored(
        self, name: str, instant_ms: int | None = None, target: str = ""
    ) -> dict[str, list[bytes]]:
        """Topics as they are restored, into SQLite or where it is said."""
        target = target or f"sqlite:///{self.root / name}.sqlite"
        store = open_store(target)
        masters = load_master_keys(self.key) if self.key else []
        try:
            if masters:
                store.encrypt(masters)
            archive = Archive.open(self.where)
            manifest, follows = chosen(archive, "", instant_ms)
            plan = RestorePlan(until_ms=instant_ms, follows=follows)
            Restore(archive, manifest, store, masters).run(plan)
        finally:
            store.close()
        broker = self.start(target)
        with client_of(broker) as client:
            found = {
                one.name: sorted(client.peek(one.name).column("payload").to_pylist())
                for one in broker.topics()
            }
        broker.stop()
        return found


@pytest.fixture(params=[False, True], ids=["clear", "encrypted"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    return Place(tmp_path, is_encrypted=request.param)


def begun(place: Place) -> Broker:
    broker = place.start()
    with client_of(broker) as client:
        client.create_topic("marks")
        client.create_topic("orders", partitions=3)
        client.send("orders", b"0", delay=FAR)
        client.send("marks", b"mark", delay=FAR)
    assert taken(broker, place.where)["state"] == "done"
    return broker


def test_what_is_done_is_archived__to_any_instant(place: Place) -> None:
    broker = begun(place)
    with client_of(broker) as client:
        for number in range(1, 6):
            client.send("orders", b"%d" % number, delay=FAR)
        client.create_topic("later")
        client.send("later", b"x", delay=FAR)
        middle_ms = place.archived(broker)
        client.send_batch("orders", [{"payload": b"6", "delay": FAR}] * 3).raise_for_status()
        place.archived(broker)
    assert broker.backups.trouble() == ""
    assert Archive.open(place.where).chain_damage(newest(place.where))[0] == []
    if place.key:
        pieces = [one for one in Path(place.where).rglob("*") if "chains" in str(one)]
        assert all(b"orders" not in one.read_bytes() for one in pieces if one.is_file())
    broker.stop()
    found = place.restored("new")
    assert found["orders"] == [b"%d" % number for number in range(6)] + [b"6"] * 3
    assert found["later"] == [b"x"]
    assert place.restored("middle", middle_ms)["orders"] == [b"%d" % number for number in range(6)]


def test_a_broker_that_is_stopped_archives_what_was_done_last(tmp_path: Path) -> None:
    place = Place(tmp_path)
    broker = begun(place)
    with client_of(broker) as client:
        for number in range(1, 50):
            client.send("orders", b"%d" % number, delay=FAR)
    broker.stop()
    assert len(place.restored("new")["orders"]) == 50


def test_the_next_life_goes_on_with_the_chain(place: Place) -> None:
    broker = begun(place)
    place.archived(broker)
    chain = newest(place.where).chain
    broker.stop()
    again = place.start()
    with client_of(again) as client:
        client.send("orders", b"1", delay=FAR)
        place.archived(again)
        assert taken(again, place.where)["state"] == "done"
        client.send("orders", b"2", delay=FAR)
        place.archived(again)
    assert newest(place.where).chain == chain
    again.stop()
    assert place.restored("new")["orders"] == [b"0", b"1", b"2"]


def test_an_older_copy_does_not_go_on(tmp_path: Path) -> None:
    place = Place(tmp_path)
    broker = begun(place)
    broker.stop()
    shutil.copy(place.data, tmp_path / "older.sqlite")
    broker = place.start()
    with client_of(broker) as client:
        client.send("orders", b"1", delay=FAR)
        place.archived(broker)
    broker.stop()
    for name in place.root.glob("broker.sqlite*"):
        name.unlink()
    shutil.copy(tmp_path / "older.sqlite", place.data)
    broker = place.start()
    with client_of(broker) as client:
        client.send("orders", b"another", delay=FAR)
        client._action("backup", {"url": place.where})
        until(lambda: client.backup_progress()["state"] != "running", "the backup ends")
        assert "an old copy was put in place" in client.backup_progress()["error"]
    broker.stop()
    assert place.restored("new")["orders"] == [b"0", b"1"]


def test_a_standby_follows_it__also_over_a_start__and_takes_its_place(place: Place) -> None:
    broker = begun(place)
    client = client_of(broker)
    standby = place.standby()

    def followed() -> list[bytes]:
        reach_ms = place.archived(broker)

        def has_followed() -> bool:
            follower = standby.standby.follower
            return follower is not None and follower.at_ms >= reach_ms

        until(has_followed, "it has followed")
        return sorted(client_of(standby).peek("orders").column("payload").to_pylist())

    client.send("orders", b"1", delay=FAR)
    assert followed() == [b"0", b"1"]
    standby.stop()
    client.send("orders", b"2", delay=FAR)
    standby = place.standby()
    assert followed() == [b"0", b"1", b"2"]
    assert standby.call("promote")["state"] == "active"
    client.send("orders", b"lost", delay=FAR)
    until(lambda: broker.site.refusal() is not None, "it meets the fence")
    broker.stop()
    with pytest.raises(NotActive, match="was replaced"):
        place.start()
    client_of(standby).send("orders", b"3", delay=FAR)
    there = client_of(standby).peek("orders").column("payload").to_pylist()
    assert sorted(there) == [b"0", b"1", b"2", b"3"]
    standby.stop()


KINDS = [
    "redis",
    "mariadb",
    # Where Maven's repository cannot be reached there is no Cassandra.
    pytest.param("cassandra", marks=pytest.mark.may_skip),
    "bucket",
]
"""PostgreSQL and JetStream are under load in tests/crash/test_cluster_archive.py."""


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param != "bucket":
        for url in server_url(request.param, tmp_path / "server"):
            place = Place(tmp_path, url, is_encrypted=True)
            yield place
            place.stop()
        return
    for s3 in s3_server():
        url, where = f"{s3.new_bucket()}/queues", f"{s3.new_bucket()}/dejaq"
        place = Place(tmp_path, url, where, is_encrypted=True)
        yield place
        place.stop()


def test_what_a_server_has_is_archived__to_any_instant__over_a_new_start(server: Place) -> None:
    broker = begun(server)
    with client_of(broker) as client:
        for number in range(1, 6):
            client.send("orders", b"%d" % number, delay=FAR)
        client.create_topic("later")
        client.send("later", b"x", delay=FAR)
        middle_ms = server.archived(broker)
        client.send_batch("orders", [{"payload": b"6", "delay": FAR}] * 3).raise_for_status()
    assert broker.backups.trouble() == ""
    chain = newest(server.where).chain
    broker.stop()
    again = server.start()
    with client_of(again) as client:
        client.send("orders", b"7", delay=FAR)
        server.archived(again)
        assert taken(again, server.where)["state"] == "done"
        client.send("orders", b"8", delay=FAR)
        client.delete_topic("later")
        server.archived(again)
    assert again.backups.trouble() == ""
    again.stop()
    assert newest(server.where).chain == chain
    assert Archive.open(server.where).chain_damage(newest(server.where))[0] == []
    target = f"{server.url}-restored" if server.url.startswith("s3:") else ""
    found = server.restored("new", target=target)
    assert found["orders"] == [b"%d" % number for number in range(6)] + [b"6"] * 3 + [b"7", b"8"]
    assert "later" not in found
    middle = server.restored("middle", middle_ms)
    assert middle["orders"] == [b"%d" % number for number in range(6)]
    assert middle["later"] == [b"x"]
