"""`python -m tests.simulation --seeds N [--kind broker|cluster|clients|moves|keys|registers|rude]
[--first SEED] [--haste N] [--print]`: what `make sim` runs; `--kind` takes `views` and `servers`,
too. `--kind fleet` is one seed, and large.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
import time
from collections.abc import Iterator
from functools import partial

from dev.reaper import start_reaper
from tests.simulation.fleet.report import show_fleet
from tests.simulation.fleet.run import Size
from tests.simulation.report import HASTE_MAX, KINDS, UNHURRIED, Report, run_one

FLEET = "fleet"


def _reports(
    kind: str, seeds: range, workers: int, *, haste: int, twice: bool, prints: bool
) -> Iterator[Report]:
    call = partial(run_one, kind=kind, haste=haste, twice=twice, prints=prints)
    if workers == 1:
        yield from map(call, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(call, seeds, chunksize=4)


def main() -> int:
    """Run seeds; 1 if any broke a rule."""
    start_reaper()
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--kind", choices=[*KINDS, FLEET], default="broker")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument(
        "--haste", type=int, default=1, help="so many times shorter, with as many faults"
    )
    parser.add_argument("--print", action="store_true", help="print the history")
    parser.add_argument("--twice", action="store_true", help="run each seed twice and compare")
    for name, value in (
        ("brokers", 100),
        ("slots", 4_096),
        ("topics", 10_000),
        ("partitions", 100),
    ):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"of --kind {FLEET}")
    options = parser.parse_args()
    if options.kind == FLEET:
        logging.getLogger("dejaqueue").setLevel(logging.CRITICAL)
        size = Size(options.brokers, options.slots, options.topics, options.partitions)
        return show_fleet(options.first, size, partial(print, flush=True))
    if not 1 <= options.haste <= (HASTE_MAX if options.kind not in UNHURRIED else 1):
        parser.error(f"--haste: from 1 to {HASTE_MAX}, and not for {' and '.join(UNHURRIED)}")
    began = time.monotonic()
    total = Report()
    failed = 0
    seeds = range(options.first, options.first + options.seeds)
    for report in _reports(
        options.kind,
        seeds,
        options.workers,
        haste=options.haste,
        twice=options.twice,
        prints=options.print,
    ):
        failed += report.failed
        total.deliveries += report.deliveries
        total.deaths += report.deaths
        total.happened += report.happened
        total.virtual_seconds += report.virtual_seconds
        for line in report.lines:
            print(line, flush=True)
    took = time.monotonic() - began
    print(
        f"{options.kind}: {options.seeds} seeds, {failed} failed; "
        f"{total.virtual_seconds / 3600:.2f} hours, {total.deaths} deaths of brokers, "
        f"{total.deliveries:,} deliveries, "
        f"{total.happened:,} steps in {took:.1f} s"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
