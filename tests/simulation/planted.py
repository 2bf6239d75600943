"""Planting bugs: which seed of a simulation finds each."""

from __future__ import annotations

import inspect
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from tests.simulation import mutants, mutants_kinds, mutants_views
from tests.simulation.cluster import mutants as cluster_mutants
from tests.simulation.cluster import (
    mutants_clients,
    mutants_keys,
    mutants_moves,
    mutants_registers,
    mutants_servers,
)
from tests.simulation.cluster.beside import simulate_servers
from tests.simulation.cluster.keys import simulate_keys
from tests.simulation.cluster.plan import PLAIN
from tests.simulation.cluster.registers import simulate_registers
from tests.simulation.cluster.run import simulate_cluster
from tests.simulation.cluster.run_clients import simulate_clients
from tests.simulation.cluster.run_moves import simulate_moves
from tests.simulation.run import Run, simulate

assert mutants_kinds
SEEDS_MAX = 200
"""A planted bug is found by one of these."""


class Misfit(AssertionError):
    """A bug is planted in place of something else than it was written for."""


class Planting:
    """Plants bugs only where they fit: what is replaced is there, and takes the same arguments.

    Without that a plant whose place was changed would end its simulation with a TypeError, which
    counts as found. In place of the MonkeyPatch that it is given.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.setitem = patch.setitem

    def setattr(self, target: Any, name: Any, *value: Any) -> None:
        """See MonkeyPatch.setattr. Raises Misfit."""
        if value:
            self._check_fits(getattr(target, name, None), value[0])
        self._patch.setattr(target, name, *value)

    @staticmethod
    def _check_fits(old: object, new: object) -> None:
        if not (inspect.isfunction(old) and inspect.isfunction(new)):
            return
        kinds = inspect.Parameter
        asked = inspect.signature(old).parameters.values()
        places = [
            p for p in asked if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
        ]
        needed = [p for p in places if p.default is kinds.empty]
        names = {p.name: None for p in asked if p.kind is kinds.KEYWORD_ONLY}
        fits = inspect.signature(new)
        try:
            fits.bind(*places, **names)
        except TypeError as wrong:
            try:  # or nobody gives it what it need not be given
                fits.bind(*needed, **names)
            except TypeError:
                raise Misfit(f"{old.__qualname__}: {wrong}") from wrong


@dataclass(frozen=True)
class Garden:
    """Bugs to be planted, and the simulation that has to find them.

    Attributes:
        path: says which seed found each last: it is tried first. Written by `make mutants`.
        before: how that seed is tried at the very first, as it was run before there were plans.
    """

    mutants: dict[str, Callable[[pytest.MonkeyPatch], None]]
    simulate: Callable[..., Run]
    path: Path
    before: Mapping[str, Any] = field(default_factory=dict)

    def found_by(self) -> dict[str, int]:
        """The seed that found each last."""
        kept: dict[str, int] = json.loads(self.path.read_text()) if self.path.exists() else {}
        return kept

    def finds(self, seed: int, **named: Any) -> bool:
        """Whether a rule was seen broken, or the broker said itself that something is wrong."""
        try:
            return bool(self.simulate(seed, **named).faults)
        except Exception:  # noqa: BLE001 - an invariant that noticed is as good as the judge
            return True

    def plant(self, name: str, patch: pytest.MonkeyPatch) -> None:
        """Plant a bug. Raises Misfit."""
        self.mutants[name](cast(pytest.MonkeyPatch, Planting(patch)))

    def seconds_to_find(self, name: str, seeds: range, haste: int, limit_s: float) -> float | None:
        """Core seconds until one of these seeds finds a planted bug; None = more than `limit_s`."""
        logging.getLogger("dejaqueue").setLevel(logging.CRITICAL)
        named = {} if haste == 1 else {"haste": haste}
        with pytest.MonkeyPatch.context() as patch:
            self.plant(name, patch)
            began_s = time.process_time()
            for seed in seeds:
                is_found = self.finds(seed, **named)
                took_s = time.process_time() - began_s
                if is_found:
                    return took_s
                if took_s > limit_s:
                    break
        return None

    def seed_that_finds(self, name: str, patch: pytest.MonkeyPatch) -> int | None:
        """The seed that finds a planted bug, beginning with the one that did before."""
        logging.getLogger("dejaqueue").setLevel(logging.CRITICAL)
        self.plant(name, patch)
        first = self.found_by().get(name, 1)
        seeds = [first, *(seed for seed in range(1, SEEDS_MAX + 1) if seed != first)]
        try:
            if self.before and self.finds(first, **self.before):
                return first
            return next((seed for seed in seeds if self.finds(seed)), None)
        finally:
            logging.getLogger("dejaqueue").setLevel(logging.NOTSET)


_HERE = Path(__file__).parent
BROKER = Garden(mutants.MUTANTS, simulate, _HERE / "found_by.json")
VIEWS = Garden(mutants_views.MUTANTS, partial(simulate, views=True), _HERE / "found_by_views.json")
_BEFORE = {"plan": PLAIN}
CLUSTER = Garden(
    cluster_mutants.MUTANTS, simulate_cluster, _HERE / "cluster" / "found_by.json", _BEFORE
)
KEYS = Garden(mutants_keys.MUTANTS, simulate_keys, _HERE / "cluster" / "found_by_keys.json")
REGISTERS = Garden(
    mutants_registers.MUTANTS,
    simulate_registers,
    _HERE / "cluster" / "found_by_registers.json",
    _BEFORE,
)
CLIENTS = Garden(
    mutants_clients.MUTANTS, simulate_clients, _HERE / "cluster" / "found_by_clients.json"
)
MOVES = Garden(mutants_moves.MUTANTS, simulate_moves, _HERE / "cluster" / "found_by_moves.json")
SERVERS = Garden(
    mutants_servers.MUTANTS, simulate_servers, _HERE / "cluster" / "found_by_servers.json"
)
