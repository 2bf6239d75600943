"""`python -m tests.simulation.find_mutants [NAMES]`: which seed finds each planted bug; what
`make mutants` runs. Says so if nobody finds one, and writes found_by.json.

With `--seconds N` it says instead how many seconds of a core it takes to find each, N at most, from
seed `--first` on, in seeds `--haste` times shorter.
"""

from __future__ import annotations

import argparse
import json
import sys

import pytest

from dev.reaper import start_reaper
from tests.simulation.planted import (
    BROKER,
    CLIENTS,
    CLUSTER,
    KEYS,
    MOVES,
    REGISTERS,
    SERVERS,
    VIEWS,
    Garden,
)

GARDENS = {
    "broker": BROKER,
    "views": VIEWS,
    "cluster": CLUSTER,
    "keys": KEYS,
    "registers": REGISTERS,
    "clients": CLIENTS,
    "moves": MOVES,
    "servers": SERVERS,
}


def plant(garden: Garden, names: list[str]) -> int:
    """Plant each; how many were not found."""
    missed = 0
    found_by = {n: seed for n, seed in garden.found_by().items() if n in garden.mutants}
    for name in names:
        with pytest.MonkeyPatch.context() as patch:
            seed = garden.seed_that_finds(name, patch)
        print(f"{name}: {'NOBODY NOTICED' if seed is None else f'seed {seed}'}", flush=True)
        if seed is None:
            missed += 1
            found_by.pop(name, None)
        else:
            found_by[name] = seed
        garden.path.write_text(json.dumps(dict(sorted(found_by.items())), indent=1) + "\n")
    return missed


def main() -> int:
    """Plant each, or those that are named; 1 if one was not found."""
    start_reaper()
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--kind", choices=GARDENS, help="of these alone")
    parser.add_argument("--seconds", type=float, help="say how long it takes to find each")
    parser.add_argument("--first", type=int, default=5_000_000)
    parser.add_argument("--haste", type=int, default=1)
    options = parser.parse_args()
    missed = 0
    for kind, garden in GARDENS.items():
        if options.kind not in (None, kind):
            continue
        names = [n for n in garden.mutants if not options.names or n in options.names]
        if options.seconds is None:
            missed += plant(garden, names)
            continue
        for name in names:
            seeds = range(options.first, options.first + 10_000)
            found = garden.seconds_to_find(name, seeds, options.haste, options.seconds)
            missed += found is None
            told = f"not in {options.seconds:.0f} s" if found is None else f"{found:.1f} s"
            print(f"{kind} {name}: {told}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
