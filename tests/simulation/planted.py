"""Planting bugs: which seed of a simulation finds each."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.simulation import mutants, mutants_kinds
from tests.simulation.cluster import mutants as cluster_mutants
from tests.simulation.cluster import mutants_clients, mutants_keys, mutants_registers
from tests.simulation.cluster.keys import simulate_keys
from tests.simulation.cluster.registers import simulate_registers
from tests.simulation.cluster.run import simulate_cluster
from tests.simulation.cluster.run_clients import simulate_clients
from tests.simulation.run import Run, simulate

assert mutants_kinds
SEEDS_MAX = 200
"""A planted bug is found by one of these."""


@dataclass(frozen=True)
class Garden:
    """Bugs to be planted, and the simulation that has to find them.

    Attributes:
        path: says which seed found each last: it is tried first. Written by `make mutants`.
    """

    mutants: dict[str, Callable[[pytest.MonkeyPatch], None]]
    simulate: Callable[[int], Run]
    path: Path

    def found_by(self) -> dict[str, int]:
        """The seed that found each last."""
        kept: dict[str, int] = json.loads(self.path.read_text()) if self.path.exists() else {}
        return kept

    def finds(self, seed: int) -> bool:
        """Whether a rule was seen broken, or the broker said itself that something is wrong."""
        try:
            return bool(self.simulate(seed).faults)
        except Exception:  # noqa: BLE001 - an invariant that noticed is as good as the judge
            return True

    def seed_that_finds(self, name: str, patch: pytest.MonkeyPatch) -> int | None:
        """The seed that finds a planted bug, beginning with the one that did before."""
        logging.getLogger("dejaqueue").setLevel(logging.CRITICAL)
        self.mutants[name](patch)
        first = self.found_by().get(name, 1)
        seeds = [first, *(seed for seed in range(1, SEEDS_MAX + 1) if seed != first)]
        try:
            return next((seed for seed in seeds if self.finds(seed)), None)
        finally:
            logging.getLogger("dejaqueue").setLevel(logging.NOTSET)


_HERE = Path(__file__).parent
BROKER = Garden(mutants.MUTANTS, simulate, _HERE / "found_by.json")
CLUSTER = Garden(cluster_mutants.MUTANTS, simulate_cluster, _HERE / "cluster" / "found_by.json")
KEYS = Garden(mutants_keys.MUTANTS, simulate_keys, _HERE / "cluster" / "found_by_keys.json")
REGISTERS = Garden(
    mutants_registers.MUTANTS, simulate_registers, _HERE / "cluster" / "found_by_registers.json"
)
CLIENTS = Garden(
    mutants_clients.MUTANTS, simulate_clients, _HERE / "cluster" / "found_by_clients.json"
)
