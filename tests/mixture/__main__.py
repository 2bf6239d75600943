"""`python -m tests.mixture --seed N --count M --seconds S`: what `make mixture` runs.

Each seed is a broker, several processes, or a cluster, with settings that were drawn for all that
may meet: encryption, an archive, a payload store, cold payloads, history, erasure, SQS, spikes.
Clients of several kinds use topics of all kinds, while processes and brokers are killed and paused,
join and leave, all is stopped and started, master keys change, topics grow, are deleted and made
again. In the end everything is drained; the
rules are judged, the log has no error, and what was archived is restored elsewhere and serves.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dejaqueue import Client
from dev.reaper import start_reaper
from tests.crash.broker_process import BrokerProcess
from tests.crash.load import Load
from tests.mixture.accidents import Accidents
from tests.mixture.foreign import LOADS, Foreign
from tests.mixture.places import place_of
from tests.mixture.plan import ACCIDENTS, KINDS, Plan

WRONG = re.compile(r"^.*(?:Traceback|InternalError|broke off|is not what was written).*$", re.M)
ARCHIVED_SECONDS = 2.0
PAUSE_SECONDS = 0.15
"""Of a producer between two batches: consumers keep up on a busy machine, too."""
AGAIN = "again"
"""The topic that is deleted and made again."""


class Mixture:
    """One seed.

    Args:
        place: an empty directory.
    """

    def __init__(self, seed: int, place: Path) -> None:
        self.plan, self.place = Plan.drawn(seed, place), place
        self._ends = ExitStack()
        self.where = place_of(self.plan, place, self._ends)
        self.accidents = Accidents(self.where, self.plan, place)
        self._loads: dict[str, Load] = {}
        self._foreign: list[Foreign] = []
        self.faults: list[str] = []

    def run(self, seconds: float) -> list[str]:
        """What was wrong; empty = nothing."""
        plan = self.plan
        print(f"seed {plan.seed}: {plan.place} {plan.settings} {plan.topics}", flush=True)
        with self._ends:
            self.where.start()
            self._begin()
            self._disturb(seconds)
            self._end()
            self._judge()
            self._restore()
        return self.faults + self.accidents.faults

    def _begin(self) -> None:
        for kind in KINDS:
            self._add(kind, self.plan.topics[kind])
        self._add(AGAIN, self.plan.topic_settings("timeline"))
        for kind in self.plan.foreign:
            draw = random.Random(self.plan.random.random())
            settings = self.plan.topic_settings("timeline", is_plain=True)
            load = LOADS[kind](self.where, f"foreign-{kind}", draw, settings)
            load.begin()
            self._foreign.append(load)

    def _add(self, name: str, settings: dict[str, Any]) -> None:
        load = Load(self.where.url, name, workers=1, pause_s=PAUSE_SECONDS, **settings)
        self._loads[name] = load
        load.begin()

    def _disturb(self, seconds: float) -> None:
        draw, end = self.plan.random, time.monotonic() + seconds
        while time.monotonic() < end:
            threading.Event().wait(draw.uniform(1, 4))
            name = draw.choice(ACCIDENTS)
            print(f"{time.strftime('%X')} {name}", flush=True)
            if name == "topic-again":
                self._make_again(draw.choice(KINDS))
            else:
                self.accidents.happen(name)

    def _make_again(self, kind: str) -> None:
        load = self._loads.pop(AGAIN)
        self._end_one(AGAIN, load)
        with Client(self.where.url) as client:
            client.delete_topic(AGAIN)
        self._add(AGAIN, self.plan.topic_settings(kind))

    def _end_one(self, name: str, load: Load) -> None:
        try:
            load.end()
        except AssertionError as wrong:
            self.faults.append(f"{name}: {wrong}")
        for topic, key in self.accidents.erased:
            if topic == name:
                load.history.unsure.add(key)
        self.faults += [f"{name}: {fault}" for fault in load.history.faults()[:5]]
        history = load.history
        done = f"{len(history.sent)} sent, {len(history.acked_us)} acked"
        print(f"{time.strftime('%X')} {name}: {done}")

    def _end(self) -> None:
        for load in self._loads.values():
            load.send_no_more()  # so all of them are drained at the same time
        for foreign in self._foreign:
            foreign.send_no_more()
        for name, load in self._loads.items():
            self._end_one(name, load)
        for one in self._foreign:
            one.end()
            self.faults += one.judged()
            print(f"{time.strftime('%X')} {one.name}: {len(one.sent)} sent, {len(one.acked)} acked")

    def _judge(self) -> None:
        lines = WRONG.findall(self.where.log_text())
        self.faults += [f"log: {line[:400]}" for line in lines[:5]]

    def _live(self, url: str) -> dict[str, int]:
        with Client(url) as client:
            found = {kind: client.stats(kind) for kind in KINDS}
        return {kind: one.scheduled + one.leased for kind, one in found.items()}

    def _restore(self) -> None:
        """What is archived is what there is."""
        live = self._live(self.where.url)
        if "backup__url" not in self.plan.settings:
            return
        threading.Event().wait(ARCHIVED_SECONDS)
        self.accidents.note_stops(self.where.stop())
        where, place = str(self.plan.settings["backup__url"]), self.place / "restored"
        self.accidents.command("restore", where, "--data", str(place), is_online=False)
        if self.accidents.faults:
            return
        kept = {k: v for k, v in self.plan.settings.items() if not k.startswith("backup")}
        restored = BrokerProcess(place, self.place / "restored.log", **kept)
        restored.start()
        try:
            if (found := self._live(restored.url)) != live:
                self.faults.append(f"restored are {found}, and there were {live}")
        finally:
            restored.kill()
        lines = WRONG.findall(restored.log_text())
        self.faults += [f"log of what is restored: {line[:400]}" for line in lines[:5]]


def main() -> int:
    """Run; 1 if a rule was broken."""
    start_reaper()
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    broken = []
    for seed in range(options.seed, options.seed + options.count):
        random.seed(seed)
        place = Path(tempfile.mkdtemp(prefix=f"dejaq-mixture-{seed}-"))
        faults = Mixture(seed, place).run(options.seconds)
        for fault in faults:
            print(f"seed {seed}: {fault}", flush=True)
        if faults:
            broken.append(seed)
            print(f"seed {seed}: its files stay in {place}")
        else:
            shutil.rmtree(place)
    print(f"{options.count} seeds, broken: {broken or 'none'}")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
