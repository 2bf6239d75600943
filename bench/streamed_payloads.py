"""How fast one payload of a GiB is streamed up and down, beside the store's own client, and the
memory that client and broker take for it, when they have moved a small one before.

A broker in a process of its own on a directory; the store's own client is a program that writes
the same bytes to a file, has them durable, and reads them, a MiB at a time. Memory is the most that
each had, less what it had before. See: questions/bytes.py.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.results import Row
from bench.systems.dejaq import DejaqSystem
from bench.systems.servers import new_folder
from bench.systems.system import Plan

MIB = 1 << 20
RATE, MEMORY = "MiB/s", "MiB"
QUICK_BYTES, BYTES = 24 * MIB, 1 << 30
WARM_BYTES = 8 * MIB
IDLE_MS = 60_000


def streamed_rows(question: str, plan: Plan, report: Callable[[str], None]) -> list[Row]:
    """Rows of a payload up and down, in the median of the plan's rounds."""
    byte_count = QUICK_BYTES if plan.quick else BYTES
    folder = new_folder(plan.folder, "streamed")
    found: dict[tuple[str, str], list[float]] = {}
    system = DejaqSystem(settings=(f"payloads.url={folder / 'stored'}",))
    system.start(plan.folder)
    try:
        _dejaq(system, folder, WARM_BYTES)  # what any payload takes the first time
        for number in range(plan.rounds):
            for way in ("alone", "dejaq")[:: 1 if number % 2 else -1]:
                turn = _alone if way == "alone" else _dejaq
                for case, value in turn(system, folder, byte_count).items():
                    found.setdefault((case, way), []).append(value)
                    report(f"round {number + 1}: streamed_{case}_{way}: {value:,.1f}")
    finally:
        system.stop()
    medians = {which: sorted(values)[len(values) // 2] for which, values in found.items()}
    return rows_of(question, medians)


def rows_of(question: str, medians: dict[tuple[str, str], float]) -> list[Row]:
    """Rows of values by (case, way), those of rates with their ratio to the store alone."""
    rows = []
    for (case, way), value in medians.items():
        unit = MEMORY if case.startswith("memory") else RATE
        ratio = None
        if way == "dejaq" and unit == RATE:
            ratio = round(value / medians[case, "alone"], 3)
        to = None if ratio is None else "alone"
        name = f"streamed_{case}_{way}"
        rows.append(Row(question, "dejaq", name, round(value, 2), unit, ratio, to))
    return rows


def _pieces(byte_count: int) -> Iterator[bytes]:
    """Random bytes, the same MiB again and again: making them costs nothing."""
    piece = os.urandom(MIB)
    for _ in range(byte_count // MIB):
        yield piece


def _alone(_system: DejaqSystem, folder: Path, byte_count: int) -> dict[str, float]:
    path = folder / "alone"
    began = time.perf_counter()
    with path.open("wb") as file:
        for piece in _pieces(byte_count):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    stored = time.perf_counter()
    with path.open("rb") as file:
        read = sum(map(len, iter(lambda: file.read(MIB), b"")))
    ended = time.perf_counter()
    assert read == byte_count
    path.unlink()
    size = byte_count / MIB
    return {"up": size / (stored - began), "down": size / (ended - stored)}


def _dejaq(system: DejaqSystem, _folder: Path, byte_count: int) -> dict[str, float]:
    topic = system.new_topic(max_payload_bytes=5 << 30)
    before = {pid: _reset_peak(pid) for pid in (os.getpid(), system.pid())}
    began = time.perf_counter()
    system.client.send(topic, _pieces(byte_count))
    stored = time.perf_counter()
    read = 0
    with system.client.consume(topic, max_messages=1, idle_ms=IDLE_MS) as messages:
        for message in messages:
            with message.open() as payload:
                read = sum(map(len, payload))
            message.ack()
    ended = time.perf_counter()
    assert read == byte_count
    size = byte_count / MIB
    more = [_peak_mib(pid) - mib for pid, mib in before.items()]
    return {
        "up": size / (stored - began),
        "down": size / (ended - stored),
        "memory_client": more[0],
        "memory_broker": more[1],
    }


def _reset_peak(pid: int) -> float:
    """Have the peak of a process begin anew; what it has now, in MiB."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
    return _status_mib(pid, "VmRSS:")


def _peak_mib(pid: int) -> float:
    return _status_mib(pid, "VmHWM:")


def _status_mib(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise ValueError(f"no {field}")
