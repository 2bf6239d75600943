"""What came of a seed, as it travels between processes."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.simulation.cluster.beside import simulate_servers
from tests.simulation.cluster.keys import simulate_keys
from tests.simulation.cluster.registers import simulate_registers
from tests.simulation.cluster.run import simulate_cluster
from tests.simulation.cluster.run_clients import simulate_clients
from tests.simulation.cluster.run_moves import simulate_moves
from tests.simulation.run import Run
from tests.simulation.run import simulate as simulate_broker

KINDS: dict[str, Callable[..., Run]] = {
    "broker": simulate_broker,
    "cluster": simulate_cluster,
    "clients": simulate_clients,
    "moves": simulate_moves,
    "keys": simulate_keys,
    "registers": simulate_registers,
    "servers": simulate_servers,
    "rude": partial(simulate_broker, rude=True),
    "views": partial(simulate_broker, views=True),
}
UNHURRIED = ("keys", "servers")
"""Kinds that know no haste."""
HASTE_MAX = 16
"""In a shorter seed hardly a message is delivered before everything is mended."""


@dataclass
class Report:
    """What came of a seed.

    Attributes:
        lines: what went wrong, or all that happened.
    """

    failed: bool = False
    lines: list[str] = field(default_factory=list)
    deliveries: int = 0
    deaths: int = 0
    happened: int = 0
    virtual_seconds: float = 0.0


def run_one(
    seed: int, *, kind: str, haste: int = 1, twice: bool = False, prints: bool = False
) -> Report:
    """Run a seed of this kind, so many times shorter."""
    simulate = KINDS[kind] if haste == 1 else partial(KINDS[kind], haste=haste)
    logging.getLogger("dejaqueue").setLevel(logging.CRITICAL)  # what breaks is meant to
    report = Report()
    try:
        run = simulate(seed)
    except Exception:  # noqa: BLE001 - a bug in a seed is a finding
        return Report(failed=True, lines=[f"{kind}, seed {seed}: {traceback.format_exc()}"])
    report.deliveries, report.deaths = len(run.history.deliveries), run.deaths
    report.happened, report.virtual_seconds = run.happened, run.virtual_seconds
    if twice and simulate(seed).fingerprint != run.fingerprint:
        report.failed = True
        report.lines.append(f"{kind}, seed {seed}: two runs differ")
    if run.faults:
        report.failed = True
        again = f"make sim KIND={kind} SEED={seed} N=1"
        again += f" ARGS='--haste {haste}'" if haste > 1 else ""
        found = f"{kind}, seed {seed}: {len(run.faults)} faults; {again} to see it"
        report.lines += [found, *(f"  {fault}" for fault in run.faults[:5])]
    if prints:
        report.lines.append(run.history.text())
    return report
