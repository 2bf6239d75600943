"""`python -m tests.simulation.find_mutants [NAMES]`: which seed finds each planted bug; what
`make mutants` runs. Says so if nobody finds one, and writes found_by.json. With `--keep 3` it looks
for three, which a change of the product does not all spoil at once.

With `--seconds N` it says instead how many seconds of a core it takes to find each, N at most, from
seed `--first` on, in seeds `--haste` times shorter.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import islice

import pytest

from dev.reaper import start_reaper
from tests.simulation.planted import (
    BROKER,
    CLIENTS,
    CLUSTER,
    KEPT_MAX,
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


def plant(garden: Garden, names: list[str], count: int) -> int:
    """Plant each, and look for so many seeds that find it; how many were not found."""
    missed = 0
    found_by = {n: seeds for n, seeds in garden.found_by().items() if n in garden.mutants}
    for name in names:
        began_s = time.process_time()
        with pytest.MonkeyPatch.context() as patch:
            seeds = list(islice(garden.seeds_that_find(name, patch), count))
        took_s = time.process_time() - began_s
        told = f"seeds {seeds}" if seeds else "NOBODY NOTICED"
        print(f"{name}: {told} ({took_s:.1f} s)", flush=True)
        if not seeds:
            missed += 1
            found_by.pop(name, None)
        else:
            former = [one for one in found_by.get(name, []) if one not in seeds]
            found_by[name] = [*seeds, *former][:KEPT_MAX]
        lines = (f" {json.dumps(name)}: {seeds}" for name, seeds in sorted(found_by.items()))
        garden.path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return missed


def main() -> int:
    """Plant each, or those that are named; 1 if one was not found."""
    start_reaper()
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--kind", choices=GARDENS, help="of these alone")
    parser.add_argument("--keep", type=int, default=1, help=f"so many seeds, {KEPT_MAX} at most")
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
            missed += plant(garden, names, options.keep)
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
