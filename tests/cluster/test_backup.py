"""Backups of a cluster: under load, while slots move and brokers die, by the schedule; restored.

Covered: brokers with their ports in this process, whose journals are in memory; three `dejaq serve`
on PostgreSQL and etcd, with a kill; three with JetStream beside each; processes of one broker.
Not covered: single steps (tests/unit/broker/backup/test_part.py, test_cluster_backup.py).
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dejaqueue import Client
from dejaqueue.backup.archive import Archive
from dejaqueue.broker.backup import partition_copies, schedule
from dejaqueue.broker.backup.restoring import Restore, RestorePlan, RestoreReport
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import Refused
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import Topic
from dejaqueue.setting_groups import BackupSettings
from dejaqueue.settings import BrokerSettings
from dev.services.service import Service
from tests.backup_load import FAR, Load
from tests.backups import client_of, newest, restored, started, taken
from tests.cli.conftest import invoke
from tests.cluster.brokers import Cluster, patiently, payloads, send
from tests.cluster.embedded import EmbeddedCluster
from tests.cluster.served import three_brokers
from tests.cluster.spread import SpreadCluster
from tests.cluster.test_message_history import NextDoor
from tests.crash.broker_process import BrokerProcess
from tests.patience import until

TOPICS = [f"topic-{number}" for number in range(8)]


class NearCluster(Cluster):
    """Brokers in this process that reach one another without ports.

    Attributes:
        backup: settings of brokers that join.
    """

    backup = BackupSettings()

    def settings(self, name: str) -> BrokerSettings:
        return BrokerSettings(backup=self.backup)

    def listen(self, name: str, broker: Broker) -> str:
        broker.peers = NextDoor(self.brokers)
        return super().listen(name, broker)

    def stop(self, name: str) -> None:
        """It answers others until it has handed over."""
        self.nodes.pop(name).stop()
        self.brokers[name].stop()
        del self.brokers[name]

    def filled(self) -> None:
        """A few messages in each topic, whoever serves it."""
        for topic in TOPICS:
            if topic not in [one.name for one in self.brokers["a"].topics()]:
                self.brokers["a"].create_topic(Topic(topic, partitions=2))
            patiently(partial(lambda name: send(self.owner(name), name, [name]), topic))


@pytest.fixture
def cluster() -> Iterator[NearCluster]:
    with NearCluster() as made:
        made.start("a")
        made.start("b")
        made.dealt()
        yield made


def into(cluster: Cluster, where: Path, plan: RestorePlan | None = None) -> RestoreReport:
    """Restore into a cluster, beside its brokers."""
    store = RecordJournalStore(cluster.records)
    try:
        return Restore(Archive.open(str(where)), newest(where), store).run(plan or RestorePlan())
    finally:
        store.close()


def in_topic(broker: Broker | Client, topic: str) -> set[bytes]:
    client = client_of(broker) if isinstance(broker, Broker) else broker
    return set(client.peek(topic, limit=100_000).column("payload").to_pylist())


def test_what_was_acknowledged_is_in_a_backup_under_load__transactions_whole(
    tmp_path: Path,
) -> None:
    where = tmp_path / "backups"
    with SpreadCluster() as cluster, cluster.client("b") as client:
        client.create_topic("singles", partitions=3, spread=3)
        for name in ("left", "right"):
            client.create_topic(name, partitions=2)
        load = Load(cluster._address("a"))
        until(lambda: len(load.committed) > 20 and len(load.acked) > 20, "there is load")
        first = taken(client, where)
        sent, acked, pairs = list(load.acknowledged), set(load.acked), list(load.committed)
        found = taken(client, where)
        load.end()
        assert (first["state"], found["state"]) == ("done", "done"), (first, found)
        assert found["parent"] == first["id"]
        assert found["pause_us"] < 5_000_000
        again = taken(cluster.brokers["c"], where)  # whichever broker is asked
        assert again["parent"] == found["id"]
    Archive.open(str(where)).forget([first["id"], again["id"]])
    assert invoke("backup", "verify", str(where)).exit_code == 0
    restored(where, tmp_path / "new")
    broker = started(tmp_path / "new")
    there = in_topic(broker, "singles")
    assert [one for one in sent if one not in there and one not in load.acked] == []
    assert len(acked & there) <= 20, "acks are answered in the background, up to the prefetch"
    until(lambda: in_topic(broker, "left") == in_topic(broker, "right"), "pairs are whole")
    assert {b"pair-%d" % number for number in pairs} <= in_topic(broker, "left")
    broker.stop()


def test_slots_that_move_in_the_middle_have_it_taken_again(
    cluster: NearCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster.filled()
    copy, begun, moved = partition_copies._copy, threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Any:
        begun.set()
        moved.wait(60)
        return copy(*arguments)

    monkeypatch.setattr(partition_copies, "_copy", slow)
    answers: list[dict[str, Any]] = []
    taking = threading.Thread(
        target=lambda: answers.append(taken(cluster.brokers["a"], tmp_path / "backups"))
    )
    with caplog.at_level(logging.INFO, "dejaqueue.backup"):
        taking.start()
        assert begun.wait(60)
        cluster.start("c")
        cluster.dealt()
        moved.set()
        taking.join()
    [found] = answers
    assert (found["state"], found["partitions"]) == ("done", 16), found
    assert "is taken again" in caplog.text
    report = restored(tmp_path / "backups", tmp_path / "new")
    assert report.messages == len(TOPICS)


def test_a_cluster_is_restored_into_a_new_one__whose_brokers_run__and_goes_on(
    cluster: NearCluster, tmp_path: Path
) -> None:
    where = tmp_path / "backups"
    cluster.filled()
    cluster.brokers["a"].create_topic(Topic("unused"))
    cluster.brokers["a"].alter_topic(TOPICS[0], {"partitions": 3})
    ids = [send(cluster.owner(TOPICS[0]), TOPICS[0], ["more"])[0]]
    assert taken(cluster.brokers["b"], where)["state"] == "done"
    with pytest.raises(Refused, match="has 9 topics: a backup is restored into one that has none"):
        into(cluster, where)
    with NearCluster() as other:
        other.start("x")
        other.start("y")
        other.dealt()
        report = into(other, where)
        assert (report.messages, len(report.topics)) == (9, 9)
        for node in other.nodes.values():
            node._see_topics()
        for topic in TOPICS:
            until(lambda topic=topic: bool(other.owners(topic)), f"{topic} is served")  # type: ignore[misc]
        assert other.payloads(TOPICS[0]) == sorted([TOPICS[0], "more"])
        assert other.payloads(TOPICS[1]) == [TOPICS[1]]
        broker = other.brokers["x"]
        assert (broker.topic(TOPICS[0]).partitions, broker.topic("unused").partitions) == (3, 1)
        assert len({next(iter(other.owners(topic))) for topic in TOPICS}) == 2
        found: list[list[int]] = []
        patiently(lambda: found.append(send(other.owner(TOPICS[0]), TOPICS[0], ["z"] * 8)))
        assert not {*found[0]} & {*ids}, "ids go on"
        assert other.nodes["x"].act("check_cluster", {}) == {"astray": []}
        # A store of another cluster: its first backup there is whole, and beside the other's.
        assert taken(broker, where)["parent"] == ""


def test_a_restore_into_a_cluster_that_was_broken_off_goes_on(
    cluster: NearCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "backups"
    cluster.filled()
    cluster.brokers["a"].delete_topic(TOPICS[0])
    cluster.brokers["a"].create_topic(Topic(TOPICS[0], partitions=2))
    cluster.filled()
    assert taken(cluster.brokers["a"], where)["state"] == "done"
    with NearCluster() as other:
        other.start("x")
        restore, count = Restore._restore_partition, [0]

        def breaks_off(*arguments: Any) -> None:
            restore(*arguments)
            count[0] += 1
            if count[0] in (1, 8):
                raise ZeroDivisionError

        monkeypatch.setattr(Restore, "_restore_partition", breaks_off)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                into(other, where)
        report = into(other, where)
        assert len(report.topics) == len(TOPICS)
        other.nodes["x"]._see_topics()
        for topic in TOPICS:
            until(lambda topic=topic: bool(other.owners(topic)), f"{topic} is served")  # type: ignore[misc]
            wanted = [topic] * (1 if topic == TOPICS[0] else 2)
            assert payloads(other.brokers["x"], topic) == wanted
        assert other.nodes["x"].act("check_cluster", {}) == {"astray": []}


def test_the_schedule_is_kept_by_one_broker_at_a_time__and_goes_on_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schedule, "FIRST_MS", 1)
    where = tmp_path / "backups"
    with NearCluster() as cluster, caplog.at_level(logging.INFO, "dejaqueue.backup"):
        cluster.backup = BackupSettings(url=str(where), interval_ms=1_500)
        for name in "abc":
            cluster.start(name)

        def cuts() -> list[int]:
            archive = Archive.open(str(where), make=True)
            return [archive.manifest(one).cut_ms for one in archive.ids()]

        until(lambda: len(cuts()) >= 3, "backups are taken")
        found = cuts()
        assert min(b - a for a, b in itertools.pairwise(found)) > 1_000, found
        assert all(broker.backups.trouble() == "" for broker in cluster.brokers.values())
        takers = [n for n, broker in cluster.brokers.items() if broker.backups.counts.done]
        cluster.stop(takers[0])
        count = len(cuts())
        until(lambda: len(cuts()) > count + 1, "they go on")
        left = [broker.backups.counts for broker in cluster.brokers.values()]
        until(lambda: all(abs(one.last_ms - cuts()[-1]) < 4_000 for one in left), "all know of it")


@pytest.mark.crash
def test_a_broker_that_is_killed_in_a_backup__and_one_that_takes_it(
    postgresql: Service, etcd: Service, tmp_path: Path
) -> None:
    where = str(tmp_path / "backups")
    with three_brokers(tmp_path, postgresql, etcd, 2_000) as brokers:
        with Client(f"dejaq://{','.join(one.url.partition('//')[2] for one in brokers)}") as client:
            for topic in TOPICS[:4]:
                client.create_topic(topic, partitions=2)
                rows = [{"payload": os.urandom(20_000), "delay": FAR}] * 200
                client.send_batch(topic, rows).raise_for_status()
        with Client(brokers[0].url) as client:
            client.backup(where)
            pieces = Path(where) / "pieces"
            until(lambda: pieces.exists() and any(pieces.iterdir()), "something is copied")
            brokers[2].kill()
            until(lambda: client.backup_progress()["state"] != "running", "it ends")
            found = client.backup_progress()
            assert (found["state"], found["topics"]) == ("done", 4), found
        with Client(brokers[1].url) as client:
            client.backup(where)
            brokers[1].kill()  # whatever it had done
        with Client(brokers[0].url) as client:

            def is_taken() -> bool:
                found = taken(client, where)
                assert found["state"] == "done" or "one at a time" in found["error"], found
                return bool(found["state"] == "done")

            until(is_taken, "another broker takes one")
        assert invoke("backup", "verify", where).exit_code == 0
    restored_there = invoke("restore", where, "--data", str(tmp_path / "new"), "--json")
    assert '"messages":800' in restored_there.stdout, restored_there.output


@pytest.mark.crash
def test_brokers_with_jetstream_beside_them(tmp_path: Path) -> None:
    pytest.importorskip("nats")
    where = str(tmp_path / "backups")
    cluster = EmbeddedCluster(tmp_path)
    try:
        cluster.start("a", "b", "c")
        with Client(cluster.url) as client:
            client.create_topic("spread", partitions=3, spread=3)
            rows = [{"payload": b"%d" % number, "delay": FAR} for number in range(300)]
            client.send_batch("spread", rows).raise_for_status()
        with Client(cluster.brokers["b"].url) as client:
            first, second = taken(client, where), taken(client, where)
        assert (first["state"], second["state"]) == ("done", "done"), (first, second)
        assert second["new_bytes"] < first["new_bytes"] / 2
    finally:
        cluster.stop()
    (tmp_path / "other").mkdir()
    other = EmbeddedCluster(tmp_path / "other")
    try:
        other.start("x")
        beside = ["--set", f"cluster.nodes={other.places['x']}", "--set", "cluster.node=x"]
        found = invoke("restore", where, "--data", str(tmp_path / "other" / "x"), *beside)
        assert found.exit_code == 0, found.output
        with Client(other.url) as client:
            until(lambda: len(in_topic(client, "spread")) == 300, "all are there")
    finally:
        other.stop()


@pytest.mark.crash
def test_a_broker_of_several_processes(tmp_path: Path) -> None:
    where = str(tmp_path / "backups")
    broker = BrokerProcess(tmp_path / "data", tmp_path / "broker.log", server__processes=2)
    broker.start()
    try:
        with Client(broker.url) as client:
            for topic in TOPICS[:4]:
                client.create_topic(topic, partitions=2)
                client.send_batch(topic, [{"payload": b"x", "delay": FAR}] * 10).raise_for_status()
            found = taken(client, where)
            assert (found["state"], found["topics"]) == ("done", 4), found
    finally:
        broker.kill()
    assert restored(where, tmp_path / "new").messages == 40
