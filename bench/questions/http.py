"""How many HTTP requests a second, beside a web framework's route that does nothing?

64 connections, each with one request on its way, from a program of its own (bench/http_load.py).
The journal is on disk: a message is durable before its request is answered.

- `send`, `lease`, `ack`: one message a request.
- `ndjson`: 1,000 messages a request, 4 connections; messages a second.
- `nothing`: a bare FastAPI application, served with the same settings in a process of its own.

Rounds go over all cases in turn. What counts is the median; each ratio is one of the same round.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.http_load import LINES
from bench.percentiles import spread
from bench.results import Outcome, Row
from bench.systems.servers import Server, new_folder, start_helper
from bench.systems.system import Plan

QUESTION = "http"
BARE = "fastapi"
CONNECTIONS, BULK_CONNECTIONS = 64, 4
CASES = ("send", "lease", "ack")
UNITS = {"ndjson": "messages/s"}
REQUESTS_MAX = 1 << 40
LEASES_PER_SECOND_MAX = 40_000
LISTENING = re.compile(r"http://[\w.]+:(\d+)")

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker with two topics, `t` and `bulk`."""

    server: Server
    port: int

    @classmethod
    def start(cls, folder: Path) -> Broker:
        """Start one in a new folder."""
        place = new_folder(folder, "dejaq")
        log = place / "server.log"

        def is_ready() -> bool:
            return LISTENING.search(log.read_text(errors="replace")) is not None

        command = [sys.executable, "-m", "dejaqueue", "serve", "--data", "queue", "--port", "0"]
        server = Server(place, command, is_ready)
        found = LISTENING.search(server.log_text())
        assert found is not None
        made = cls(server, int(found[1]))
        for topic in ("t", "bulk"):
            request = urllib.request.Request(
                f"http://127.0.0.1:{made.port}/v1/topics",
                json.dumps({"name": topic}).encode(),
                {"Content-Type": "application/json"},
            )
            urllib.request.urlopen(request, timeout=30).close()
        return made


class Loader:
    """The program that makes the load."""

    def __init__(self, connections: int) -> None:
        self._child = start_helper("bench.http_load", connections)

    def run(self, port: int, case: str, topic: str, plan: Plan, rows: int = REQUESTS_MAX) -> float:
        """Requests a second of a case."""
        values = {"port": port, "case": case, "topic": topic, "seconds": plan.seconds, "rows": rows}
        found = _ask(self._child, json.dumps(values))
        if found["failed"]:
            raise RuntimeError(f"{case}: {found['failed']} of {found['requests']} requests failed")
        return float(found["requests"] / found["seconds"])

    def stop(self) -> None:
        """End it."""
        _end(self._child)


def _ask(child: subprocess.Popen[str], line: str) -> dict[str, Any]:
    assert child.stdin is not None
    assert child.stdout is not None
    print(line, file=child.stdin, flush=True)
    found: dict[str, Any] = json.loads(child.stdout.readline())
    return found


def _end(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.close()
    child.wait(30)
    if child.stdout is not None:
        child.stdout.close()


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    rates: dict[str, list[float]] = {}
    loader, bulk_loader = Loader(CONNECTIONS), Loader(BULK_CONNECTIONS)
    bare = start_helper("bench.http_bare")
    broker = Broker.start(plan.folder)
    try:
        assert bare.stdout is not None
        bare_port = int(bare.stdout.readline())
        for number in range(plan.rounds + 1):  # the first one warms up
            found = {"nothing": loader.run(bare_port, "nothing", "", plan)}
            # As many as could be leased meanwhile, so that nobody waits for a message.
            fill = int(plan.seconds * LEASES_PER_SECOND_MAX / LINES) + 1
            bulk_loader.run(broker.port, "ndjson", "t", replace(plan, seconds=60), fill)
            for case in CASES:
                found[case] = loader.run(broker.port, case, "t", plan)
            found["ndjson"] = bulk_loader.run(broker.port, "ndjson", "bulk", plan) * LINES
            for case, rate in found.items() if number else ():
                rates.setdefault(case, []).append(rate)
                report(f"round {number}: {case}: {rate:,.0f} {UNITS.get(case, 'requests/s')}")
    finally:
        broker.server.stop()
        for child in (loader, bulk_loader):
            child.stop()
        _end(bare)
    return outcome_of(rates)


def outcome_of(rates: dict[str, list[float]]) -> Outcome:
    """Rows of what was measured: medians, and of each case the median of the rounds' ratios."""
    outcome = Outcome()
    for case, found in rates.items():
        system = BARE if case == "nothing" else "dejaq"
        outcome.spreads[f"{system}/{case}"] = spread(found)
        value = round(outcome.spreads[f"{system}/{case}"]["median"], 1)
        unit = UNITS.get(case, "requests/s")
        if case not in CASES:
            outcome.rows.append(Row(QUESTION, system, case, value, unit))
            continue
        ratios = [rate / bare for rate, bare in zip(found, rates["nothing"], strict=True)]
        ratio = round(spread(ratios)["median"], 3)
        outcome.rows.append(Row(QUESTION, system, case, value, unit, ratio, BARE))
    return outcome
