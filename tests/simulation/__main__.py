"""`python -m tests.simulation --seeds N [--first SEED] [--print]`: what `make sim` runs."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback

from tests.simulation.run import simulate


def main() -> int:
    """Run seeds; 1 if any broke a rule."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--print", action="store_true", help="print the history")
    parser.add_argument("--twice", action="store_true", help="run each seed twice and compare")
    options = parser.parse_args()
    logging.getLogger("dejaqueue").setLevel(logging.CRITICAL)  # what breaks is meant to
    began = time.monotonic()
    failed = deliveries = deaths = happened = 0
    seconds = 0.0
    for seed in range(options.first, options.first + options.seeds):
        try:
            run = simulate(seed)
        except Exception:  # noqa: BLE001 - a bug in a seed is a finding
            failed += 1
            print(f"seed {seed}: {traceback.format_exc()}")
            continue
        deliveries += len(run.history.deliveries)
        deaths += run.deaths
        happened += run.happened
        seconds += run.virtual_seconds
        if options.twice and simulate(seed).fingerprint != run.fingerprint:
            failed += 1
            print(f"seed {seed}: two runs differ")
        if run.faults:
            failed += 1
            print(f"seed {seed}: {len(run.faults)} faults; make sim SEED={seed} N=1 to see it")
            for fault in run.faults[:5]:
                print(f"  {fault}")
        if options.print:
            print(run.history.text())
    took = time.monotonic() - began
    print(
        f"{options.seeds} seeds, {failed} failed; {seconds / 3600:.2f} virtual hours, {deaths} "
        f"deaths of brokers, {deliveries:,} deliveries, {happened:,} steps in {took:.1f} s"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
