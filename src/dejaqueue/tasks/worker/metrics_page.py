"""The metrics of a worker: which there are, and the page that Prometheus reads.

Room: tasks.worker. Standard library alone; the numbers come from a supervisor.
Holds: each name begins with `dejaq_worker_`; a task that was never begun has no samples.
See: health.py, which serves it; docs/reference/metrics.md, which is made of METRICS.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple, Protocol

from dejaqueue.metrics import HistogramCounts
from dejaqueue.tasks.worker.board import Tally
from dejaqueue.tasks.worker.task_board import TaskTally


class WorkerMetric(NamedTuple):
    """One metric, without the `dejaq_worker_` that it begins with."""

    name: str
    type: str
    unit: str
    labels: tuple[str, ...]
    meaning: str


METRICS = (
    WorkerMetric(
        "attempts_total",
        "counter",
        "attempts",
        ("task", "outcome"),
        "Attempts that ended: `done`, `retried`, `dead`, or `lost` with their process",
    ),
    WorkerMetric(
        "attempt_seconds",
        "histogram",
        "seconds",
        ("task",),
        "How long an attempt took, from its beginning until its message was settled",
    ),
    WorkerMetric(
        "lateness_seconds",
        "histogram",
        "seconds",
        ("task",),
        "From when an attempt was due until it began, by the worker's clock",
    ),
    WorkerMetric("at_work", "gauge", "attempts", (), "Attempts that are at work now"),
    WorkerMetric("memory_bytes", "gauge", "bytes", (), "Memory of all processes, as they are now"),
    WorkerMetric(
        "processes_replaced_total", "counter", "processes", (), "Processes that have ended"
    ),
    WorkerMetric("ready_state", "gauge", "", (), "1 when all processes take tasks, otherwise 0"),
)


class Numbers(Protocol):
    """Whose metrics are shown: a supervisor."""

    replaced: int

    @property
    def is_ready(self) -> bool:
        """True if all processes take tasks."""
        ...

    @property
    def lost(self) -> dict[str, int]:
        """Attempts whose process died, by task."""
        ...

    def tally(self) -> Tally:
        """What all processes have done."""
        ...

    def task_tallies(self) -> dict[str, TaskTally]:
        """The same by task."""
        ...


def metrics_text(worker: Numbers) -> str:
    """The numbers of a worker, as Prometheus reads them."""
    tally = worker.tally()
    tasks, lost = worker.task_tallies(), worker.lost
    names = sorted({*tasks, *lost})
    single = {
        "at_work": tally.at_work,
        "memory_bytes": tally.rss_bytes,
        "processes_replaced_total": worker.replaced,
        "ready_state": int(worker.is_ready),
    }
    lines = []
    for metric in METRICS:
        name = f"dejaq_worker_{metric.name}"
        lines += [f"# HELP {name} {metric.meaning}", f"# TYPE {name} {metric.type}"]
        if metric.name in single:
            lines.append(f"{name} {single[metric.name]}")
            continue
        for task in names:
            done, label = tasks.get(task, TaskTally()), f'task="{_escaped(task)}"'
            if metric.name == "attempts_total":
                counts = {"done": done.done, "retried": done.retried, "dead": done.dead}
                for outcome, count in (counts | {"lost": lost.get(task, 0)}).items():
                    lines.append(f'{name}{{{label},outcome="{outcome}"}} {count}')
            else:
                is_work = metric.name == "attempt_seconds"
                lines += _histogram(name, label, done.work_us if is_work else done.late_us)
    return "\n".join(lines) + "\n"


def _histogram(name: str, label: str, counts: HistogramCounts) -> Iterator[str]:
    """The lines of a histogram of microseconds."""
    ends = [*(f"{bound / 1e6:.12g}" for bound in counts.bounds), "+Inf"]
    for end, count in zip(ends, accumulate(counts.counts.tolist()), strict=True):
        yield f'{name}_bucket{{{label},le="{end}"}} {count}'
    yield f"{name}_sum{{{label}}} {counts.sum / 1e6:.6f}"
    yield f"{name}_count{{{label}}} {counts.count}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
