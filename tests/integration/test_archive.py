"""Covers: the archive between two backups: what was acknowledged is restored, to the end and to
any instant; over restarts and kills, a store that is away, answers that are lost, in a directory
and in S3; encrypted.

Not covered: pieces and chains by themselves (tests/unit/backup), single steps of the archiver
(tests/unit/broker/backup/test_archiver.py).
"""

from __future__ import annotations

import base64
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue import Client
from dejaqueue.backup.archive import Archive
from dejaqueue.times import show_instant
from tests.backup_load import FAR, Load
from tests.backups import reach_ms
from tests.cli.conftest import invoke
from tests.crash.broker_process import BrokerProcess
from tests.object_store import S3Server, s3_server
from tests.patience import until


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    yield from s3_server()


def broker_of(tmp_path: Path, name: str, where: str, **environment: object) -> BrokerProcess:
    process = BrokerProcess(
        tmp_path / name,
        tmp_path / f"{name}.log",
        journal__segment_bytes=1 << 18,
        journal__snapshot_entries=300,
        **({"backup__url": where, "backup__archive_interval_ms": 50} if where else {}),
        **environment,
    )
    process.start()
    return process


def payloads(client: Client, topic: str) -> set[bytes]:
    return set(client.peek(topic, limit=1_000_000).column("payload").to_pylist())


def now_ms() -> int:
    return time.time_ns() // 1_000_000  # noqa: TID251 - the brokers' is the machine's


def archived(where: str) -> None:
    """Return when all that was acknowledged before this is archived."""
    began_ms = now_ms()
    until(lambda: bool(Archive.open(where, make=True).ids()), "the first backup")
    until(lambda: reach_ms(where) >= began_ms, "the archive has come so far")


@pytest.mark.parametrize("kind", ["directory", "s3"])
def test_what_is_acknowledged_is_restored__behind_the_backup(
    tmp_path: Path, s3: S3Server, kind: str
) -> None:
    where = str(tmp_path / "backups") if kind == "directory" else f"{s3.new_bucket()}/dejaq"
    broker = broker_of(tmp_path, "data", where, backup__interval_ms=86_400_000)
    with Client(broker.url) as client:
        client.create_topic("singles", partitions=3)
        for name in ("left", "right"):
            client.create_topic(name, partitions=2)
        until(lambda: bool(Archive.open(where, make=True).ids()), "the first backup")
        load = Load(broker.url)
        until(lambda: len(load.committed) > 40 and len(load.acked) > 40, "there is load")
        client.create_topic("late")
        client.send("late", b"1", delay=FAR)
        sent, pairs, at_ms = list(load.acknowledged), list(load.committed), now_ms()
        until(lambda: reach_ms(where) >= at_ms, "the archive has come so far")
        load.end()
    broker.kill()
    assert len(Archive.open(where).ids()) == 1
    verified = invoke("backup", "verify", where)
    assert verified.exit_code == 0, verified.output
    restored = invoke("restore", where, "--data", str(tmp_path / "new"))
    assert restored.exit_code == 0, restored.output
    again = broker_of(tmp_path, "new", "")
    with Client(again.url) as client:
        there = payloads(client, "singles")
        assert [one for one in sent if one not in there and one not in load.acked] == []
        assert payloads(client, "left") == payloads(client, "right"), "pairs are whole at once"
        assert {b"pair-%d" % number for number in pairs} <= payloads(client, "left")
        assert payloads(client, "late") == {b"1"}
    again.kill()


def test_a_broker_that_is_killed_again_and_again_loses_nothing_that_was_archived(
    tmp_path: Path,
) -> None:
    where, key = str(tmp_path / "backups"), tmp_path / "master.key"
    key.touch(mode=0o600)
    key.write_text(base64.b64encode(os.urandom(32)).decode())
    master = f"file:{key}"
    broker = broker_of(
        tmp_path, "data", where, backup__interval_ms=3_000, encryption__master_key=master
    )
    with Client(broker.url) as client:
        client.create_topic("a", partitions=4)
    archived(where)
    sent: list[tuple[int, bytes]] = []
    for life in range(4):
        try:
            with Client(broker.url, retry_ms_max=0) as client:
                for number in range(40 + 25 * life):
                    payload = b"a-marker-%d-%d" % (life, number)
                    client.send("a", payload, delay=FAR)
                    sent.append((now_ms(), payload))
        finally:
            broker.kill()
        if life < 3:
            broker.start()
    reach, last_ms = reach_ms(where), sent[-1][0]
    assert last_ms - reach < 5_000
    shutil.rmtree(tmp_path / "data")
    files = [one for one in (tmp_path / "backups").rglob("*") if one.is_file()]
    assert not any(b"a-marker-0-10" in one.read_bytes() for one in files)
    with_key = ("--set", f"encryption.master_key={master}")
    for name, to, until_ms in (
        ("whole", (), reach),
        ("earlier", ("--to", show_instant(sent[-30][0])), sent[-30][0]),
    ):
        if until_ms > reach:
            continue
        target = str(tmp_path / name)
        restored = invoke("restore", where, "--data", target, *with_key, *to)
        assert restored.exit_code == 0, restored.output
        again = broker_of(tmp_path, name, "", encryption__master_key=master)
        with Client(again.url) as client:
            there = payloads(client, "a")
        again.kill()
        lost = [payload for at_ms, payload in sent if at_ms <= until_ms and payload not in there]
        assert lost == [], name
    listed = invoke("backup", "list", where)
    assert show_instant(reach) in listed.stdout
    assert invoke("backup", "verify", where).exit_code == 0


def test_a_bucket_that_is_away_is_caught_up_with(tmp_path: Path) -> None:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    s3 = S3Server(f"http://{host}:{port}")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        where = f"{s3.new_bucket()}/dejaq"
        broker = broker_of(tmp_path, "data", where, backup__interval_ms=86_400_000)
        with Client(broker.url) as client:
            client.create_topic("a")
            client.send("a", b"before", delay=FAR)
            archived(where)
            server.stop()
            sent = [b"%d" % number for number in range(50)]
            for payload in sent:
                client.send("a", payload, delay=FAR)
            until(lambda: "is tried again" in broker.log_text(), "it is said")
            # What a server of this process has is there, whichever one it is.
            server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
            server.start()
            archived(where)
        broker.kill()
        restored = invoke("restore", where, "--data", str(tmp_path / "new"))
        assert restored.exit_code == 0, restored.output
        again = broker_of(tmp_path, "new", "")
        with Client(again.url) as client:
            assert payloads(client, "a") == {b"before", *sent}
        again.kill()
        server.stop()
