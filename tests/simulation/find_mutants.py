"""`python -m tests.simulation.find_mutants`: which seed finds each planted bug; what `make mutants`
runs. Says so if nobody finds one, and writes found_by.json."""

from __future__ import annotations

import json
import sys

import pytest

from dev.reaper import start_reaper
from tests.simulation.planted import BROKER, CLIENTS, CLUSTER, KEYS, REGISTERS, Garden


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
    wanted, missed = sys.argv[1:], 0
    for garden in (BROKER, CLUSTER, KEYS, REGISTERS, CLIENTS):
        missed += plant(garden, [n for n in garden.mutants if not wanted or n in wanted])
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
