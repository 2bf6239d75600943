"""Covers: backups of a real broker under load, in a directory and in S3: what was acknowledged
before is in them, transactions are whole, and a broker that is killed in one leaves those before.

Not covered: single parts (tests/unit/backup, tests/unit/broker/backup); other journals
(tests/unit/broker/backup/test_restoring.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue import Client, DejaQError
from dejaqueue.backup.archive import Archive
from tests.backup_load import FAR, Load
from tests.backups import newest, taken
from tests.cli.conftest import invoke
from tests.crash.broker_process import BrokerProcess
from tests.object_store import S3Server, s3_server
from tests.patience import until


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    yield from s3_server()


def broker_of(tmp_path: Path, name: str, **environment: object) -> BrokerProcess:
    process = BrokerProcess(
        tmp_path / name,
        tmp_path / f"{name}.log",
        journal__segment_bytes=1 << 18,
        journal__snapshot_entries=300,
        **environment,
    )
    process.start()
    return process


def payloads(client: Client, topic: str) -> set[bytes]:
    return set(client.peek(topic, limit=100_000).column("payload").to_pylist())


@pytest.mark.parametrize("kind", ["directory", "s3"])
def test_what_was_acknowledged_before_a_backup_under_load_is_in_it(
    tmp_path: Path, s3: S3Server, kind: str
) -> None:
    where = str(tmp_path / "backups") if kind == "directory" else f"{s3.new_bucket()}/dejaq"
    broker = broker_of(tmp_path, "data")
    with Client(broker.url) as client:
        client.create_topic("singles", partitions=3)
        for name in ("left", "right"):
            client.create_topic(name, partitions=2)
        load = Load(broker.url)
        until(lambda: len(load.committed) > 20 and len(load.acked) > 20, "there is load")
        taken(client, where)
        sent, acked, pairs = list(load.acknowledged), set(load.acked), list(load.committed)
        found = taken(client, where)
        load.end()
        assert found["state"] == "done", found
        assert found["pause_us"] < 5_000_000
    broker.kill()
    restored = invoke("restore", where, "--data", str(tmp_path / "new"))
    assert restored.exit_code == 0, restored.output
    again = broker_of(tmp_path, "new")
    with Client(again.url) as client:
        there = payloads(client, "singles")
        lost = [one for one in sent if one not in there and one not in load.acked]
        assert lost == []
        settled = acked & there
        assert len(settled) <= 20, "acks are answered in the background, up to the prefetch"
        # Both or none; what is decided is told to the other partition in a moment.
        until(lambda: payloads(client, "left") == payloads(client, "right"), "pairs are whole")
        assert {b"pair-%d" % number for number in pairs} <= payloads(client, "left")
    again.kill()


def test_a_broker_that_is_killed_in_a_backup_leaves_those_before(tmp_path: Path) -> None:
    where = str(tmp_path / "backups")
    broker = broker_of(tmp_path, "data")
    with Client(broker.url) as client:
        client.create_topic("a")
        client.send_batch("a", [{"payload": b"first", "delay": FAR}] * 10)
        assert taken(client, where)["state"] == "done"
        client.send_batch("a", [{"payload": b"x" * 100_000, "delay": FAR}] * 500)
        client._action("backup", {"url": where})
        pieces = Path(where) / "pieces"
        known = sum(1 for _ in pieces.rglob("*"))
        until(lambda: sum(1 for _ in pieces.rglob("*")) > known, "a piece is stored")
        broker.kill()
    assert invoke("backup", "verify", where).exit_code == 0
    counted = len(Archive.open(where).ids())
    broker.start()
    with Client(broker.url) as client:
        found = taken(client, where)
        assert (found["state"], found["topics"]) == ("done", 1)
    broker.kill()
    assert newest(where).id == found["id"]
    assert len(Archive.open(where).ids()) == counted + 1
    restored = invoke("restore", where, "--data", str(tmp_path / "new"), "--json")
    assert '"messages":510' in restored.stdout


def test_a_bucket_that_is_away_fails_a_backup__and_the_next_one_is_whole(
    tmp_path: Path, s3: S3Server
) -> None:
    where = f"{s3.new_bucket()}/dejaq"
    broker = broker_of(tmp_path, "data")
    with Client(broker.url) as client:
        client.create_topic("a")
        client.send("a", b"1", delay=FAR)
        found = taken(client, "s3://never-made/dejaq")
        assert found["state"] == "failed"
        assert "at s3://never-made/dejaq failed" in found["error"]
        assert taken(client, where)["state"] == "done"
        with pytest.raises(DejaQError):
            client._action("backup", {})
    broker.kill()
    assert invoke("backup", "verify", where).exit_code == 0
