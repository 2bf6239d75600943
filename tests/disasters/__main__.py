"""`python -m tests.disasters --first 1 --count 500`: what `make disasters` runs.

Each is a plan that a number draws (plan.py): journals of some kind, a load, an archive whose way is
troubled, a disaster, sometimes two, and a way back, which is judged (disaster.py).
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from dev.reaper import start_reaper
from dev.services import missing
from tests.disasters.disaster import Disaster
from tests.disasters.plan import Plan
from tests.disasters.sites import Ground

LEFT_OUT = 2


def run_one(ground: Ground, seed: int) -> list[int] | None:
    """Do the disaster of a number; what was lost each time, or None = it was not as it must be."""
    began = time.monotonic()
    root = Path(tempfile.mkdtemp(prefix=f"dejaq-disaster-{seed}-"))
    plan = Plan.drawn(seed)
    disaster = Disaster(plan, ground, root)
    try:
        disaster.run()
    except Exception as wrong:  # noqa: BLE001 - each is told, and the next one is tried
        traceback.print_exc(limit=-3, file=sys.stdout)
        steps = "\n  ".join(disaster.steps)
        print(f"seed {seed}: {str(wrong)[:3_000]}\n  {plan}\n  {steps}\n  its files stay: {root}")
        return None
    shutil.rmtree(root)
    ways = ", then ".join(f"{one.strike}, {one.way}" for one in plan.rounds)
    print(f"seed {seed}: {time.monotonic() - began:.1f} s: {plan.kind}: {ways}", flush=True)
    return disaster.lost_ms


def run_some(first: int, count: int, step: int, told: Path) -> None:
    """Do every so many-th; what came of it is in a file then."""
    logging.getLogger("dejaqueue").setLevel(logging.CRITICAL)  # each connection that is lost
    ground, lost, failed = Ground(), list[int](), list[int]()
    try:
        for seed in range(first, first + count, step):
            found = run_one(ground, seed)
            if found is None:
                failed.append(seed)
            else:
                lost += found
    finally:
        ground.close()
    told.write_text(json.dumps([lost, failed]))


def _given(given: argparse.Namespace, place: int, told: Path) -> list[str]:
    """What a worker is told."""
    numbers = {
        "--step": given.workers,
        "--first": given.first + place,
        "--count": given.count - place,
        "--told": told,
    }
    return [word for name, number in numbers.items() for word in (name, str(number))]


def main() -> int:
    """Do as many as asked for; the exit status says whether all came out well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--step", type=int, default=0, help="of a worker")
    parser.add_argument("--told", type=Path, help="of a worker: what came of it")
    given = parser.parse_args()
    start_reaper()
    lacking = missing("versitygw")
    if lacking:
        print(f"left out: {lacking} is missing")
        return LEFT_OUT
    if given.step:
        run_some(given.first, given.count, given.step, given.told)
        return 0
    began, lost, failed, status = time.monotonic(), list[int](), list[int](), 0
    with tempfile.TemporaryDirectory(prefix="dejaq-disasters-") as place:
        tolds = [Path(place, f"{one}.json") for one in range(min(given.workers, given.count))]
        children = [
            subprocess.Popen([sys.executable, "-m", "tests.disasters", *_given(given, one, told)])
            for one, told in enumerate(tolds)
        ]
        for child, told in zip(children, tolds, strict=True):
            status |= child.wait()
            found = json.loads(told.read_text()) if told.exists() else [[], []]
            lost, failed = lost + found[0], failed + found[1]
    lost.sort()
    median = lost[len(lost) // 2] if lost else 0
    print(
        f"{given.count} disasters in {time.monotonic() - began:.0f} s, not as they must be: "
        f"{sorted(failed) or 'none'}; of {len(lost)} ways over the archive, lost was what had come "
        f"in the last {median} ms (median), {lost[-1] if lost else 0} ms (most)"
    )
    return int(bool(failed or status))


if __name__ == "__main__":
    sys.exit(main())
