"""How fast one payload of a GiB is streamed up and down, beside the store's own client, and the
memory that client and broker take for it, when they have moved a small one before.

A broker in a process of its own, with the payload store in a directory, and in the Versity gateway,
which speaks S3: there most parts go between client and gateway directly, as they do by default.
The store's own client (`own`) is obstore, by which the broker asks stores, too: it puts the same
bytes as one object, in parts of 5 MiB, twelve at a time, and streams it back, in this process and
past any broker; it compares nothing with a hash. In a directory nothing that it puts is durable,
as all is that the broker answered. `file` is a program that writes the same bytes to a file, has
them durable, and reads them from the machine's memory: what no store could surpass.

Memory is the most that each had, less what it had before. See: questions/bytes.py.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest import mock

import obstore
from obstore.store import from_url

from bench.results import Row
from bench.systems.dejaq import DejaqSystem
from bench.systems.servers import new_folder
from bench.systems.system import Plan
from dev.services import missing, start
from dev.services.versitygw import Versitygw

MIB = 1 << 20
RATE, MEMORY = "MiB/s", "MiB"
QUICK_BYTES, BYTES = 24 * MIB, 1 << 30
WARM_BYTES = 8 * MIB
IDLE_MS = 60_000
OWN_PART_BYTES, OWN_PARTS_MAX = 5 * MIB, 12
"""The library's defaults; with parts of 16 MiB, or four at a time, it was no faster."""

Report = Callable[[str], None]
Figures = dict[tuple[str, str, str], list[float]]
"""By case, place, and way."""


def streamed_rows(question: str, plan: Plan, report: Report) -> tuple[list[Row], list[str]]:
    """Rows of a payload up and down, in the median of the plan's rounds; what was left out."""
    figures: Figures = {}
    folder = new_folder(plan.folder, "streamed")
    for name in ("own", "stored"):
        (folder / name).mkdir()
    _place("directory", (folder / "own").as_uri(), str(folder / "stored"), plan, figures, report)
    for _ in range(plan.rounds):
        for case, value in _file(folder / "file", _byte_count(plan)).items():
            figures.setdefault((case, "directory", "file"), []).append(value)
    lacking = missing("versitygw")
    if lacking is None:
        with _gateway() as url:
            _place("s3", f"{url}/own", f"{url}/stored", plan, figures, report)
    medians = {which: sorted(values)[len(values) // 2] for which, values in figures.items()}
    left_out = [] if lacking is None else [f"streamed payloads in S3: {lacking} is not installed"]
    return rows_of(question, medians), left_out


@contextmanager
def _gateway() -> Iterator[str]:
    """The URL of a bucket; the environment names its store meanwhile."""
    with start("versitygw") as store:
        assert isinstance(store, Versitygw)
        with mock.patch.dict(os.environ, store.environment):
            yield store.new_bucket("streamed")


def _place(
    place: str, own_url: str, stored_url: str, plan: Plan, figures: Figures, report: Report
) -> None:
    """Both ways in turns, with payloads in one store."""
    system = DejaqSystem(settings=(f"payloads.url={stored_url}",))
    system.start(plan.folder)
    turns = {"own": partial(_own, own_url), "dejaq": partial(_dejaq, system)}
    try:
        _dejaq(system, WARM_BYTES)  # what any payload takes the first time
        for number in range(plan.rounds):
            for way in list(turns)[:: 1 if number % 2 else -1]:
                for case, value in turns[way](_byte_count(plan)).items():
                    figures.setdefault((case, place, way), []).append(value)
                    report(f"round {number + 1}: streamed_{case}_{place} {way}: {value:,.1f}")
    finally:
        system.stop()


def _byte_count(plan: Plan) -> int:
    return QUICK_BYTES if plan.quick else BYTES


def rows_of(question: str, medians: dict[tuple[str, str, str], float]) -> list[Row]:
    """Rows of values by (case, place, way); rates of dejaq with their ratio to the store's own
    client."""
    rows = []
    for (case, place, way), value in medians.items():
        unit = MEMORY if case.startswith("memory") else RATE
        ratio = None
        if way == "dejaq" and unit == RATE:
            ratio = round(value / medians[case, place, "own"], 3)
        to = None if ratio is None else "own"
        name = f"streamed_{case}_{place}" + ("" if way == "dejaq" else f"_{way}")
        rows.append(Row(question, "dejaq", name, round(value, 2), unit, ratio, to))
    return rows


def _pieces(byte_count: int) -> Iterator[bytes]:
    """Random bytes, the same MiB again and again: making them costs nothing."""
    piece = os.urandom(MIB)
    for _ in range(byte_count // MIB):
        yield piece


def _file(path: Path, byte_count: int) -> dict[str, float]:
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
    return _rates(byte_count, stored - began, ended - stored)


def _own(url: str, byte_count: int) -> dict[str, float]:
    store = from_url(url)
    began = time.perf_counter()
    pieces = _pieces(byte_count)
    obstore.put(store, "payload", pieces, chunk_size=OWN_PART_BYTES, max_concurrency=OWN_PARTS_MAX)
    stored = time.perf_counter()
    read = sum(map(len, obstore.get(store, "payload").stream(min_chunk_size=MIB)))
    ended = time.perf_counter()
    assert read == byte_count
    obstore.delete(store, "payload")
    return _rates(byte_count, stored - began, ended - stored)


def _rates(byte_count: int, up_seconds: float, down_seconds: float) -> dict[str, float]:
    return {"up": byte_count / MIB / up_seconds, "down": byte_count / MIB / down_seconds}


def _dejaq(system: DejaqSystem, byte_count: int) -> dict[str, float]:
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
    more = [_peak_mib(pid) - mib for pid, mib in before.items()]
    rates = _rates(byte_count, stored - began, ended - stored)
    return rates | {"memory_client": more[0], "memory_broker": more[1]}


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
