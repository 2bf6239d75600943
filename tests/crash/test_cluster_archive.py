"""Three brokers archive as they go; two are killed under load, in the end all are, and the journals
are deleted: what was acknowledged by the instant that is restored is there, and nothing twice.

Covered: journals in PostgreSQL with facts in etcd, and JetStream beside the brokers; in
short, two brokers on Redis, MariaDB, Cassandra and in a bucket; SIGKILL of the broker that takes
cuts, and of another one; transactions over topics of several brokers; messages that are passed on
from one topic to another; an earlier cut; a restore into one broker and into a new cluster.
Not covered: brokers of one process (tests/cluster/test_archive.py), processes of one machine
(test_processes_archive.py).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dejaqueue import Client
from dejaqueue.backup.archive import Archive
from dejaqueue.backup.manifest import Manifest
from dejaqueue.times import show_instant
from dev.services import Service
from tests.backups import reach_ms, restored_by_command
from tests.cluster.embedded import EmbeddedCluster
from tests.cluster.served import brokers_at, three_brokers
from tests.crash.broker_process import BrokerProcess
from tests.crash.timed_load import FAR, Load, now_ms, payloads_of
from tests.integration.erasure_servers import server_url
from tests.patience import until
from tests.server_fixtures import served

INTERVAL_MS = 50
MUCH = 20
LOST_MS_MAX = 60_000
"""On a machine that is busy with other tests, whose brokers take over what a killed one had."""

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Service]:
    yield from served("postgresql")


@pytest.fixture(scope="module")
def etcd() -> Iterator[Service]:
    yield from served("etcd")


class PassingLoad(Load):
    """As Load; and messages that are passed on: sent to another topic, and acked behind that.

    Attributes:
        entered: what was sent to the first topic, each with when its answer had come.
    """

    def __init__(self, url: str) -> None:
        self.entered: list[tuple[int, bytes]] = []
        super().__init__(url)
        more = [
            threading.Thread(target=self._again, args=(one,)) for one in (self._enter, self._on)
        ]
        for thread in more:
            thread.start()
        self._threads += more

    def _enter(self, client: Client) -> None:
        while not self._ends.is_set():
            payload = b"passed-%d" % random.getrandbits(60)
            client.send("first", payload)
            self.entered.append((now_ms(), payload))
            self._ends.wait(0.005)

    def _on(self, client: Client) -> None:
        while not self._ends.is_set():
            with client.consume("first", idle_ms=200, prefetch=20) as messages:
                for message in messages:
                    client.send("second", message.payload, delay=FAR)
                    message.ack(wait=True)
                    if self._ends.is_set():
                        break


class Site:
    """Brokers of a cluster by name, their archive, and where that is restored."""

    def __init__(self, root: Path, brokers: dict[str, BrokerProcess]) -> None:
        self.root, self.where, self.brokers = root, str(root / "backups"), brokers

    @property
    def url(self) -> str:
        return "dejaq://" + ",".join(f"127.0.0.1:{one.port}" for one in self.brokers.values())

    def archived(self) -> None:
        """Return when all that was acknowledged before this is archived."""
        began_ms = now_ms()
        with Client(self.url) as client:
            client.send("singles", b"mark-%d" % random.getrandbits(60), delay=FAR)
        until(lambda: reach_ms(self.where) >= began_ms, "the archive has come so far")

    def filled(self) -> None:
        with Client(self.url) as client:
            client.create_topic("singles", partitions=4, spread=2)
            client.create_topic("left", partitions=2)
            client.create_topic("right", partitions=2, spread=2)
            client.create_topic("first", partitions=3, spread=3)
            client.create_topic("second", partitions=3, spread=3)
        until(lambda: Archive.open(self.where, make=True).ids(), "the first backup")

    def under_load(self, *victims: str, starts_again: bool = True) -> tuple[PassingLoad, int, int]:
        """These brokers killed, one after the other; in the end all are. What was done, an instant
        in the middle, and when all were killed."""
        load = PassingLoad(self.url)
        try:
            until(lambda: has_much(load), "much is sent")
            self.archived()
            for name in victims:
                self.brokers[name].kill()
                self.archived()  # by the others
                if starts_again:
                    self.brokers[name].start()
                sent = len(load.entered)
                until(lambda sent=sent: len(load.entered) > sent + MUCH, "load goes on")  # type: ignore[misc]
            self.archived()
            middle_ms = now_ms()
            sent = len(load.entered)
            until(lambda: len(load.entered) > sent + MUCH, "load goes on")
            self.archived()
            threading.Event().wait(0.7)
            killed_ms = now_ms()
            for broker in self.brokers.values():
                broker.kill()
        finally:
            load.end()
        return load, middle_ms, killed_ms

    def restored(self, data: Path, *more: str) -> dict[str, Any]:
        """What the command says."""
        return restored_by_command(self.where, data, *more)


def has_much(load: PassingLoad) -> bool:
    much = len(load.sent) - len(load.tried_acks) > 2 * MUCH
    return much and len(load.entered) > MUCH and len(load.committed) > MUCH


def check(url: str, load: PassingLoad, until_ms: int) -> None:
    """Compare what is restored with what was acknowledged by then."""
    with Client(url) as client:
        singles = payloads_of(client, "singles")
        pairs, others = payloads_of(client, "left"), payloads_of(client, "right")
        first, second = payloads_of(client, "first"), payloads_of(client, "second")
    assert pairs == others, "a transaction in part"
    for there in (singles, pairs, first):
        assert len(there) == len(set(there)), "twice"
    wanted = {one for at_ms, one in load.sent if at_ms < until_ms} - load.tried_acks
    assert not wanted - set(singles), f"{len(wanted - set(singles))} of {len(wanted)} are lost"
    back = {one for at_ms, one in load.acked if at_ms < until_ms} & set(singles)
    assert not back, f"{len(back)} that were acked are back"
    committed = {one for at_ms, one in load.committed if at_ms < until_ms}
    assert not committed - set(pairs), "transactions are lost"
    entered = {one for at_ms, one in load.entered if at_ms < until_ms}
    nowhere = entered - {*first, *second}
    assert not nowhere, f"{len(nowhere)} of {len(entered)} are in neither topic"
    print(
        f"sent={len(wanted)} acked={len(load.acked)} committed={len(committed)} "
        f"entered={len(entered)} passed_on={len(second)}"
    )
    assert min(len(wanted), len(entered), len(committed)) > MUCH


@contextmanager
def alone(data: Path) -> Iterator[str]:
    """A broker on what was restored; its address."""
    broker = BrokerProcess(data, data.with_suffix(".log"))
    broker.start()
    try:
        yield broker.url
    finally:
        broker.kill()


def settings_of(root: Path) -> dict[str, object]:
    return {
        "journal__snapshot_entries": 200,
        "backup__url": str(root / "backups"),
        "backup__archive_interval_ms": INTERVAL_MS,
        "backup__interval_ms": 86_400_000,
    }


def check_restored(site: Site, data: Path, load: PassingLoad, killed_ms: int) -> Manifest:
    """Restore what is archived, and compare it with what was done; the backup that it follows."""
    found = site.restored(data)
    print(f"lost={killed_ms - found['cut_ms']} ms")
    assert killed_ms - found["cut_ms"] < LOST_MS_MAX
    with alone(data) as url:
        check(url, load, found["cut_ms"])
    manifest = Archive.open(site.where).newest()
    assert manifest is not None
    return manifest


def test_journals_in_a_database_are_lost(
    tmp_path: Path, postgresql: Service, etcd: Service
) -> None:
    with three_brokers(tmp_path, postgresql, etcd, 3_000, **settings_of(tmp_path)) as brokers:
        site = Site(tmp_path, dict(zip("abc", brokers, strict=True)))
        site.filled()
        load, middle_ms, killed_ms = site.under_load("a", "b")
        schema = str(brokers[0].data).rpartition("%3D")[2]
        with psycopg.connect(postgresql.url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {schema} CASCADE")
    manifest = check_restored(site, tmp_path / "new", load, killed_ms)
    assert manifest.in_strands
    assert Archive.open(site.where).chain_damage(manifest)[0] == []
    before = site.restored(tmp_path / "before", "--to", show_instant(middle_ms))
    assert before["cut_ms"] <= middle_ms
    with alone(tmp_path / "before") as url:
        check(url, load, before["cut_ms"])


def test_journals_beside_the_brokers_are_lost(tmp_path: Path) -> None:
    pytest.importorskip("nats")
    cluster = EmbeddedCluster(tmp_path, **settings_of(tmp_path))
    try:
        cluster.start("a", "b", "c")
        site = Site(tmp_path, cluster.brokers)
        site.filled()
        load, _, killed_ms = site.under_load("a", "b")
    finally:
        cluster.stop()
    (tmp_path / "other").mkdir()
    other = EmbeddedCluster(tmp_path / "other")  # of another place: nothing is left of the first
    try:
        other.start("x")
        beside = ["--set", f"cluster.nodes={other.places['x']}", "--set", "cluster.node=x"]
        found = site.restored(tmp_path / "other" / "x", *beside)
        print(f"lost={killed_ms - found['cut_ms']} ms")
        assert killed_ms - found["cut_ms"] < LOST_MS_MAX
        with Client(other.url) as client:
            names = {"singles", "left", "right", "first", "second"}
            until(lambda: {one.name for one in client.topics()} >= names, "all topics are there")
        check(other.url, load, found["cut_ms"])
    finally:
        other.stop()


SHORT = [
    ("redis", "journal"),
    ("mariadb", "journal"),
    # Where Maven's repository cannot be reached there is no Cassandra, which keeps no facts.
    pytest.param("cassandra", "etcd", marks=pytest.mark.may_skip),
    ("bucket", "journal"),
]
"""Where journals are, and facts."""


@pytest.fixture
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A server's URL."""
    if request.param == "bucket":
        yield f"bucket://{tmp_path}/bucket?between_ms=20"
    else:
        yield from server_url(request.param, tmp_path / "server")


@pytest.mark.parametrize(("journal", "facts"), SHORT, indirect=["journal"])
def test_journals_on_other_servers_are_lost(
    tmp_path: Path, journal: str, facts: str, request: pytest.FixtureRequest
) -> None:
    coordinator = "journal" if facts == "journal" else request.getfixturevalue(facts).url
    cluster = {"cluster__coordinator": coordinator, "cluster__lease_ms": 3_000}
    with brokers_at(tmp_path, journal, "ab", **cluster, **settings_of(tmp_path)) as brokers:
        with ThreadPoolExecutor() as pool:
            list(pool.map(BrokerProcess.start, brokers))
        site = Site(tmp_path, dict(zip("ab", brokers, strict=True)))
        site.filled()
        load, _, killed_ms = site.under_load("a", starts_again=False)
    manifest = check_restored(site, tmp_path / "new", load, killed_ms)
    assert Archive.open(site.where).chain_damage(manifest)[0] == []
