"""How long a backup, one more after one percent of change, and a restore take; and their sizes.

In this process, into directories. The broker is stopped and started before each backup, so that
there is a snapshot between two of them. See: questions/bytes.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

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

BATCH_ROWS = 10_000
PAYLOAD_BYTES = 100
FAR_MS = 3_600_000
RATE, SECONDS, BYTES = "messages/s", "s", "bytes"


def backup_rows(question: str, plan: Plan, report: Callable[[str], None]) -> list[Row]:
    """Rows of a full backup, of an incremental one after one percent, and of a restore."""
    folder = new_folder(plan.folder, "backups")
    where = str(folder / "archive")
    found: dict[tuple[str, str], float] = {}
    with dejaqueue.open(folder / "data") as client:
        client.create_topic("t")
        ids = _send(client, plan.rows)
    for case in ("full", "incremental"):
        with dejaqueue.open(folder / "data") as client:
            client.counts("t")  # it is read before the clock starts
            began = time.perf_counter()
            taken = _backup(client, where)
            found[case, SECONDS] = time.perf_counter() - began
            found[case, BYTES] = taken["new_bytes"]
            if case == "full":
                _change(client, ids)
    archive = Archive.open(where)
    manifest = archive.newest()
    assert manifest is not None
    began = time.perf_counter()
    store = open_store(str(folder / "restored"))
    restored = Restore(archive, manifest, store).run(RestorePlan())
    store.close()
    with dejaqueue.open(folder / "restored") as client:
        assert client.counts("t")["scheduled"] == restored.messages
        found["restore", RATE] = restored.messages / (time.perf_counter() - began)
    rows = []
    for (case, unit), value in found.items():
        ratio = value / found["full", unit] if case == "incremental" else None
        name = f"backup_{case}" if case != "restore" else case
        report(f"{name}: {value:,.2f} {unit}")
        shown = f"{name}_{unit}" if unit != RATE else name
        rows.append(
            Row(
                question,
                "dejaq",
                shown,
                round(value, 3),
                unit,
                None if ratio is None else round(ratio, 4),
                None if ratio is None else "full",
            )
        )
    return rows


def _batches(count: int) -> Iterator[pa.RecordBatch]:
    chance = np.random.default_rng(count)
    due_ms = time.time_ns() // 1_000_000 + FAR_MS  # noqa: TID251 - far from now, whoever's now it is
    for start in range(0, count, BATCH_ROWS):
        rows = min(BATCH_ROWS, count - start)
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
