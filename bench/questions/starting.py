"""How long does it take until something can be done: a program, a command, a broker?

- `import_client`: a program that does nothing but `from dejaqueue import Client`, less one that
  does nothing.
- `first_send`: in a program that has imported it, from `Client(url)` until the first message is
  durable.
- `command_send`: processor time of `dejaq send`.
- `broker`: from the start of `dejaq serve` on an empty directory until it listens; `broker_memory`
  is what it has resident then.

Each is a process of its own, in turns; what counts is the median of the rounds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

from bench.machine import memory_bytes
from bench.percentiles import spread
from bench.results import Outcome, Row
from bench.systems.dejaq import DejaqSystem
from bench.systems.servers import environment
from bench.systems.system import Plan

QUESTION = "starting"
UNITS = {
    "import_client": "ms",
    "first_send": "ms",
    "command_send": "ms",
    "broker": "ms",
    "broker_memory": "MB",
}
IMPORT = "from dejaqueue import Client"
FIRST_SEND = """
import sys, time
from dejaqueue import Client
began = time.perf_counter()
with Client(sys.argv[1]) as client:
    client.send(sys.argv[2], b"hello")
    print(time.perf_counter() - began)
"""

Report = Callable[[str], None]


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    found: dict[str, list[float]] = {case: [] for case in UNITS}
    for number in range(plan.rounds + 1):
        for case, value in _turn(plan).items():
            if number:  # the first one reads from disk what the others have in memory
                found[case].append(value)
                report(f"round {number}: {case}: {value:,.1f} {UNITS[case]}")
    rows = [
        Row(QUESTION, "dejaq", case, round(median(values), 1), UNITS[case])
        for case, values in found.items()
    ]
    spreads = {f"dejaq/{case}": spread(values) for case, values in found.items()}
    return Outcome(rows=rows, spreads=spreads)


def _turn(plan: Plan) -> dict[str, float]:
    nothing_s, _ = _run("-c", "pass")
    import_s, _ = _run("-c", IMPORT)
    system = DejaqSystem()
    began = time.perf_counter()
    system.start(plan.folder)
    ready_s = time.perf_counter() - began
    try:
        resident = memory_bytes(system.pid())["rss"]
        topic = system.new_topic()
        _, first = _run("-c", FIRST_SEND, system.url, topic)
        before = os.times()
        _run("-m", "dejaqueue", "send", topic, "--text", "hello", "--url", system.url)
        after = os.times()
    finally:
        system.stop()
    command_s = (
        after.children_user
        + after.children_system
        - (before.children_user + before.children_system)
    )
    return {
        "import_client": (import_s - nothing_s) * 1e3,
        "first_send": float(first) * 1e3,
        "command_send": command_s * 1e3,
        "broker": ready_s * 1e3,
        "broker_memory": resident / 1e6,
    }


def _run(*arguments: str) -> tuple[float, str]:
    """Seconds that a Python program took, and what it printed."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return time.perf_counter() - began, done.stdout
