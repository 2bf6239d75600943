"""How fast payloads of a MiB come in and go out, in the journal and in a payload store, and what
memory the broker takes for it; beside files that are written and read alone.

A broker in a process of its own, and one client, one batch of four at a time. See:
questions/bytes.py.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from bench.results import Row
from bench.systems.dejaq import DejaqSystem
from bench.systems.servers import new_folder
from bench.systems.system import Plan
from dejaqueue.payloads.payload_store import PayloadStore, open_payload_store

MIB = 1 << 20
TOGETHER = 4
RATE, MEMORY = "payloads/s", "MiB"
WAYS = ("inline", "stored")


def payload_rows(question: str, plan: Plan, report: Callable[[str], None]) -> list[Row]:
    """Rows of payloads up and down, in turns, with their ratio to the store alone."""
    count = 8 if plan.quick else 400
    found: dict[tuple[str, str], float] = {}
    folder = new_folder(plan.folder, "payloads")
    found["up", "alone"], found["down", "alone"] = _alone(str(folder / "alone"), count)
    for way in WAYS:
        settings = (f"payloads.url={folder / 'stored'}",) if way == "stored" else ()
        system = DejaqSystem(settings=settings)
        system.start(plan.folder)
        try:
            _turn(system, count, way, found)
        finally:
            system.stop()
    rows = []
    for (case, way), value in found.items():
        unit = MEMORY if case == "memory" else RATE
        ratio = None if way == "alone" or unit == MEMORY else value / found[case, "alone"]
        report(f"payload_{case}_{way}: {value:,.2f} {unit}")
        to = None if ratio is None else "alone"
        shown = None if ratio is None else round(ratio, 3)
        rows.append(
            Row(question, "dejaq", f"payload_{case}_{way}", round(value, 2), unit, shown, to)
        )
    return rows


def _alone(url: str, count: int) -> tuple[float, float]:
    """Payloads a second that the store takes and gives, one after the other."""
    store: PayloadStore = open_payload_store(url, lambda: 0)
    payload = os.urandom(MIB)
    began = time.perf_counter()
    references = [store.put(f"alone/{number}", payload) for number in range(count)]
    stored = time.perf_counter()
    for reference in references:
        store.get(reference)
    return count / (stored - began), count / (time.perf_counter() - stored)


def _turn(system: DejaqSystem, count: int, way: str, found: dict[tuple[str, str], float]) -> None:
    topic = system.new_topic()
    payloads = [os.urandom(MIB) for _ in range(TOGETHER)]
    began = time.perf_counter()
    for _ in range(count // TOGETHER):
        system.client.send_batch(topic, [{"payload": payload} for payload in payloads])
    found["up", way] = count / (time.perf_counter() - began)
    began = time.perf_counter()
    with system.client.consume(topic, max_messages=count, prefetch=2 * TOGETHER) as messages:
        for message in messages:
            assert len(message.payload) == MIB
            message.ack()
    found["down", way] = count / (time.perf_counter() - began)
    found["memory", way] = _peak_mib(system.pid())


def _peak_mib(pid: int) -> float:
    """The most that a process had in memory so far."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise ValueError("no VmHWM")
