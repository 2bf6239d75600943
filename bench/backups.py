"""How long a backup, one more after one percent of change, and a restore take; and their sizes.

In this process, into a directory; and a full one into the Versity gateway, which speaks S3, from
where it is restored, too. Of ten million messages at least: what a backup takes whatever its size
is would be most of a small one. The broker is stopped and started before each backup, so that there
is a snapshot between two of them. See: questions/bytes.py.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import dejaqueue
from bench.results import Row
from bench.systems.servers import new_folder
from bench.systems.system import Plan
from dejaqueue import Client
from dejaqueue.backup.archive import Archive
from dejaqueue.broker.backup.restoring import Restore, RestorePlan
from dejaqueue.journal.registry import open_store
from dev.services import missing, start
from dev.services.versitygw import Versitygw

ROWS_MIN = 10_000_000
BATCH_ROWS = 10_000
PAYLOAD_BYTES = 100
FAR_MS = 3_600_000
RATE, SECONDS, BYTES = "messages/s", "s", "bytes"
Report = Callable[[str], None]


def backup_rows(question: str, plan: Plan, report: Report) -> tuple[list[Row], list[str]]:
    """Rows of a full backup, of an incremental one after one percent, and of restores; what was
    left out."""
    folder = new_folder(plan.folder, "backups")
    where = str(folder / "archive")
    found: dict[tuple[str, str], float] = {}
    with dejaqueue.open(folder / "data") as client:
        client.create_topic("t")
        ids = _send(client, plan.rows if plan.quick else max(plan.rows, ROWS_MIN))
    for case in ("full", "incremental"):
        with dejaqueue.open(folder / "data") as client:
            seconds, byte_count = _timed_backup(client, where)
            found[f"backup_{case}", SECONDS], found[f"backup_{case}", BYTES] = seconds, byte_count
            if case == "full":
                _change(client, ids)
    found["restore", RATE] = _restored(where, folder / "restored")
    lacking = missing("versitygw")
    if lacking is None:
        with start("versitygw") as store:
            assert isinstance(store, Versitygw)
            with mock.patch.dict(os.environ, store.environment):
                url = f"{store.new_bucket('backups')}/archive"
                with dejaqueue.open(folder / "data") as client:
                    found["backup_full_s3", SECONDS], _ = _timed_backup(client, url)
                found["restore_s3", RATE] = _restored(url, folder / "restored")
    shutil.rmtree(folder)
    rows = []
    for (case, unit), value in found.items():
        report(f"{case}: {value:,.2f} {unit}")
        ratio = None
        if case == "backup_incremental":
            ratio = round(value / found["backup_full", unit], 4)
        shown = case if unit == RATE else f"{case}_{unit}"
        to = None if ratio is None else "full"
        rows.append(Row(question, "dejaq", shown, round(value, 3), unit, ratio, to))
    return rows, [] if lacking is None else [f"a backup in S3: {lacking} is not installed"]


def _timed_backup(client: Client, where: str) -> tuple[float, int]:
    """How long a backup takes, s, and how many bytes are new in it."""
    client.counts("t")  # it is read before the clock starts
    began = time.perf_counter()
    taken = _backup(client, where)
    return time.perf_counter() - began, taken["new_bytes"]


def _restored(where: str, folder: Path) -> float:
    """Messages a second that are restored from there, until a broker serves them."""
    began = time.perf_counter()
    archive = Archive.open(where)
    manifest = archive.newest()
    assert manifest is not None
    store = open_store(str(folder))
    restored = Restore(archive, manifest, store).run(RestorePlan())
    store.close()
    with dejaqueue.open(folder) as client:
        assert client.counts("t")["scheduled"] == restored.messages
        seconds = time.perf_counter() - began
    shutil.rmtree(folder)
    return restored.messages / seconds


def _batches(count: int) -> Iterator[pa.RecordBatch]:
    chance = np.random.default_rng(count)
    due_ms = time.time_ns() // 1_000_000 + FAR_MS  # noqa: TID251 - far from now, whoever's now it is
    for first in range(0, count, BATCH_ROWS):
        rows = min(BATCH_ROWS, count - first)
        content = pa.py_buffer(chance.bytes(rows * PAYLOAD_BYTES))
        offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * PAYLOAD_BYTES)
        payloads = pa.Array.from_buffers(pa.binary(), rows, [None, offsets, content])
        dues = pa.array(np.full(rows, due_ms), pa.int64()).cast(pa.timestamp("ms", "UTC"))
        yield pa.record_batch({"payload": payloads, "due": dues})


def _send(client: Client, count: int) -> npt.NDArray[np.int64]:
    """Send so many; their ids."""
    answers = [client.send_batch("t", batch) for batch in _batches(count)]
    return np.concatenate([answer.ids for answer in answers])


def _change(client: Client, ids: npt.NDArray[np.int64]) -> None:
    """Change one percent: a half is new, of the oldest a quarter is cancelled, a quarter moved."""
    _send(client, max(1, len(ids) // 200))
    each = max(1, len(ids) // 400)
    client.cancel("t", ids=ids[:each])
    client.move("t", ids=ids[each : 2 * each], delay=FAR_MS / 500)


def _backup(client: Client, where: str) -> dict[str, int]:
    client._action("backup", {"url": where})
    while True:
        found = client._action("backup_progress", {})
        if found["state"] == "done":
            return found
        assert found["state"] == "running", found
        time.sleep(0.005)
