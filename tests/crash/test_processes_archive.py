"""Several processes archive as they go; some are killed, in the end the directory is lost: what was
acknowledged by the instant that is restored is there, and nothing twice.

Covered: SIGKILL of one process after the other under load, also of the one that takes cuts, a new
start of all, backups in between, a graceful stop, an instant of before, encryption; transactions
over topics of both processes.
Not covered: single steps (tests/unit/broker/backup/test_strand_archiver.py).
"""

from __future__ import annotations

import base64
import os
import random
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dejaqueue import Client
from dejaqueue.backup.archive import Archive
from dejaqueue.times import show_instant
from tests.backups import reach_ms, restored_by_command
from tests.crash.broker_process import BrokerProcess
from tests.crash.test_processes_kill import children_of, is_gone
from tests.crash.timed_load import Load, now_ms, payloads_of
from tests.patience import until

INTERVAL_MS = 50
MUCH = 20
LOST_MS_MAX = 30_000
"""On a machine that is busy with other tests; three intervals where it is not."""

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]


class Site:
    """A broker of two processes, its archive, and where that is restored."""

    def __init__(self, root: Path, *, interval_ms: int, is_encrypted: bool) -> None:
        self.root, self.where = root, str(root / "backups")
        self.keys: dict[str, object] = {}
        if is_encrypted:
            key = root / "master.key"
            key.touch(mode=0o600)
            key.write_text(base64.b64encode(os.urandom(32)).decode())
            self.keys = {"encryption__master_key": f"file:{key}"}
        self.broker = BrokerProcess(
            root / "data",
            root / "broker.log",
            server__processes=2,
            journal__segment_bytes=1 << 18,
            journal__snapshot_entries=200,
            backup__url=self.where,
            backup__archive_interval_ms=INTERVAL_MS,
            backup__interval_ms=interval_ms,
            **self.keys,
        )
        self.broker.start()

    def archived(self) -> None:
        """Return when all that was acknowledged before this is archived."""
        began_ms = now_ms()
        with Client(self.broker.url) as client:
            client.send("singles", b"mark-%d" % random.getrandbits(60), delay=3_600)
        until(lambda: reach_ms(self.where) >= began_ms, "the archive has come so far")

    def restored(self, *more: str) -> dict[str, Any]:
        """What the command says."""
        shutil.rmtree(self.root / "new", ignore_errors=True)
        keys = [f"{name.replace('__', '.')}={value}" for name, value in self.keys.items()]
        given = [word for one in keys for word in ("--set", one)]
        return restored_by_command(self.where, self.root / "new", *more, *given)

    def check(self, load: Load, until_ms: int, **settings: object) -> None:
        """Compare what is restored with what was acknowledged by then."""
        broker = BrokerProcess(self.root / "new", self.root / "new.log", **self.keys, **settings)
        broker.start()
        try:
            check(broker.url, load, until_ms)
        finally:
            broker.kill()


def check(url: str, load: Load, until_ms: int) -> None:
    """Compare what a broker has with what was acknowledged by then."""
    with Client(url) as client:
        there = payloads_of(client, "singles")
        pairs, others = payloads_of(client, "left"), payloads_of(client, "right")
    assert pairs == others, "a transaction in part"
    assert len(there) == len(set(there)), "twice"
    assert len(pairs) == len(set(pairs)), "a transaction twice"
    wanted = {one for at_ms, one in load.sent if at_ms < until_ms} - load.tried_acks
    assert not wanted - set(there), f"{len(wanted - set(there))} of {len(wanted)} are lost"
    back = {one for at_ms, one in load.acked if at_ms < until_ms} & set(there)
    assert not back, f"{len(back)} that were acked are back"
    committed = {one for at_ms, one in load.committed if at_ms < until_ms}
    assert not committed - set(pairs), "transactions are lost"
    print(f"sent={len(wanted)} acked={len(load.acked)} committed={len(committed)}")
    assert len(wanted) > MUCH


def has_much(load: Load) -> bool:
    """Whether more than MUCH was sent that nobody tried to ack."""
    return len(load.sent) - len(load.tried_acks) > 2 * MUCH


@pytest.fixture(params=[(86_400_000, False), (1_500, True)], ids=["alone", "backups-encrypted"])
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    interval_ms, is_encrypted = request.param
    site = Site(tmp_path, interval_ms=interval_ms, is_encrypted=is_encrypted)
    with Client(site.broker.url) as client:
        client.create_topic("singles", partitions=4, spread=2)
        client.create_topic("left", partitions=2)
        client.create_topic("right", partitions=2, spread=2)
    until(lambda: Archive.open(site.where, make=True).ids(), "the first backup")
    yield site
    site.broker.kill()


def test_nothing_acknowledged_is_lost__processes_are_killed_under_load(site: Site) -> None:
    broker = site.broker
    load = Load(broker.url)
    try:
        threading.Event().wait(1.5)
        until(lambda: has_much(load), "much is sent")
        for victim in children_of(broker.pid):  # one of them takes cuts
            os.kill(victim, signal.SIGKILL)
            until(lambda victim=victim: is_gone(victim))  # type: ignore[misc]
            until(lambda: len(children_of(broker.pid)) == 2, "another one is started")
            site.archived()
            threading.Event().wait(1.0)
        middle_ms = now_ms() - 500
        children = children_of(broker.pid)
        broker.kill()
        until(lambda: all(is_gone(child) for child in children), "children end with their parent")
        broker.start()
        site.archived()
        threading.Event().wait(0.7)
        killed_ms = now_ms()
        for child in children_of(broker.pid):
            os.kill(child, signal.SIGKILL)
        broker.kill()
    finally:
        load.end()
    shutil.rmtree(site.root / "data")
    found = site.restored()
    lost_ms = killed_ms - found["cut_ms"]
    print(f"lost={lost_ms} ms")
    assert lost_ms < LOST_MS_MAX
    site.check(load, found["cut_ms"])
    manifest = Archive.open(site.where).newest()
    assert manifest is not None
    assert manifest.in_strands
    assert Archive.open(site.where).chain_damage(manifest)[0] == []
    if middle_ms > manifest.cut_ms:
        assert site.restored("--to", show_instant(middle_ms))["cut_ms"] == middle_ms
        site.check(load, middle_ms)


def test_a_graceful_stop_loses_nothing_with_the_directory(site: Site) -> None:
    load = Load(site.broker.url)
    threading.Event().wait(1.5)
    until(lambda: has_much(load), "much is sent")
    load.end()
    ended_ms = now_ms()
    assert site.broker.stop() == 0
    shutil.rmtree(site.root / "data")
    # All of it: where nothing was new since the cut before, no other one is taken at the end.
    site.restored()
    site.check(load, ended_ms + 1)
    site.restored("--set", "server.processes=3")  # not as many as it was of
    site.check(load, ended_ms + 1, server__processes=3)
