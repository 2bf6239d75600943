"""Planting bugs: which seed of a simulation finds each."""

from __future__ import annotations

import inspect
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
from tests.simulation.cluster.plan import BEGINNINGS, CLOCKS, PLAIN, SLEEPS, choose_plan
from tests.simulation.cluster.registers import simulate_registers
from tests.simulation.cluster.run import simulate_cluster
from tests.simulation.cluster.run_clients import simulate_clients
from tests.simulation.cluster.run_moves import simulate_moves
from tests.simulation.run import Run, simulate

assert mutants_kinds
SEEDS_MAX = 100
"""A planted bug is found by one of these, unless one that is kept finds it."""
KEPT_MAX = 3


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
        path: says which seeds found each, the newest first: they are tried first. Several, because
            a change of the product makes another run of a seed. Written by `make mutants`.
        haste: seeds are so many times shorter; 0 = the kind knows no haste.
        first: the others are tried from this one on.
        aims: by bug, what its seeds surely have of what their plans leave to chance: faults of the
            class that the bug is of. Without it a bug that chance seldom meets would be searched
            for minutes once no kept seed finds it any more.
    """

    mutants: dict[str, Callable[[pytest.MonkeyPatch], None]]
    simulate: Callable[..., Run]
    path: Path
    haste: int = 0
    first: int = 1
    aims: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def found_by(self) -> dict[str, list[int]]:
        """The seeds that found each, the newest first."""
        kept: dict[str, list[int]] = json.loads(self.path.read_text()) if self.path.exists() else {}
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
        """Core seconds until one of these seeds finds a planted bug, with nothing aimed at it; None
        = more than `limit_s`."""
        named = {} if haste == 1 else {"haste": haste}
        with _quiet(), pytest.MonkeyPatch.context() as patch:
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

    def seeds_that_find(self, name: str, patch: pytest.MonkeyPatch) -> Iterator[int]:
        """Seeds that find a planted bug, beginning with those that did before. Ends after
        SEEDS_MAX others."""
        self.plant(name, patch)
        kept = self.found_by().get(name, [])
        others = range(self.first, self.first + SEEDS_MAX)
        with _quiet():
            for seed in (*kept, *(one for one in others if one not in kept)):
                if self.finds(seed, **self._named(name, seed)):
                    yield seed

    def seed_that_finds(self, name: str, patch: pytest.MonkeyPatch) -> int | None:
        """The first of them; None: `missed` says so."""
        return next(self.seeds_that_find(name, patch), None)

    def missed(self, name: str) -> str:
        """What to say about a planted bug that was not found."""
        seeds = self.found_by().get(name, [])
        return (
            f"nobody noticed {name}: seeds {seeds}, and {SEEDS_MAX} from {self.first} on, were "
            f"tried; `make mutants ARGS={name}` looks for others"
        )

    def _named(self, name: str, seed: int) -> dict[str, Any]:
        named: dict[str, Any] = {"haste": self.haste} if self.haste else {}
        if aims := self.aims.get(name):
            named["plan"] = replace(choose_plan(seed, self.haste), **aims)
        return named


@contextmanager
def _quiet() -> Iterator[None]:
    """What breaks is meant to."""
    log = logging.getLogger("dejaqueue")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


_HERE = Path(__file__).parent
_CLUSTER = _HERE / "cluster"
_FIRST = 7_500_000
_HANGS: Mapping[str, Any] = {"hangs": True}
_CLOCKS: Mapping[str, Any] = {"surely": frozenset({CLOCKS})}
AIMS: Mapping[str, Mapping[str, Any]] = {
    "appends_hold_their_worker": _HANGS,
    "journals_are_opened_by_their_worker": _HANGS,
    "partitions_are_closed_by_their_worker": _HANGS,
    "who_comes_with_another_clock_serves": _CLOCKS,
    "a_clock_that_jumps_is_believed": _CLOCKS,
    "a_sleeper_sends_what_it_leased": {"surely": frozenset({SLEEPS})},
    "a_beginning_is_taken_for_the_whole": {"surely": frozenset({BEGINNINGS})},
    # At full length, with no plan: topics live long enough there for somebody to be told late.
    "a_decision_goes_with_its_topic": vars(PLAIN),
}
"""Of bugs of clusters. See Garden.aims."""

BROKER = Garden(mutants.MUTANTS, simulate, _HERE / "found_by.json")
VIEWS = Garden(mutants_views.MUTANTS, partial(simulate, views=True), _HERE / "found_by_views.json")
CLUSTER = Garden(
    cluster_mutants.MUTANTS, simulate_cluster, _CLUSTER / "found_by.json", 4, _FIRST, AIMS
)
KEYS = Garden(mutants_keys.MUTANTS, simulate_keys, _CLUSTER / "found_by_keys.json")
REGISTERS = Garden(
    mutants_registers.MUTANTS,
    partial(simulate_registers, plan=PLAIN),
    _CLUSTER / "found_by_registers.json",
)
CLIENTS = Garden(mutants_clients.MUTANTS, simulate_clients, _CLUSTER / "found_by_clients.json")
MOVES = Garden(mutants_moves.MUTANTS, simulate_moves, _CLUSTER / "found_by_moves.json")
SERVERS = Garden(mutants_servers.MUTANTS, simulate_servers, _CLUSTER / "found_by_servers.json")
