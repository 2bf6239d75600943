"""`python -m tests.simulation.find_mutants`: which seed finds each planted bug; what `make mutants`
runs. Says so if nobody finds one, and writes found_by.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.simulation import mutants_kinds
from tests.simulation.mutants import MUTANTS
from tests.simulation.test_simulation import seed_that_finds

assert mutants_kinds


def main() -> int:
    """Plant each; 1 if one was not found."""
    wanted = sys.argv[1:] or list(MUTANTS)
    path = Path(__file__).with_name("found_by.json")
    found_by = {n: seed for n, seed in json.loads(path.read_text()).items() if n in MUTANTS}
    missed = []
    for name in wanted:
        with pytest.MonkeyPatch.context() as patch:
            seed = seed_that_finds(name, patch)
        print(f"{name}: {'NOBODY NOTICED' if seed is None else f'seed {seed}'}", flush=True)
        if seed is None:
            missed.append(name)
            found_by.pop(name, None)
        else:
            found_by[name] = seed
        path.write_text(json.dumps(dict(sorted(found_by.items())), indent=1) + "\n")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
