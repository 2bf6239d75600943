"""What tests of backups share: taking one, restoring it, and the state of a stopped broker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from dejaqueue import Client
from dejaqueue.backup.archive import Archive
from dejaqueue.backup.manifest import Manifest
from dejaqueue.broker.backup.restoring import Restore, RestorePlan, RestoreReport
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.shard import entries
from dejaqueue.connections.bucket import Bucket
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.snapshot import restore as engine_of
from dejaqueue.errors import Refused
from dejaqueue.journal.interface import Journal
from dejaqueue.journal.registry import open_store
from dejaqueue.local import LocalTransport
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.patience import PATIENCE_SECONDS, until


def settings_of(data: Path | str, **journal: Any) -> BrokerSettings:
    return BrokerSettings(journal=JournalSettings(url=str(data), **journal))


def started(data: Path | str, **journal: Any) -> Broker:
    broker = Broker(settings_of(data, **journal))
    broker.start()
    return broker


def client_of(broker: Broker) -> Client:
    """A client in this process; closing it does not stop the broker."""
    return Client(transport=LocalTransport(broker))


def taken(broker: Broker | Client, url: Path | str, *, full: bool = False) -> dict[str, Any]:
    """A backup, when it is done or has failed; behind one that the schedule takes."""
    client = client_of(broker) if isinstance(broker, Broker) else broker

    def is_begun() -> bool:
        try:
            client.backup(str(url), full=full)
        except Refused as refused:
            assert "is being taken already" in str(refused), refused
            return False
        return True

    until(is_begun, "no other backup is being taken")
    until(lambda: client.backup_progress()["state"] != "running", "the backup ends")
    return client.backup_progress()


def check_bucket(bucket: Bucket) -> None:
    """What every bucket has to do."""
    assert (bucket.get("pieces/a"), list(bucket.objects(""))) == (None, [])
    assert bucket.put_new("pieces/a", b"first")
    assert not bucket.put_new("pieces/a", b"second")
    assert bucket.put_new("pieces/b", memoryview(b"x" * 100_000))
    assert bucket.put_new("backups/c.json", b"")
    assert (bucket.get("pieces/a"), bucket.get("backups/c.json")) == (b"first", b"")
    ranges = [("pieces/a", 1, 3), ("pieces/a", 3, 9), ("pieces/z", 0, 9)]
    assert [bucket.get_range(*one) for one in ranges] == [b"irs", b"st", None]
    assert (bucket.has("pieces/a"), bucket.has("pieces"), bucket.has("pieces/z")) == (1, 0, 0)
    found = list(bucket.objects("pieces/"))
    assert [(one.name, one.byte_count) for one in found] == [("pieces/a", 5), ("pieces/b", 100_000)]
    assert all(one.stored_ms > 1_700_000_000_000 for one in found)
    assert [one.name for one in bucket.objects("")] == ["backups/c.json", "pieces/a", "pieces/b"]
    bucket.put("pieces/a", b"third")
    bucket.put("pieces/c", b"new")
    assert (bucket.get("pieces/a"), bucket.get("pieces/c")) == (b"third", b"new")
    bucket.delete(["pieces/a", "pieces/none", "pieces/c"])
    assert [one.name for one in bucket.objects("pieces/")] == ["pieces/b"]


def newest(url: Path | str) -> Manifest:
    manifest = Archive.open(str(url)).newest()
    assert manifest is not None
    return manifest


def reach_ms(url: Path | str) -> int:
    """As of when the newest backup, and what is archived behind it, can be restored; 0 = there is
    no backup."""
    archive = Archive.open(str(url), make=True)
    manifest = archive.newest()
    return 0 if manifest is None else archive.reach_ms(manifest)


def restored(url: Path | str, data: Path | str, plan: RestorePlan | None = None) -> RestoreReport:
    store = open_store(str(data))
    try:
        archive = Archive.open(str(url))
        return Restore(archive, newest(url), store).run(plan or RestorePlan())
    finally:
        store.close()


def state_of(journal: Journal) -> Engine:
    """The state of a journal that nobody appends to."""
    snapshot, engine, position = journal.latest_snapshot(), Engine(0), 0
    if snapshot is not None:
        engine = engine_of(snapshot.meta, journal.read_snapshot_file)
        position = snapshot.position
    for at, _, entry in journal.scan(position):
        engine.apply(entries.to_command(entry, at))
    return engine


def restored_by_command(where: str, data: Path, *more: str) -> dict[str, Any]:
    """What `dejaq restore` says that it restored, in a process of its own."""
    given = ["restore", where, "--data", str(data), "--json", *more]
    done = subprocess.run(
        [sys.executable, "-m", "dejaqueue", *given],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
