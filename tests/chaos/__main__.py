"""`python -m tests.chaos --minutes N`: what `make chaos` runs. Needs root, for namespaces.

Three brokers and what they stand on, in network namespaces; a plan of faults that a seed decides;
clients whose histories are judged. The plan is printed; the same seed makes the same plan.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from dev.reaper import start_reaper
from tests.chaos import clocks, disks, machines, network
from tests.chaos.faults import KINDS, plan
from tests.chaos.machines import BACKENDS, BOTH, SERVE
from tests.chaos.run import TOPICS, run, say


def main() -> int:
    """Run; 1 if anything was promised and not kept, 2 if it cannot run here."""
    start_reaper()
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--backend", choices=[*BACKENDS, "both"], default="both")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--faults", default=",".join(KINDS), help="kinds, with commas")
    parser.add_argument("--brief", action="store_true", help="short faults, many at once")
    parser.add_argument("--plan", action="store_true", help="print the plan and end")
    parser.add_argument("--program", default="", help="a module to run instead of dejaqueue")
    options = parser.parse_args()
    faulthandler.enable()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended, too
    kinds = options.faults.split(",")
    unknown = set(kinds) - KINDS.keys()
    if unknown:
        parser.error(f"no such faults: {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    backends = list(BOTH) if options.backend == "both" else [options.backend]
    lacking = "" if options.plan else why_not(backends, kinds)
    if lacking:
        print(lacking, file=sys.stderr)
        return 2
    program = ("-m", options.program) if options.program else SERVE
    if len(backends) > 1 and not options.plan:
        return max(_of_its_own(one, options.seed) for one in backends)
    return max(_run(one, kinds, options, program) for one in backends)


def _of_its_own(backend: str, seed: int) -> int:
    """One backend in a process of its own: gRPC's threads stay in the first network they saw."""
    command = [sys.executable, "-m", "tests.chaos", *sys.argv[1:]]
    with subprocess.Popen([*command, "--backend", backend, "--seed", str(seed)]) as child:
        try:
            return child.wait()
        finally:
            child.terminate()


def why_not(backends: list[str], kinds: list[str]) -> str:
    """What keeps it from running here; "" = nothing."""
    lacking = [network.missing(), *(machines.missing(one) for one in backends)]
    if any(KINDS[kind].field == "clock" for kind in kinds) and not clocks.library():
        lacking.append("libfaketime is not installed (Debian: libfaketime)")
    if any(KINDS[kind].field == "disk" for kind in kinds):
        lacking.append(disks.missing())
    return next(filter(None, lacking), "")


def _run(
    backend: str, kinds: list[str], options: argparse.Namespace, program: tuple[str, ...]
) -> int:
    seconds = options.minutes * 60
    brief: dict[str, Any] = {
        "lengths_s": (3.6, 4.4),
        "gaps_s": (0.2, 0.4),
        "together": 1.0,
        "everything": True,
    }
    steps = plan(options.seed, seconds, kinds, len(TOPICS), **(brief if options.brief else {}))
    say(f"{backend}, seed {options.seed}, {len(steps)} steps:")
    for number, step in enumerate(steps, 1):
        print(f"  {number}. {step}")
    if options.plan:
        return 0
    folder = Path(tempfile.mkdtemp(prefix="dejaq-chaos-"))
    patience = 3.0 if options.brief else 1.0
    report = run(backend, options.seed, steps, folder, program, patience)
    print(report.text(), flush=True)
    if report.faults:
        print(f"logs of the brokers, stories of messages: {folder}", flush=True)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
