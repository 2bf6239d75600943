"""`python -m tests.reliability`: what `make reliability` runs, in five lanes beside each other.

Each part is a program of its own; its output is shown if it fails, and how long it took always.
Three lanes compute, whenever the other two, in which real brokers run, leave a core to them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dev.reaper import start_reaper
from dev.services import missing
from tests.crash.powercut_engines import ENGINES, SERVICES
from tests.crash.storm import BACKENDS, SERVERS

TAIL_BYTES = 6_000
DISASTERS = 500
KEPT = Path("build/reliability")
"""Where all that failed parts said is kept."""
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")


@dataclass(frozen=True)
class Part:
    """One program: its arguments to Python, and what its environment has more.

    Attributes:
        left_out: what it returns where it cannot run.
    """

    name: str
    arguments: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)
    left_out: int = 0


def _of_pytest(name: str, *paths: str, **environment: str) -> Part:
    return Part(name, (*PYTEST, *paths), {"DEJAQ_RELIABILITY": "all"} | environment)


@dataclass(frozen=True)
class Lane:
    """Parts that run one after the other.

    Attributes:
        waits: it mostly waits, for real brokers; what only computes gives way to it.
    """

    parts: Sequence[Part]
    waits: bool = True


def lanes(seeds: int, first: int, flips: int, chaos_minutes: float) -> list[Lane]:
    """What runs beside each other.

    Args:
        chaos_minutes: of plans of faults, half of it on each backend; the peace between faults
            makes it about twice as long.
    """

    quarter = seeds // 4

    def simulated(kind: str, begin: int, count: int, *more: str) -> Part:
        said = ("--kind", kind, "--first", str(begin), "--seeds", str(count), "--workers", "2")
        name = f"simulation ({' '.join((kind, *more))}), {count:,} seeds"
        return Part(name, ("-m", "tests.simulation", *said, *more))

    chaos = ("-m", "tests.chaos", "--minutes", str(chaos_minutes / 2))
    disasters = ("-m", "tests.disasters", "--first", str(first), "--count", str(DISASTERS))
    storms = [
        Part(f"killed 5 times: {name}", ("-m", "tests.crash.storm", "--backend", name, *_CYCLES))
        for name in BACKENDS
        if name not in ("segment", "cassandra")
        and (name not in SERVERS or missing(SERVERS[name]) is None)
    ]
    cuts = [
        Part(f"power cuts: {name}", ("-m", "tests.crash.powercut", "--engine", name, "--cuts", "4"))
        for name in ENGINES
        if name != "segment" and (name not in SERVICES or SERVICES[name].missing() is None)
    ]
    crashes = _of_pytest(
        "crashes and power cuts",
        "tests/crash",
        DEJAQ_POWER_CUTS="20",
        DEJAQ_KILL_CYCLES="100",
        DEJAQ_KILL_CYCLES_OF_PARTS="20",
    )
    return [
        Lane(
            [
                simulated("broker", first, quarter),
                simulated("broker", first + quarter, seeds - quarter, "--haste", "4"),
                simulated("cluster", first, seeds // 8),
            ],
            waits=False,
        ),
        Lane(
            [
                _of_pytest("planted bugs", "tests/simulation", "tests/checker", "tests/mutation"),
                _of_pytest("corruption, replay", "tests/corruption", "tests/replay"),
            ],
            waits=False,
        ),
        Lane(
            [
                Part(f"{flips:,} bit flips", ("-m", "tests.corruption", "--flips", str(flips))),
                Part("50,000 crash states", ("-m", "tests.crash.crash_states", *_STATES)),
                Part("100 failing calls of each", ("-m", "tests.crash.failing_calls", *_POINTS)),
            ],
            waits=False,
        ),
        Lane([crashes, *storms, *cuts]),
        Lane(
            [
                _of_pytest(
                    "rules on three brokers, three processes", "tests/rules", "-k", _SEVERAL
                ),
                _of_pytest("a cluster on a bucket", "tests/cluster/test_bucket.py"),
                _of_pytest("archives cut", "tests/integration/test_archive_cuts.py"),
                _of_pytest("accidents of every client", "tests/clients/test_accidents.py"),
                _of_pytest("crowds and floods", "tests/hostile"),
                _of_pytest("chaos, where namespaces are allowed", "tests/chaos"),
                Part("soak, two minutes", ("-m", "tests.soak", "--minutes", "2")),
                Part("mixture, four seeds", ("-m", "tests.mixture", "--count", "4")),
                Part(f"{DISASTERS} disasters", disasters, left_out=2),
                Part(f"chaos, {chaos_minutes:g} minutes", chaos, left_out=2),
            ]
        ),
    ]


_STATES = ("--states", "50000")
_SEVERAL = "brokers or processes"
_CYCLES = ("--cycles", "5")
_POINTS = ("--points", "100")


class Runner:
    """Runs parts and notes what failed."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._mutex = threading.Lock()
        self.failed: list[str] = []

    def run(self, lane: Lane) -> None:
        """One part after the other."""
        gives_way = [] if lane.waits else ["nice", "-n", "10"]
        for part in lane.parts:
            self._run_one(part, gives_way)

    def _run_one(self, part: Part, gives_way: list[str]) -> None:
        began = time.monotonic()
        path = self._place / part.name.replace(" ", "-").replace(":", "").replace(",", "")
        # Pytests that run beside each other trip over what the others clean up.
        own = {"PYTEST_DEBUG_TEMPROOT": tempfile.mkdtemp(dir=self._place)}
        with path.open("wb") as output:
            child = subprocess.Popen(
                [*gives_way, sys.executable, *part.arguments],
                env=os.environ | {"PYTHONPATH": f"src{os.pathsep}."} | own | part.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            _, status, usage = os.wait4(child.pid, 0)  # which says what all of its children used
        child.returncode = os.waitstatus_to_exitcode(status)
        took, used = time.monotonic() - began, usage.ru_utime + usage.ru_stime
        text = path.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
        with self._mutex:
            if child.returncode not in (0, part.left_out):
                self.failed.append(part.name)
                KEPT.mkdir(parents=True, exist_ok=True)
                print(f"{text}\nall it said: {shutil.copy(path, KEPT)}")
            last = text.strip().rpartition("\n")[2]
            verdict = {part.left_out: "left out", 0: "fine"}.get(child.returncode, "FAILED")
            cost = f"{took:5.0f} s, {used:4.0f} of a core"
            print(f"{verdict:<8} {cost}  {part.name}: {last}", flush=True)


def main() -> int:
    """Run all; 1 if any part failed."""
    start_reaper()
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=2_000)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--flips", type=int, default=10_000)
    parser.add_argument("--chaos-minutes", type=float, default=3.0, help="on both backends")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dejaq-reliability-") as place:
        runner = Runner(Path(place))
        threads = [
            threading.Thread(target=runner.run, args=(lane,))
            for lane in lanes(options.seeds, options.first, options.flips, options.chaos_minutes)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    minutes = (time.monotonic() - began) / 60
    failed = f"failed: {', '.join(runner.failed)}" if runner.failed else "nothing failed"
    print(f"{failed}; {minutes:.1f} minutes")
    return int(bool(runner.failed))


if __name__ == "__main__":
    sys.exit(main())
