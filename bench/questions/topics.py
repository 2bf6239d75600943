"""What do 100,000 topics cost that nobody uses?

A broker in a program of its own makes them, 16 callers at a time, and is killed; another one starts
on what it left. `made` is topics a second; `bytes` what is appended to the catalogue for each, its
snapshots included; `memory` anonymous memory for each, after they were made, and `memory_started`
after the start, that of the broker itself included; `start` the seconds of the start, of which
`start_processor` were processor time, `open_files` the descriptors then, `idle` percent of a core.

Three brokers on one PostgreSQL and one etcd, in one program, make topics as well: `cluster_made`
topics a second, of `cluster_processor` µs of processor time in the brokers each, `cluster_facts`
bytes at the coordinator for each, and `cluster_idle` percent of a core for each broker after that.

`jetstream_…`: bench/jetstream_partitions.py.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.jetstream_partitions import partition_figures
from bench.percentiles import spread
from bench.results import Outcome, Row
from bench.systems.servers import environment
from bench.systems.system import Plan
from dev.services import missing, start

QUESTION = "topics"
TOPICS = 100_000
CLUSTER_TOPICS = 10_000
QUICK_TOPICS = 2_000
CALLERS = 16
SERVERS = ("postgresql", "etcd")
ROUNDS_MAX = 3
UNITS = {
    "made": "topics/s",
    "bytes": "bytes",
    "memory": "bytes",
    "memory_started": "bytes",
    "start": "s",
    "start_processor": "s",
    "open_files": "files",
    "idle": "%",
    "cluster_made": "topics/s",
    "cluster_processor": "µs",
    "cluster_facts": "bytes",
    "cluster_idle": "%",
    "jetstream_made": "s",
    "jetstream_memory": "MB",
    "jetstream_files": "files",
    "jetstream_idle": "%",
}

Report = Callable[[str], None]


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    count = QUICK_TOPICS if plan.quick else TOPICS
    outcome, found = Outcome(), dict[str, list[float]]()
    lacks = {name: missing(name) for name in (*SERVERS, "nats")}
    outcome.left_out = [f"{name}: not installed: {text}" for name, text in lacks.items() if text]
    for number in range(1, min(plan.rounds, ROUNDS_MAX) + 1):
        folder = plan.folder / f"topics-{number}"
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was broken off
        try:
            figures = _one_round(folder, count)
            if not any(lacks[name] for name in SERVERS):
                figures |= _cluster_round(folder, min(count, CLUSTER_TOPICS))
            if not lacks["nats"]:
                figures |= partition_figures(plan)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        for name, value in figures.items():
            found.setdefault(name, []).append(value)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        report(f"round {number}: {shown}")
    for name, values in found.items():
        outcome.spreads[f"dejaq/{name}"] = spread(values)
        median = round(outcome.spreads[f"dejaq/{name}"]["median"], 4)
        outcome.rows.append(Row(QUESTION, "dejaq", name, median, UNITS[name]))
    return outcome


def _one_round(folder: Path, count: int) -> dict[str, float]:
    made, started = _life(folder, count), _life(folder, 0)
    if (made["topics"], started["topics"]) != (count, count):
        raise AssertionError(f"not {count} topics: {made['topics']}, then {started['topics']}")
    figures = {name: made[name] for name in ("made", "bytes", "memory")}
    figures |= {name: started[name] for name in ("start", "start_processor", "open_files", "idle")}
    return figures | {"memory_started": started["memory"]}


def _life(folder: Path, count: int) -> dict[str, float]:
    """What a broker says of itself before it is killed."""
    command = [sys.executable, "-m", "bench.topic_life", str(folder), str(count), str(CALLERS)]
    life = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, check=False)
    if life.returncode != -signal.SIGKILL:
        raise AssertionError(f"a broker ended by itself, with status {life.returncode}")
    figures: dict[str, float] = json.loads(life.stdout)
    return figures


def _cluster_round(folder: Path, count: int) -> dict[str, float]:
    """What three brokers say of themselves."""
    with start("postgresql") as journal, start("etcd") as coordinator:
        command = [sys.executable, "-m", "bench.cluster_topic_life", str(folder / "cluster")]
        command += [str(count), str(CALLERS), journal.url, coordinator.url]
        life = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, check=True)
    figures: dict[str, float] = json.loads(life.stdout)
    return figures
