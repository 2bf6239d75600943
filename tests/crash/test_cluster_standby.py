"""Three brokers archive as they go, and a standby follows; two are killed under load and started
again; in the end two are killed and one stands still, the standby is promoted, and none of the
three comes back: what was acknowledged by the instant of the promotion is there, and nothing twice.

Covered: journals in PostgreSQL with facts in etcd, both killed with the brokers; the standby
killed while it follows; one broker that was paused; transactions over topics of several brokers,
messages that are passed on, topics with a spread; how long the promotion takes. And processes of
one machine, of which one is killed, that are encrypted, back up as they go, and run when their
standby is promoted.
Not covered: brokers of one process (tests/cluster/test_standby.py), the standby of one broker
(test_standby_kill.py).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue import Client
from dejaqueue.backup.archive import Archive
from dejaqueue.errors import DejaQError, NotActive
from dev.services import Service
from tests.backups import reach_ms
from tests.cluster.served import three_brokers
from tests.crash.broker_process import BrokerProcess
from tests.crash.test_cluster_archive import (
    MUCH,
    PassingLoad,
    Site,
    check,
    has_much,
    settings_of,
)
from tests.crash.test_processes_archive import Site as Processes
from tests.crash.test_processes_archive import check as check_processes
from tests.crash.test_processes_archive import has_much as has_sent
from tests.crash.test_processes_kill import children_of, is_gone
from tests.crash.test_standby_kill import starts_not
from tests.crash.timed_load import FAR, Load, now_ms, payloads_of
from tests.patience import until
from tests.server_fixtures import served

TOOK_MS_MAX = 60_000
"""On a machine that is busy with other tests; alone it is a fraction of a second."""

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Service]:
    yield from served("postgresql")


@pytest.fixture(scope="module")
def etcd() -> Iterator[Service]:
    yield from served("etcd")


def standby_of(site: Site | Processes, **settings: object) -> BrokerProcess:
    broker = BrokerProcess(
        site.root / "standby",
        site.root / "standby.log",
        standby__url=site.where,
        standby__poll_ms=20,
        **settings,
    )
    broker.start()
    return broker


def followed(standby: BrokerProcess, site: Site | Processes) -> None:
    """Return when the standby has all that was acknowledged before this."""
    site.archived()
    as_of_ms = reach_ms(site.where)

    def has_followed() -> bool:
        with Client(standby.url) as client:
            return int(client.standby().get("as_of_ms", 0)) >= as_of_ms

    until(has_followed, "it has followed")


def is_refused(broker: BrokerProcess, topic: str) -> bool:
    """Whether a broker says that it was replaced; it takes what is sent until it knows."""
    try:
        with Client(broker.url, retry_ms_max=0) as client:
            client.send(topic, b"to the old one", delay=FAR)
    except NotActive as refusal:
        return "was replaced" in str(refusal)
    except DejaQError:  # a machine with other work: it is awake, and no more yet
        return False
    return False


def under_load(site: Site, standby: BrokerProcess) -> tuple[PassingLoad, int]:
    """Two brokers and the standby killed, one after the other, and started again; in the end two
    are killed and one is paused. What was done, and when that was."""
    load = PassingLoad(site.url)
    try:
        until(lambda: has_much(load), "much is sent")
        followed(standby, site)
        for name in sorted(site.brokers)[:2]:
            site.brokers[name].kill()
            followed(standby, site)  # others have taken over
            site.brokers[name].start()
            sent = len(load.entered)
            until(lambda sent=sent: len(load.entered) > sent + MUCH, "load goes on")  # type: ignore[misc]
        standby.kill()
        site.archived()
        standby.start()
        followed(standby, site)
        with Client(standby.url) as client:  # it is read while it follows
            assert payloads_of(client, "left")
        sent = len(load.entered)
        until(lambda: len(load.entered) > sent + MUCH, "load goes on")
        killed_ms = now_ms()
        for name in sorted(site.brokers)[:2]:
            site.brokers[name].kill()
        os.kill(site.brokers["c"].pid, signal.SIGSTOP)
    finally:
        load.end()
    return load, killed_ms


def test_a_cluster_is_replaced_by_its_standby__and_does_not_come_back(
    tmp_path: Path, postgresql: Service, etcd: Service
) -> None:
    with three_brokers(tmp_path, postgresql, etcd, 3_000, **settings_of(tmp_path)) as brokers:
        site = Site(tmp_path, dict(zip("abc", brokers, strict=True)))
        site.filled()
        standby = standby_of(site)
        paused = site.brokers["c"]
        try:
            load, killed_ms = under_load(site, standby)
            for server in (postgresql, etcd):  # as the whole site is gone
                server.kill()
            with Client(standby.url) as client:
                done = client.promote()
            print(f"lost={killed_ms - done['as_of_ms']} ms, took={done['took_ms']} ms")
            assert done["took_ms"] < TOOK_MS_MAX
            check(standby.url, load, done["as_of_ms"])
            for server in (postgresql, etcd):
                server.start()
            os.kill(paused.pid, signal.SIGCONT)
            until(lambda: is_refused(paused, "singles"), "it meets the fence")
            assert "this broker was replaced" in paused.log_text()
            for broker in brokers[:2]:
                refusal = starts_not(broker)
                assert "this broker was replaced: standby" in refusal
                assert standby.url in refusal
            with Client(standby.url) as client:
                client.send("singles", b"later", delay=FAR)
            standby.kill()
            standby.start()  # the same command as before
            with Client(standby.url) as client:
                there = payloads_of(client, "singles")
            assert b"later" in there
            assert b"to the old one" not in there
        finally:
            if paused.is_up:
                os.kill(paused.pid, signal.SIGCONT)
            standby.kill()


def test_processes_are_replaced_by_a_standby_while_they_run(tmp_path: Path) -> None:
    site = Processes(tmp_path, interval_ms=1_500, is_encrypted=True)
    standby: BrokerProcess | None = None
    try:
        with Client(site.broker.url) as client:
            client.create_topic("singles", partitions=4, spread=2)
            client.create_topic("left", partitions=2)
            client.create_topic("right", partitions=2, spread=2)
        until(lambda: Archive.open(site.where, make=True).ids(), "the first backup")
        standby = standby_of(site, **site.keys)
        load = Load(site.broker.url)
        try:
            until(lambda: has_sent(load), "much is sent")
            followed(standby, site)
            victim = children_of(site.broker.pid)[0]
            os.kill(victim, signal.SIGKILL)
            until(lambda: is_gone(victim), "it is dead")
            until(lambda: len(children_of(site.broker.pid)) == 2, "another one is started")
            followed(standby, site)
            with Client(standby.url) as client:
                done = client.promote()
        finally:
            load.end()
        print(f"took={done['took_ms']} ms")
        check_processes(standby.url, load, done["as_of_ms"])
        for topic in ("singles", "left", "right"):
            until(lambda topic=topic: is_refused(site.broker, topic), "it meets the fence")  # type: ignore[misc]
        with Client(standby.url) as client:
            client.send("singles", b"later", delay=FAR)
            assert b"to the old one" not in payloads_of(client, "singles")
        # A process that ends is refused when it is started again, and then all end.
        process, children = site.broker.pid, children_of(site.broker.pid)
        os.kill(children[0], signal.SIGKILL)
        until(lambda: all(is_gone(one) for one in (process, *children)), "all have ended")
        assert site.broker.stop() == NotActive.exit_code
        assert "another broker is the active one" in site.broker.log_text()
        with pytest.raises(AssertionError, match="this broker was replaced: standby"):
            site.broker.start()
    finally:
        site.broker.kill()
        if standby is not None:
            standby.kill()
