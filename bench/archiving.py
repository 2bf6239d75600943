"""What the archive between two backups costs, and how far it is behind.

The same broker and the same producer, with batches of 1,000, without and with
`backup.archive_interval_ms` = 100 into a directory, in turns. Then 100,000 messages a second for a
while: of each batch, how long it was acknowledged before the archive had it: what would have been
lost with the disk. That is read from the pieces, when they were stored and as of when they are.
See: questions/bytes.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.load import BATCH_ROWS, far_load
from bench.machine import cpu_seconds
from bench.percentiles import spread
from bench.results import Row
from bench.systems.dejaq import DejaqSystem, record_batch
from bench.systems.servers import new_folder
from bench.systems.system import Plan, batches
from dejaqueue.backup.archive import Archive
from dejaqueue.backup.log_chain import LogChain

INTERVAL_MS = 100
PER_SECOND = 100_000
RATE, TIME = "messages/s", "µs/message"
Report = Callable[[str], None]


def archive_rows(question: str, plan: Plan, report: Report) -> list[Row]:
    """Rows of enqueueing with and without an archive, and of how far that is behind."""
    figures: dict[tuple[str, str], list[float]] = {}
    behind_ms: list[float] = []
    for number in range(1, plan.rounds + 1):
        for way in ("plain", "archived")[:: 1 if number % 2 else -1]:
            where = new_folder(plan.folder, f"archive-{number}") if way == "archived" else None
            system = DejaqSystem(settings=_settings(where))
            system.start(plan.folder)
            try:
                for rows, counted in ((min(plan.rows, 20_000), False), (plan.rows, True)):
                    load = far_load(rows, system.clock.now_ms(), number)
                    topic = system.new_topic()
                    if where is not None:
                        _wait_for_backup(where)
                    before = cpu_seconds(system.pid())
                    measured = system.fill(topic, load, plan.seconds)
                    used = cpu_seconds(system.pid()) - before
                    if counted:
                        found = {RATE: measured.per_second, TIME: used * 1e6 / measured.rows}
                        for unit, value in found.items():
                            figures.setdefault((way, unit), []).append(value)
                            report(f"round {number}: enqueue {way}: {value:,.2f} {unit}")
                if where is not None:
                    behind_ms += _behind(system, where, plan)
            finally:
                system.stop()
    return _rows(question, figures, behind_ms, report)


def _settings(where: Path | None) -> tuple[str, ...]:
    if where is None:
        return ()
    return (
        f"backup.url={where}",
        "backup.interval_ms=86400000",
        f"backup.archive_interval_ms={INTERVAL_MS}",
    )


def _wait_for_backup(where: Path) -> None:
    while not Archive.open(str(where), make=True).ids():
        time.sleep(0.05)


def _behind(system: DejaqSystem, where: Path, plan: Plan) -> list[float]:
    """Of each batch at this rate, how long it was acknowledged and not in the archive, ms."""
    load = far_load(round(PER_SECOND * plan.seconds), system.clock.now_ms(), 0)
    topic, answered_ms = system.new_topic(), []
    begin = time.perf_counter()
    for place, part in enumerate(batches(load)):
        left = begin + place * BATCH_ROWS / PER_SECOND - time.perf_counter()
        if left > 0:
            time.sleep(left)
        system.client.send_batch(topic, record_batch(load, part))
        answered_ms.append(time.time_ns() / 1e6)  # noqa: TID251 - compared with times of files
    archive = Archive.open(str(where))
    newest = archive.newest()
    while newest is None or archive.reach_ms(newest) < answered_ms[-1]:
        # A piece is as of when its last message was durable, which is before that was answered;
        # while nothing follows, there is no later one.
        system.client.send(topic, b"", due=int(load.dues_ms[0]))
        time.sleep(0.05)
    chain = LogChain(archive.bucket, newest.chain)
    pieces = [
        (piece.at_ms, (where / chain.path(piece.number)).stat().st_mtime_ns / 1e6)
        for piece in chain.pieces(chain.numbers())
        if piece.at_ms
    ]
    instants = np.array([at_ms for at_ms, _ in pieces])
    stored_ms = np.array([stored for _, stored in pieces])
    places = instants.searchsorted(answered_ms)
    behind_ms = np.maximum(stored_ms[places] - np.array(answered_ms), 0)
    return [float(one) for one in behind_ms]


def _rows(
    question: str,
    figures: dict[tuple[str, str], list[float]],
    behind_ms: list[float],
    report: Report,
) -> list[Row]:
    rows = []
    for unit, suffix in ((RATE, ""), (TIME, "_us")):
        plain, archived = (spread(figures[way, unit])["median"] for way in ("plain", "archived"))
        ratio = round(archived / plain if unit == RATE else plain / archived, 3)
        name = f"enqueue_archived{suffix}"
        rows.append(Row(question, "dejaq", name, round(archived, 2), unit, ratio, "plain"))
        report(f"{name}: {archived:,.2f} {unit}, {ratio} of plain")
    for name, value in (
        ("archive_behind_p99", float(np.percentile(behind_ms, 99))),
        ("archive_behind_max", max(behind_ms)),
    ):
        rows.append(Row(question, "dejaq", name, round(value, 1), "ms", None, None))
        report(f"{name}: {value:,.1f} ms")
    return rows
