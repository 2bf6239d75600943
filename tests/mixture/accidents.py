"""What goes wrong in a mixture, and what operators do to it meanwhile."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from dejaqueue import Client
from dejaqueue.errors import BadRequest, DejaQError
from tests.crash.broker_process import BrokerProcess
from tests.crash.test_processes_kill import children_of, is_gone
from tests.mixture.plan import KINDS, Plan, new_master_key
from tests.patience import PATIENCE_SECONDS, until

BUSY = ("one at a time", "is being taken already")


class Accidents:
    """What may happen to a broker.

    Attributes:
        erased: (topic, key) of what was erased: nobody has to get it.
        faults: what commands and ends were wrong.
    """

    def __init__(self, broker: BrokerProcess, plan: Plan, place: Path) -> None:
        self.broker, self._plan, self._place = broker, plan, place
        self._draw = random.Random(plan.seed)
        self.erased: list[tuple[str, str]] = []
        self.faults: list[str] = []

    def _children(self) -> list[int]:
        return children_of(self.broker.pid) if "server__processes" in self._plan.settings else []

    def happen(self, name: str) -> None:
        """One of plan.ACCIDENTS. Clients are told of most of them; this one may be, too."""
        method = getattr(self, f"_{name.replace('-', '_')}")
        with suppress(DejaQError):  # a broker that is away for a moment
            method()

    def _kill_process(self) -> None:
        if children := self._children():
            os.kill(
                self._draw.choice(children), self._draw.choice([signal.SIGKILL, signal.SIGTERM])
            )

    def _pause_process(self) -> None:
        if children := self._children():
            child = self._draw.choice(children)
            os.kill(child, signal.SIGSTOP)
            threading.Event().wait(self._draw.choice([1, 7]))
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGCONT)

    def _kill_all(self) -> None:
        children = self._children()
        self.broker.kill()
        until(lambda: all(is_gone(child) for child in children), "children end with their parent")
        self.broker.start()

    def _stop_all(self) -> None:
        if status := self.broker.stop():
            self.faults.append(f"a graceful stop ended with {status}")
        self.broker.start()

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
        with (
            Client(self.broker.url) as client,
            suppress(BadRequest),
        ):  # not a multiple of its spread
            client.alter_topic(topic, partitions=client.topic(topic).partitions + 1)

    def _pause_topic(self) -> None:
        topic = self._draw.choice(KINDS)
        with Client(self.broker.url) as client:
            client.pause_topic(topic)
            threading.Event().wait(0.5)
            client.resume_topic(topic)

    def command(self, *words: str, is_online: bool = True) -> None:
        """A command of `dejaq` with the settings of the broker; noted if it fails."""
        more = ("--url", self.broker.url) if is_online else ()
        done = subprocess.run(
            [sys.executable, "-m", "dejaqueue", *words, *more],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
            env=self.broker.environment,
        )
        away = done.returncode == 4  # try later, or no broker
        if done.returncode and not away and not any(one in done.stderr for one in BUSY):
            self.faults.append(f"{' '.join(words)}: {done.returncode}: {done.stderr[-800:]}")
