"""What goes wrong in a mixture, and what operators do to it meanwhile."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from dejaqueue import Client
from dejaqueue.errors import BadRequest, DejaQError
from tests.mixture.places import Place
from tests.mixture.plan import KINDS, Plan, new_master_key
from tests.patience import PATIENCE_SECONDS

BUSY = ("one at a time", "is being taken already")


class Accidents:
    """What may happen to brokers.

    Args:
        where: where they run.
        place: for files.

    Attributes:
        erased: (topic, key) of what was erased: nobody has to get it.
        faults: what commands and ends were wrong.
    """

    def __init__(self, where: Place, plan: Plan, place: Path) -> None:
        self._where, self._plan, self._place = where, plan, place
        self._draw = random.Random(plan.seed)
        self.erased: list[tuple[str, str]] = []
        self.faults: list[str] = []

    def happen(self, name: str) -> None:
        """One of plan.ACCIDENTS. Clients are told of most of them; this one may be, too."""
        method = getattr(self, f"_{name.replace('-', '_')}")
        with suppress(DejaQError):  # a broker that is away for a moment
            method()

    def _kill_process(self) -> None:
        self._where.kill_one()

    def _pause_process(self) -> None:
        self._where.pause_one()

    def _kill_all(self) -> None:
        self._where.kill()
        self._where.start()

    def _stop_all(self) -> None:
        self.note_stops(self._where.restart())

    def _join_or_leave(self) -> None:
        self.note_stops(self._where.join_or_leave())

    def note_stops(self, statuses: list[int]) -> None:
        """Brokers were asked to stop, and ended with these."""
        if any(statuses):
            self.faults.append(f"graceful stops ended with {statuses}")

    def _master_key(self) -> None:
        if "encryption__master_key" in self._plan.settings:
            new_master_key(self._place, self._draw)
            self._stop_all()

    def _backup(self) -> None:
        self.command("backup", "to", str(self._place / "by-hand"))

    def _erase(self) -> None:
        topic, key = self._draw.choice(KINDS), f"0-{self._draw.randrange(1, 50)}-0"
        self.erased.append((topic, key))
        self.command("erase", topic, "--key", key, "--yes")

    def _grow(self) -> None:
        topic = self._draw.choice(KINDS)
        with Client(self._where.url) as client, suppress(BadRequest):  # there are enough
            has = client.topic(topic)
            client.alter_topic(topic, partitions=has.partitions + has.spread)

    def _pause_topic(self) -> None:
        topic = self._draw.choice(KINDS)
        with Client(self._where.url) as client:
            client.pause_topic(topic)
            threading.Event().wait(0.5)
            client.resume_topic(topic)

    def command(self, *words: str, is_online: bool = True) -> None:
        """A command of `dejaq` with the settings of the broker; noted if it fails."""
        more = ("--url", self._where.url) if is_online else ()
        done = subprocess.run(
            [sys.executable, "-m", "dejaqueue", *words, *more],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
            env=self._where.environment,
        )
        away = done.returncode == 4  # try later, or no broker
        if done.returncode and not away and not any(one in done.stderr for one in BUSY):
            self.faults.append(f"{' '.join(words)}: {done.returncode}: {done.stderr[-800:]}")
