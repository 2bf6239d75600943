"""Where a mixture runs: one broker, several processes of one machine, or brokers of a cluster.

A place is one thing for the loads: `url` reaches all brokers that were there first, `http_port` is
that of one which is up.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

from dev.services import start
from tests.cluster.embedded import EmbeddedCluster
from tests.cluster.served import brokers_to_start
from tests.crash.broker_process import BrokerProcess
from tests.crash.test_processes_kill import children_of, is_gone
from tests.mixture.plan import ALONE, JETSTREAM, PROCESSES, Plan
from tests.patience import until

LEASE_MS = 3_000
FIRST, LATER = "abc", "de"
"""Brokers of a cluster that are there from the beginning, and those that may join."""
SLEEPS_S = (1, 7)


class Place(ABC):
    """Brokers on one machine, and what may happen to each of them."""

    def __init__(self, plan: Plan) -> None:
        self._draw = random.Random(plan.seed)
        self.environment = os.environ | {
            f"DEJAQ_{name.upper()}": str(value) for name, value in plan.settings.items()
        }
        """With the settings of its brokers, for commands."""
        self.environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)

    @property
    @abstractmethod
    def url(self) -> str:
        """Of its brokers."""

    @property
    @abstractmethod
    def http_port(self) -> int:
        """Of one that is up."""

    @abstractmethod
    def start(self) -> None:
        """Start all; return when they listen."""

    @abstractmethod
    def kill(self) -> None:
        """SIGKILL to all; return when they are gone."""

    @abstractmethod
    def stop(self) -> list[int]:
        """SIGTERM to all; the exit status of each."""

    @abstractmethod
    def restart(self) -> list[int]:
        """Stop and start, one after the other if there are several; the exit statuses."""

    @abstractmethod
    def kill_one(self) -> None:
        """End one with or without grace; it comes back."""

    @abstractmethod
    def pause_one(self) -> None:
        """One of them stands still for a while."""

    @abstractmethod
    def log_text(self) -> str:
        """What all of them logged."""

    def join_or_leave(self) -> list[int]:
        """One joins or leaves for good, where that may be; the exit status of who left."""
        return []

    def close(self) -> None:
        """End all that runs here."""
        self.kill()

    def _sleep(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        threading.Event().wait(self._draw.choice(SLEEPS_S))
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


class OneMachine(Place):
    """A broker alone, or several processes of one."""

    def __init__(self, plan: Plan, place: Path) -> None:
        super().__init__(plan)
        self._broker = BrokerProcess(place / "data", place / "broker.log", **plan.settings)
        self._is_divided = plan.place == PROCESSES

    @property
    def url(self) -> str:
        return self._broker.url

    @property
    def http_port(self) -> int:
        return self._broker.http_port

    def start(self) -> None:
        self._broker.start()

    def kill(self) -> None:
        children = self._children() if self._broker.is_up else []
        self._broker.kill()
        until(lambda: all(is_gone(child) for child in children), "children end with their parent")

    def stop(self) -> list[int]:
        return [self._broker.stop()]

    def restart(self) -> list[int]:
        status = self.stop()
        self.start()
        return status

    def _children(self) -> list[int]:
        return children_of(self._broker.pid) if self._is_divided else []

    def kill_one(self) -> None:
        if children := self._children():
            number = self._draw.choice([signal.SIGKILL, signal.SIGTERM])
            os.kill(self._draw.choice(children), number)

    def pause_one(self) -> None:
        if children := self._children():
            self._sleep(self._draw.choice(children))

    def log_text(self) -> str:
        return self._broker.log_text()


class Brokers(Place):
    """Brokers of a cluster.

    Args:
        made: by name; those of LATER may be left out.
    """

    def __init__(self, plan: Plan, made: dict[str, BrokerProcess]) -> None:
        super().__init__(plan)
        self._brokers, self._first = made, [made[name] for name in FIRST]

    @property
    def _up(self) -> list[BrokerProcess]:
        return [broker for broker in self._brokers.values() if broker.is_up]

    @property
    def url(self) -> str:
        return "dejaq://" + ",".join(f"127.0.0.1:{broker.port}" for broker in self._first)

    @property
    def http_port(self) -> int:
        return random.choice(self._up or self._first).http_port

    def start(self) -> None:
        """Those that were there last; at once, as some wait for the others."""
        there = [broker for broker in self._first if not broker.is_up]
        with ThreadPoolExecutor(len(FIRST)) as pool:
            list(pool.map(BrokerProcess.start, there))

    def kill(self) -> None:
        for broker in self._up:
            broker.kill()

    def stop(self) -> list[int]:
        with ThreadPoolExecutor(len(self._brokers)) as pool:
            return list(pool.map(BrokerProcess.stop, self._up))

    def restart(self) -> list[int]:
        statuses = []
        for broker in self._up:
            statuses.append(broker.stop())
            broker.start()
        return statuses

    def kill_one(self) -> None:
        broker = self._draw.choice(self._up)
        self._draw.choice([broker.kill, broker.stop])()
        threading.Event().wait(self._draw.choice([0, 4]))  # sooner and later than its lease ends
        broker.start()

    def pause_one(self) -> None:
        self._sleep(self._draw.choice(self._up).pid)

    def join_or_leave(self) -> list[int]:
        later = [self._brokers[name] for name in LATER if name in self._brokers]
        away = [broker for broker in self._brokers.values() if not broker.is_up]
        if away and self._draw.random() < len(away) / max(1, len(later)):
            self._draw.choice(away).start()
            return []
        # One that all loads know stays.
        may_leave = [broker for broker in self._up if broker is not self._first[0]]
        return [self._draw.choice(may_leave).stop()] if later and may_leave else []

    def log_text(self) -> str:
        return "\n".join(broker.log_text() for broker in self._brokers.values() if broker.port)


def place_of(plan: Plan, folder: Path, ends: ExitStack) -> Place:
    """The place that a plan says, with the servers that it needs; not started yet.

    Args:
        folder: for its files; an empty directory.
        ends: what ends it.
    """
    made: Place
    if plan.place in (ALONE, PROCESSES):
        made = OneMachine(plan, folder)
    elif plan.place == JETSTREAM:
        cluster = EmbeddedCluster(folder, **plan.settings)
        cluster.make(*FIRST)
        made = Brokers(plan, cluster.brokers)
    else:
        servers = [ends.enter_context(start(name)) for name in ("postgresql", "etcd")]
        names = FIRST + LATER
        at = brokers_to_start(folder, servers[0], servers[1], LEASE_MS, names, **plan.settings)
        made = Brokers(plan, dict(zip(names, ends.enter_context(at), strict=True)))
    ends.callback(made.close)
    return made
