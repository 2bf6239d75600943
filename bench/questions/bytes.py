"""What do encryption at rest, backups, restores and large payloads cost?

The same broker and the same load, plain and encrypted in turns: `enqueue_…` is one producer with
batches of 1,000, 100 random bytes each; `lease_ack_…` one consumer that leases and acks 1,000 at a
time until all is gone; `single_…` are 64 threads that each send one message and wait. `…_us` is
the broker's own processor time for a message, which other programs on the machine hardly change:
there a ratio below 1 is a cost, as it is for the rates.

`backup_full_…` is the first backup of ten million messages to a directory, `backup_incremental_…`
the next one after one percent was changed (a half is new, the oldest are cancelled or moved) and a
snapshot was taken, with its ratio to the full one; `restore` writes that into a new directory and
starts a broker there, until it serves. `…_s3` are a full one in S3, and a restore from there.

`enqueue_archived` has its ratio to no archive, and `archive_behind_…` is how long a batch of
100,000 messages a second is acknowledged before it is archived. `payload_…` are payloads of a MiB,
in the journal and in a payload store, with their ratio to that store alone.
`streamed_…` is one payload of a GiB that is streamed, with its ratio to the store's own client
(`own`), and the memory that client and broker take more for it.
`promotion` is until a standby has taken the place of a broker that was killed, `bucket_…` a broker
whose journal is in a bucket where each PUT takes 100 ms more.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable

from bench.archiving import archive_rows
from bench.backups import backup_rows
from bench.bucket_journal import bucket_rows
from bench.load import past_load
from bench.payloads import payload_rows
from bench.percentiles import spread
from bench.promotion import promotion_rows
from bench.results import Outcome, Row
from bench.streamed_payloads import streamed_rows
from bench.systems.dejaq import DejaqSystem
from bench.systems.servers import new_folder
from bench.systems.system import Plan

QUESTION = "bytes"
RATE, TIME = "messages/s", "µs/message"
CASES = ("enqueue", "lease_ack", "single")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

Report = Callable[[str], None]
Figures = dict[tuple[str, str, str], list[float]]
"""By case, unit, and plain or encrypted."""


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    outcome = Outcome()
    figures: Figures = {}
    key = new_folder(plan.folder, "keys") / "master.key"
    key.touch(mode=0o600)
    key.write_text(base64.b64encode(os.urandom(32)).decode())
    ways = {"plain": (), "encrypted": (f"encryption.master_key=file:{key}",)}
    for number in range(1, plan.rounds + 1):
        for way in list(ways)[:: 1 if number % 2 else -1]:
            _turn(way, DejaqSystem(settings=ways[way]), plan, number, figures, report)
    medians = {which: spread(found)["median"] for which, found in figures.items()}
    outcome.spreads = {_key(*which): spread(found) for which, found in figures.items()}
    outcome.rows = rows_of(medians)
    outcome.rows += archive_rows(QUESTION, plan, report)
    outcome.rows += payload_rows(QUESTION, plan, report)
    outcome.rows += promotion_rows(QUESTION, plan, report)
    for rows in (backup_rows, streamed_rows, bucket_rows):
        found, left_out = rows(QUESTION, plan, report)
        outcome.rows += found
        outcome.left_out += left_out
    return outcome


def rows_of(medians: dict[tuple[str, str, str], float]) -> list[Row]:
    """Rows of medians by (case, unit, way), encrypted ones with their ratio to plain."""
    rows = []
    for (case, unit, way), value in medians.items():
        plain = medians.get((case, unit, "plain")) if way != "plain" else None
        ratio = None
        if plain:
            ratio = round(value / plain if unit == RATE else plain / value, 3)
        shown = _key(case, unit, way).removeprefix("dejaq/")
        rows.append(Row(QUESTION, "dejaq", shown, round(value, 2), unit, ratio, _to(ratio)))
    return sorted(rows, key=lambda row: row.case)


def _to(ratio: float | None) -> str | None:
    return None if ratio is None else "plain"


def _key(case: str, unit: str, way: str) -> str:
    return f"dejaq/{case}_{way}{'_us' if unit == TIME else ''}"


def processor_seconds(pid: int) -> float:
    """What a process has used so far, its own code and the system's for it."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def _turn(
    way: str, system: DejaqSystem, plan: Plan, number: int, figures: Figures, report: Report
) -> None:
    system.start(plan.folder)
    try:
        for rows, counted in ((min(plan.rows, 20_000), False), (plan.rows, True)):
            topic = system.new_topic()
            load = past_load(rows, system.clock.now_ms(), number)
            sent = 0
            for case in CASES:
                before = processor_seconds(system.pid())
                if case == "enqueue":
                    measured = system.fill(topic, load, plan.seconds)
                    sent = measured.rows
                elif case == "lease_ack":
                    measured = system.drain(topic, sent, plan.seconds)
                else:
                    measured = system.single(plan, number)
                used = processor_seconds(system.pid()) - before
                if not counted:
                    continue
                each_us = used * 1e6 / max(measured.rows, 1)
                for unit, value in ((RATE, measured.per_second), (TIME, each_us)):
                    figures.setdefault((case, unit, way), []).append(value)
                    report(f"round {number}: {way} {case}: {value:,.2f} {unit}")
    finally:
        system.stop()
