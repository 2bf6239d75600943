"""Functions that are sent and run: how many a second, how late, and what is lost?

Two worker processes, each with 8 tasks at a time on threads, or 100 in an event loop; Celery also
with its own default, two forked processes. Everybody runs the same two functions (bench/workers/).

- `send`: calls a second of one program that sends one after the other.
- `noop_…`, `wait_…`: tasks a second that do nothing, or wait 10 ms. They are sent before, and what
  counts begins when both processes are at work.
- `eta_…`: lateness at the function of 10,000 tasks a second for a minute, each with its own time;
  of Celery's, 500 a second for 10 s (`eta_500_…`). All are sent before the first one is due: a
  sender that is still at work then takes the processors that the tasks need, and its own time is
  measured by `send`.
- `week_…`: a million tasks a week from now, 10,000 a second. Workers are restarted ten times while
  nothing is due; then the week is left out: one call moves everything to be due from now on, and
  they are restarted ten times more while they work.
- `killed_…`: a process of a worker, or all of it, is killed with SIGKILL again and again; a task
  that ran twice is explained by a kill of its process while it ran, or less than a second after.

`--rounds` and `--seconds` are of the rates alone: all else is as long as it says, except in a run
that only shows that everything works (`--quick`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.machine import memory_bytes
from bench.percentiles import percentile, spread
from bench.questions import workers_killed
from bench.results import Outcome, Row
from bench.systems.system import Plan
from bench.systems.workers import PROCESSES, Broker, Kind, Workers, available, peer_versions
from bench.workers import notes
from dejaqueue.clock import SystemClock

QUESTION = "workers"
ROUNDS_MAX = 3
SENDERS = 8
SENT_MAX, DEJAQ_SENT_MAX = 20_000, 100_000
SEND_SECONDS, SILENCE_SECONDS, START_SECONDS = 4.0, 5.0, 60.0
ETA_PER_SECOND, ETA_SECONDS, AHEAD_MS = 10_000, 60.0, 40_000
CELERY_ETA_PER_SECOND, CELERY_ETA_SECONDS, CELERY_AHEAD_MS = 500, 10.0, 20_000
QUICK_AHEAD_MS, QUICK_RESTARTS = 8_000, 4
WEEK_ROWS, WEEK_MS, WEEK_PER_SECOND, RESTARTS = 1_000_000, 7 * 86_400_000, 10_000, 20
PERCENTS = {"p50": 50.0, "p99": 99.0, "p99_9": 99.9, "max": 100.0}
RATE = "tasks/s"

Report = Callable[[str], None]
Notes = npt.NDArray[np.int64]
Found = dict[tuple[str, str], list[float]]
CLOCK = SystemClock()


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    kinds, left_out = available()
    found: Found = {}
    rounds = min(plan.rounds, ROUNDS_MAX)
    for number in range(1, rounds + 1):
        for kind in kinds:
            for case, value in _rates(kind, plan).items():
                _note(found, report, f"round {number}", kind.name, case, value)
    for kind in kinds:
        if kind.name in {"dejaq", "celery_dejaq", "celery_redis"}:
            for case, value in _etas(kind, plan).items():
                _note(found, report, "eta", kind.name, case, value)
    for case, value in _week(plan, kinds[0], report).items():
        _note(found, report, "week", "dejaq", case, value)
    for case, value in workers_killed.measure(plan, kinds[0]).items():
        _note(found, report, "killed", "dejaq", case, value)
    outcome = rows_of(found)
    outcome.left_out += left_out
    outcome.versions = {name: peer_versions()[name] for name in _packages(kinds)}
    return outcome


def _packages(kinds: list[Kind]) -> list[str]:
    return sorted({kind.package for kind in kinds} - {""})


def _note(found: Found, report: Report, when: str, system: str, case: str, value: float) -> None:
    found.setdefault((system, case), []).append(value)
    report(f"{when}: {system} {case}: {value:,.4g} {unit_of(case)}")


# --- tasks a second ---------------------------------------------------------------------------


def _rates(kind: Kind, plan: Plan) -> dict[str, float]:
    """What each pool runs a second, each on a new broker."""
    found: dict[str, float] = {}
    for pool in kind.pools:
        for task in ("noop", "wait"):
            broker = Broker(kind.broker, plan.folder)
            workers = Workers(kind, broker.url, plan.folder)
            try:
                name = f"{task}_async" if pool == "asyncio" else task
                total = 0
                if task == "noop" and pool == kind.pools[0]:
                    sent = workers.send(name, SENT_MAX, min(plan.seconds, SEND_SECONDS), 1)
                    found["send"] = sent["sent"] / sent["seconds"]
                    total = sent["sent"]
                most = DEJAQ_SENT_MAX if kind.name == "dejaq" else SENT_MAX
                if task == "wait":  # no more than 2 × 8, or 2 × 100, at a time can do meanwhile
                    most = min(most, int(plan.seconds * (20_000 if pool == "asyncio" else 1_600)))
                total += workers.send(name, min(most, plan.rows), SEND_SECONDS, SENDERS)["sent"]
                workers.start(pool)
                wait_until_silent(workers.notes, plan.seconds, total)
                found[f"{task}_{pool}"] = rate_of(notes.read(workers.notes))
            finally:
                workers.stop()
                broker.stop()
                workers.remove()
    return found


def wait_until_silent(path: Path, seconds_max: float, rows: int) -> None:
    """Return when so many were noted, nothing was for a while, or so long after the first note.

    Raises:
        AssertionError: nothing was noted at all.
    """
    start = time.monotonic()
    first, count, changed = 0.0, 0, start
    while True:
        now, found = time.monotonic(), notes.count(path)
        if found != count:
            first = first or now
            count, changed = found, now
        if not count and now - start > START_SECONDS:
            raise AssertionError(f"no task ran: {path}")
        if count and (now - changed > SILENCE_SECONDS or now - first > seconds_max + 5):
            return
        if count >= rows:
            return
        time.sleep(0.05)


def rate_of(noted: Notes) -> float:
    """Tasks a second from when all processes are at work until the last task.

    >>> rate_of(np.array([[0, 7, 0], [1, 8, 1_000_000], [2, 7, 1_500_000], [3, 8, 2_000_000]]))
    2.0
    """
    processes = np.unique(noted[:, 1])[:PROCESSES]
    begin = max(int(noted[noted[:, 1] == pid, 2].min()) for pid in processes)
    after = noted[noted[:, 2] > begin, 2]
    if len(after) == 0:
        raise AssertionError("one of the processes did nothing")
    return float(len(after) / ((int(after.max()) - begin) / 1e6))


# --- at their time -----------------------------------------------------------------------------


def _etas(kind: Kind, plan: Plan) -> dict[str, float]:
    """Lateness of tasks that are due evenly; none may be early, or run twice."""
    is_own = kind.name == "dejaq"
    found: dict[str, float] = {}
    for per_second in (
        (ETA_PER_SECOND, CELERY_ETA_PER_SECOND) if is_own else (CELERY_ETA_PER_SECOND,)
    ):
        full = per_second == ETA_PER_SECOND
        seconds = ETA_SECONDS if full else CELERY_ETA_SECONDS
        ahead_ms = AHEAD_MS if full else CELERY_AHEAD_MS
        if plan.quick:
            seconds, ahead_ms = plan.seconds, QUICK_AHEAD_MS
        pool = "asyncio" if is_own else "threads"
        prefix = "eta_" if full else f"eta_{per_second}_"
        rows = int(per_second * seconds)
        broker = Broker(kind.broker, plan.folder)
        workers = Workers(kind, broker.url, plan.folder)
        try:
            first_ms = CLOCK.now_ms() + ahead_ms
            due = {"first_ms": first_ms, "per_second": per_second}
            workers.start(pool)
            name = "noop_async" if pool == "asyncio" else "noop"
            workers.send(name, rows, ahead_ms / 1_000, SENDERS, **due)
            wait_until_run(workers.notes, rows, first_ms / 1_000 + seconds)
            noted = notes.read(workers.notes)
        finally:
            workers.stop()
            broker.stop()
            workers.remove()
        noted = notes.without_first_call(noted)
        dues_us = (first_ms + noted[:, 0] * 1_000 // per_second) * 1_000
        late_us = noted[:, 2] - dues_us
        found |= {f"{prefix}{n}": percentile(late_us, p) / 1_000 for n, p in PERCENTS.items()}
        found[f"{prefix}early"] = float(np.sum(late_us < 0))
        found[f"{prefix}twice"] = float(len(noted) - len(np.unique(noted[:, 0])))
        found[f"{prefix}lost"] = float(rows - len(np.unique(noted[:, 0])))
    return found


def wait_until_run(path: Path, rows: int, end_s: float) -> None:
    """Return when so many were noted, or nothing was for a while after this instant."""
    count, changed = 0, time.monotonic()
    while notes.count(path) < rows + 1:
        if notes.count(path) != count or CLOCK.now_us() / 1e6 < end_s:
            count, changed = notes.count(path), time.monotonic()
        if time.monotonic() - changed > SILENCE_SECONDS:
            break
        time.sleep(0.1)
    time.sleep(0.5)  # what would run twice


# --- a week ahead ------------------------------------------------------------------------------


def _week(plan: Plan, kind: Kind, report: Report) -> dict[str, float]:
    """A million tasks a week ahead, with workers that are restarted."""
    rows = min(WEEK_ROWS, plan.rows)
    restarts = QUICK_RESTARTS if plan.quick else RESTARTS
    broker = Broker("dejaq", plan.folder)
    workers = Workers(kind, broker.url, plan.folder)
    memories: list[float] = []
    try:
        first_ms = CLOCK.now_ms() + WEEK_MS
        due = {"first_ms": first_ms, "per_second": WEEK_PER_SECOND}
        workers.send("noop", rows, 600.0, SENDERS, **due)
        for _ in range(restarts // 2):
            workers.start("threads")
            wait_until_consuming(broker.client, PROCESSES)
            memories.append(memory_mb(workers))
            workers.stop()
        # The sender's first call is due at once; it need not have run by now.
        early = len(notes.without_first_call(notes.read(workers.notes)))
        moved = broker.client.move_where("tasks", by=-(first_ms - CLOCK.now_ms()) / 1_000)
        report(f"week: {moved:,} moved, {early} had run before their time")
        done = 1
        for restart in range(restarts - restarts // 2 + 1):
            workers.start("threads")
            is_last = restart == restarts - restarts // 2
            done = wait_for_some(
                workers.notes, rows + 1, None if is_last else done + rows // restarts
            )
            workers.stop()
        noted = notes.without_first_call(notes.read(workers.notes))
    finally:
        workers.stop()
        broker.stop()
        workers.remove()
    return {
        "week_lost": float(rows - len(np.unique(noted[:, 0]))),
        "week_twice": float(len(noted) - len(np.unique(noted[:, 0]))),
        "week_early": float(early),
        "week_memory_first": memories[0],
        "week_memory": memories[-1],
    }


def wait_until_consuming(client: Any, count: int) -> None:
    """Return when so many consumers take tasks."""
    end = time.monotonic() + START_SECONDS
    while len(client.stats("tasks").consumers) < count:
        if time.monotonic() > end:
            raise AssertionError("the workers do not consume")
        time.sleep(0.05)


def wait_for_some(path: Path, rows: int, wanted: int | None) -> int:
    """Return how many were noted: when so many were, all, or none for a while."""
    count, changed = notes.count(path), time.monotonic()
    while count < (rows if wanted is None else min(wanted, rows)):
        time.sleep(0.05)
        found = notes.count(path)
        if found != count:
            count, changed = found, time.monotonic()
        elif time.monotonic() - changed > 4 * SILENCE_SECONDS:
            break
    return count


def memory_mb(workers: Workers) -> float:
    """Memory of their own of the worker's processes, in MB."""
    return sum(memory_bytes(pid)["anonymous"] for pid in workers.children()) / 1e6


# --- rows --------------------------------------------------------------------------------------


def unit_of(case: str) -> str:
    """The unit of a case.

    >>> unit_of("eta_p99"), unit_of("killed_lost"), unit_of("noop_threads")
    ('ms', 'tasks', 'tasks/s')
    """
    if case.startswith(("noop", "wait", "send")):
        return RATE
    last = case.rpartition("_")[2]
    if "memory" in case:
        return "MB"
    return (
        "ms"
        if last in PERCENTS or case.endswith("p99_9")
        else "kills"
        if last == "kills"
        else "tasks"
    )


def rows_of(found: Found) -> Outcome:
    """Medians of the rounds, and ratios: to the best peer, to arq, to Celery on Redis.

    >>> rates = {("dejaq", "noop_threads"): [9.0], ("huey", "noop_threads"): [3.0]}
    >>> [(row.system, row.ratio, row.ratio_to) for row in rows_of(rates).rows]
    [('dejaq', 3.0, 'huey'), ('huey', None, None)]
    """
    outcome = Outcome()
    medians = {place: float(np.median(np.asarray(values))) for place, values in found.items()}
    for (system, case), values in found.items():
        unit = unit_of(case)
        if len(values) > 1:
            outcome.spreads[f"{system}/{case}"] = spread(values)
        value = round(medians[system, case], 4)
        to, base = _compared(system, case, medians)
        ratio = round(value / base, 3) if base else None
        outcome.rows.append(Row(QUESTION, system, case, value, unit, ratio, to if base else None))
    outcome.rows.sort(key=lambda row: row.case)
    return outcome


def _compared(system: str, case: str, medians: dict[tuple[str, str], float]) -> tuple[str, float]:
    """What a row is compared with, and its value; 0 = nothing."""
    if case == "week_memory":
        return "week_memory_first", medians["dejaq", "week_memory_first"]
    if unit_of(case) != RATE:
        return "", 0.0
    if system == "celery_dejaq":
        return "celery_redis", medians.get(("celery_redis", case), 0.0)
    if system != "dejaq":
        return "", 0.0
    # Whatever the others run tasks on: threads, forked processes, one at a time.
    cases = {case, *((f"{case.partition('_')[0]}_{pool}") for pool in ("prefork", "single"))}
    wanted = {case} if case.endswith("asyncio") or case == "send" else cases
    peers = {
        place: value
        for place, value in medians.items()
        if place[1] in wanted and place[0] not in {"dejaq", "celery_dejaq"}
    }
    best = max(peers, key=lambda place: peers[place], default=("", ""))
    return best[0], peers.get(best, 0.0)
