"""`python -m tests.crash.powercut --engine sqlite --cuts 20`: what `make powercut` runs.

A real broker under load, whose journal's engine keeps its files on a disk that loses what was not
synced. The power is cut, broker and engine are killed at that instant, the disk comes back with
what survived, all is started again, and so on. Then everything is drained and rules 1 to 6 are
judged. At the end the control: on a disk that lies about its syncs, messages must be lost.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from dejaqueue import Client
from dev.reaper import start_reaper
from dev.services.service import ServiceFailed
from tests.crash.load import Load
from tests.crash.lossy_mount import missing
from tests.crash.powercut_engines import ENGINES, SERVICES, Engine, engine_on
from tests.crash.stall import watched

CONTROL_MESSAGES = 200
FAULTS_SHOWN = 10


@dataclass
class Verdict:
    """What became of it.

    Attributes:
        cuts: how often what was cut.
        sent, acked: messages whose send and whose ack was answered OK.
        changed: moves and cancels that were answered OK.
        lost: acknowledged messages that never came.
        faults: every breach of a rule.
    """

    cuts: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    acked: int = 0
    changed: int = 0
    lost: int = 0
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        cuts = ", ".join(f"{what}: {count}" for what, count in sorted(self.cuts.items()))
        return (
            f"{self.cuts.total()} cuts ({cuts}); acknowledged: {self.sent} sends, {self.acked} "
            f"acks, {self.changed} moves and cancels; lost {self.lost}, "
            f"{len(self.faults)} faults; {self.seconds:.0f} s"
        )


def under_load(engine: Engine, cuts: int, chance: random.Random) -> Verdict:
    """Cut the power again and again; what the clients saw is judged."""
    load = Load(engine.broker.url)
    began = time.monotonic()
    with watched(load.progress, engine.broker) as stalls:
        load.begin()
        try:
            for _ in range(cuts):
                threading.Event().wait(chance.uniform(0.0, 2.5))
                engine.cut()
        except BaseException:
            load.end(drained=False)
            raise
        load.end()
    seen = load.history
    faults = [*seen.faults(), *stalls]
    return Verdict(
        Counter(engine.cuts),
        len(seen.sent),
        len(seen.acked_us),
        len(seen.moved) + len(seen.cancelled_us),
        sum(fault.startswith("rule 1:") for fault in faults),
        faults,
        time.monotonic() - began,
    )


def control(engine: Engine) -> tuple[int, int]:
    """The disks lie about their syncs, and the power is cut: acknowledged messages, and lost."""
    with Client(engine.broker.url) as client:
        client.create_topic("control")
        engine.ask_all("settle")
        engine.ask_all("lie 1")
        due = [client.send("control", b"x" * 100, delay=600) for _ in range(CONTROL_MESSAGES)]
    try:
        engine.cut_all(0.0)
    except (AssertionError, ServiceFailed) as refused:
        print(f"control: not started again: {str(refused)[-500:]}")
        return len(due), len(due)
    with Client(engine.broker.url) as client:
        names = [topic.name for topic in client.topics()]
        left = client.stats("control")["scheduled"] if "control" in names else 0
    return len(due), len(due) - left


def run(name: str, cuts: int, seed: int, *, journaled: bool) -> int:
    """Both; 1 if anything was lost under load, or nothing in the control."""
    chance = random.Random(seed)
    random.seed(seed)
    bad = 0
    if cuts:
        with (
            tempfile.TemporaryDirectory(prefix="dejaq-power-") as place,
            engine_on(name, Path(place), chance, journaled=journaled) as engine,
        ):
            try:
                verdict = under_load(engine, cuts, chance)
            except (AssertionError, ServiceFailed):
                print(f"{name}: after {engine.cuts}\n{engine.broker.log_text()[-5_000:]}")
                raise
            bad += bool(verdict.faults) or verdict.acked < 100
            for fault in verdict.faults[:FAULTS_SHOWN]:
                print(fault)
            if bad:
                print(engine.broker.log_text()[-5_000:])
        print(f"{name}: {verdict}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="dejaq-power-") as place,
        engine_on(name, Path(place), chance, journaled=journaled) as engine,
    ):
        sent, lost = control(engine)
    print(f"{name}: control, syncs that are lies: {lost} of {sent} acknowledged messages lost")
    return int(bool(bad) or not lost)


def lacking(name: str) -> str:
    """What this machine lacks for an engine; "" = nothing."""
    service = SERVICES.get(name)
    return missing() or (service.missing() if service is not None else None) or ""


def main() -> int:
    """Run; 2 where it cannot be run."""
    start_reaper()
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", choices=ENGINES, default="segment")
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument(
        "--posix", action="store_true", help="a name is durable only when its directory is synced"
    )
    options = parser.parse_args()
    lacks = lacking(options.engine)
    if lacks:
        print(f"{options.engine}: cannot be run here: {lacks}")
        return 1 if os.environ.get("REQUIRE_ALL") == "1" else 2
    logging.disable(logging.WARNING)  # clients that lose their broker say so each time
    print(f"{options.engine}: seed {options.seed}", flush=True)
    return run(options.engine, options.cuts, options.seed, journaled=not options.posix)


if __name__ == "__main__":
    sys.exit(main())
