"""One run: brokers and what they stand on, clients, a plan of faults, a drain, the judge."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from dejaqueue import Client, DejaQError
from dejaqueue.cluster.placement import dealt, hashed_slot
from dejaqueue.settings import ClusterSettings
from tests.chaos.clients import CONSUMER_LEASE_MS, Clients
from tests.chaos.faults import KINDS, OWNER, Step, servers_of
from tests.chaos.machines import (
    BACKENDS,
    BROKERS,
    LEASE_MS,
    PORT,
    SERVE,
    BrokerMachine,
)
from tests.chaos.network import Network
from tests.chaos.notes import Notes
from tests.chaos.registers import Registers
from tests.checker.history import History
from tests.checker.judge import judge
from tests.patience import PATIENCE_SECONDS, until

DRAIN_SECONDS_MAX = PATIENCE_SECONDS
STORIES = 20
"""Faults whose histories are written down."""


def _topics(how_many: int) -> list[str]:
    """Topics that different brokers serve when all are there."""
    found: dict[str, str] = {}
    slots = ClusterSettings().slots
    owners = dealt(BROKERS, slots)
    for number in count():
        topic = f"chaos{number}"
        found.setdefault(owners[hashed_slot(topic, slots)], topic)
        if len(found) == how_many:
            return list(found.values())
    raise AssertionError


TOPICS = _topics(2)


@dataclass
class Report:
    """What a run has seen.

    Attributes:
        registers: what was asked of keys, topics and transactions.
        gaps_s: by kind: from the end of a fault until a message that was sent after it has come.
        faults: everything that was promised and not kept; empty = all is well.
    """

    seed: int
    gaps_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    kinds: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    registers: str = ""
    seconds: float = 0.0
    drain_seconds: float = 0.0

    def text(self) -> str:
        """As people read it."""
        lines = [
            f"{'fault':<14}{'times':>6}{'  s until deliveries went on: median':>34}{'most':>7}"
        ]
        for kind in sorted(self.kinds):
            gaps = self.gaps_s[kind]
            middle = f"{statistics.median(gaps):.1f}" if gaps else "-"
            most = f"{max(gaps):.1f}" if gaps else "-"
            lines.append(f"{kind:<14}{self.kinds[kind]:>6}{middle:>34}{most:>7}")
        counted = ", ".join(f"{n:,} {what}" for what, n in self.operations.items())
        lines.append(f"{self.seconds:.0f} s, {counted}; drained in {self.drain_seconds:.1f} s")
        lines.append(self.registers)
        lines += [f"FAULT {fault}" for fault in self.faults[:30]]
        broken = f"{len(self.faults)} faults"
        kept = "nothing lost, nothing early, nothing twice, no stale ack accepted"
        lines.append(f"seed {self.seed}: {broken if self.faults else kept}")
        return "\n".join(lines)


def _busy() -> float:
    """How many times more than it can this machine has to do: so much longer all may take."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def say(text: str) -> None:
    """Print at once."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


class Chaos:
    """A cluster in trouble.

    Attributes:
        machine: what a broker runs on.

    Args:
        program: what brokers run instead of `-m dejaqueue`.
        has_disks: brokers get disks that can be full, slow and read-only.
        patience: deliveries may take so many times longer to go on; for machines that are busy.
    """

    machine: type[BrokerMachine] = BrokerMachine

    def __init__(
        self,
        network: Network,
        backend: str,
        folder: Path,
        report: Report,
        program: tuple[str, ...] = SERVE,
        patience: float = 1.0,
        *,
        has_disks: bool = False,
    ) -> None:
        self.network, self.folder = network, folder
        self.backend = BACKENDS[backend]()
        self.backend.has_disks = has_disks
        self.servers = servers_of(backend)
        self.topics = list(TOPICS)
        self.report = report
        self._resume_seconds_max = self.backend.resume_seconds_max * patience
        self.brokers: dict[str, BrokerMachine] = {}
        self._program = program
        self._owners: dict[str, str] = {}
        self._timers: dict[int, tuple[threading.Event, threading.Thread]] = {}
        self._tickets = count()

    # --- what faults use --------------------------------------------------------------------------

    def every(self, seconds: float, call: Callable[[], None]) -> int:
        """Call again and again; a number to `cancel` it by."""
        ended, number = threading.Event(), next(self._tickets)

        def run() -> None:
            while not ended.wait(seconds):
                call()

        thread = threading.Thread(target=run, daemon=True)
        self._timers[number] = ended, thread
        thread.start()
        return number

    def cancel(self, number: int) -> None:
        """Call no more."""
        ended, thread = self._timers.pop(number)
        ended.set()
        thread.join()

    def owner(self, place: int) -> str:
        """The broker that serves a topic, as far as can be found out."""
        topic = self.topics[place]
        for broker in self.brokers.values():
            if not broker.is_running:
                continue
            try:
                with Client(broker.url, retry_ms_max=200) as client:
                    found = client.cluster(topic)["topics"][0]["node"]
            except (DejaQError, IndexError):
                continue
            if found:
                self._owners[topic] = found
                break
        return self._owners.get(topic, BROKERS[0])

    def wait_ready(self, name: str) -> None:
        """Until a broker serves."""
        broker = self.brokers[name]
        until(lambda: broker.is_ready or bool(broker.faults), f"broker {name} is ready")

    # --- a run ------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start everything."""
        self.backend.start(self.network, self.folder)
        for name in BROKERS:
            settings = {
                "cluster__lease_ms": LEASE_MS,
                "journal__snapshot_entries": 300,
                **self.backend.settings(name),
            }
            self.brokers[name] = self.machine(
                name, self.network, self.folder, settings, self._program
            )
        for broker in self.brokers.values():
            broker.start()
        for name in self.brokers:
            self.wait_ready(name)
        notes = Notes(
            {broker.address: broker.clock for broker in self.brokers.values()}, CONSUMER_LEASE_MS
        )
        url = "dejaq://" + ",".join(f"{b.address}:{PORT}" for b in self.brokers.values())
        self.clients = Clients(url, notes, self.topics, self.report.seed)
        self.notes = notes
        urls = [f"dejaq://{broker.address}:{PORT}" for broker in self.brokers.values()]
        self.registers = Registers(self.clients.client, urls, self.report.seed)
        self.registers.begin()
        with self.clients.client(30_000) as client:
            for topic in self.topics:
                client.create_topic(topic, partitions=2)

    def run(self, steps: Sequence[Step]) -> Report:
        """Do all of it, and judge."""
        began = time.monotonic()
        self.begin()
        say(f"{self.backend.name}: everything runs")
        self.clients.begin()
        for number, step in enumerate(steps, 1):
            self._do(f"{number} of {len(steps)}", step)
        self._end()
        self.report.seconds = time.monotonic() - began
        self._judge()
        # CI shows the end of what was printed; this stays beside the logs.
        (self.folder / "report.txt").write_text(self.report.text())
        return self.report

    def _do(self, place: str, step: Step) -> None:
        threading.Event().wait(step.gap_s)
        text = f"{place}: {step}"
        mends = []
        began = time.monotonic()
        for fault in step.faults:
            whom = self.owner(fault.topic) if fault.whom == OWNER else fault.whom
            text += f" [{whom}]"
            mends.append(KINDS[fault.kind].begin(self, whom, fault.size))
        threading.Event().wait(max(0.0, step.length_s - (time.monotonic() - began)))
        for mend in mends:
            mend()
        gap_s = self._resumed()
        for fault in step.faults:
            self.report.kinds[fault.kind] += 1
            self.report.gaps_s[fault.kind].append(gap_s)
        say(f"{text}: went on after {gap_s:.1f} s (load {os.getloadavg()[0]:.0f})")
        if gap_s > self._resume_seconds_max * _busy():
            self.report.faults.append(f"deliveries went on only after {gap_s:.1f} s: {step}")
        for name in self.brokers:
            self.wait_ready(name)

    def _resumed(self) -> float:
        """Wait until messages that are sent from now on have come, of every topic; how long."""
        began = time.monotonic()
        marks = {topic: len(self.notes.histories[topic].sends) for topic in self.topics}
        end = began + 2 * self._resume_seconds_max * _busy()
        while any(self.notes.newest[topic] <= mark for topic, mark in marks.items()):
            if time.monotonic() > end:
                break
            threading.Event().wait(0.05)
        return time.monotonic() - began

    def _end(self) -> None:
        """Mend everything, send no more, and have everything delivered and acked."""
        self.network.mend()
        for broker in self.brokers.values():
            self.wait_ready(broker.name)
        self.clients.stop_producing()
        self.clients.careless = 0.0
        began = time.monotonic()
        self._drain()
        self.report.drain_seconds = time.monotonic() - began
        # What was only in the memory of a broker is lost, or back, after this.
        for broker in self.brokers.values():
            broker.end()
        for broker in self.brokers.values():
            broker.start()
        for broker in self.brokers.values():
            self.wait_ready(broker.name)
        self._drain()
        self.clients.stop_consuming()
        self.registers.end()

    def _drain(self) -> None:
        left: dict[str, int] = {}
        end = time.monotonic() + DRAIN_SECONDS_MAX * _busy()
        with self.clients.client(5_000) as client:
            while time.monotonic() < end:
                try:
                    stats = {topic: client.stats(topic) for topic in self.topics}
                except DejaQError:
                    continue
                left = {t: one["scheduled"] + one["leased"] for t, one in stats.items()}
                if not any(left.values()):
                    return
                threading.Event().wait(0.2)
        self.report.faults.append(f"not drained: {left}")

    def _judge(self) -> None:
        for topic in self.topics:
            history = self.notes.histories[topic]
            history.drained = True
            found = judge(history)
            self.report.faults += [f"{topic}: {fault}" for fault in found]
            with (self.folder / "stories.txt").open("a") as file:
                for fault in found[:STORIES]:
                    file.write(f"{topic}: {fault}\n{history.text(fault.id)}\n\n")
            self._count(history)
        self.report.faults += [f"registers: {fault}" for fault in self.registers.judge()]
        self.report.registers = self.registers.text()
        self.report.faults += [*self.notes.unexpected, *self.registers.unexpected]
        for broker in self.brokers.values():
            self.report.faults += broker.faults
            if "Traceback" in broker.log.read_text(errors="replace"):
                self.report.faults.append(f"a traceback in the log of {broker.name}")

    def _count(self, history: History) -> None:
        counts = self.report.operations
        counts["sends"] += len(history.sends)
        counts["deliveries"] += len(history.deliveries)
        for settle in history.settles:
            counts[f"{settle.op}s"] += 1
        counts["moves"] += len(history.moves)
        counts["cancels"] += len(history.cancels)

    def close(self) -> None:
        """End everything that was started; twice is fine."""
        for number in list(self._timers):
            self.cancel(number)
        for broker in self.brokers.values():
            broker.end()
        self.backend.stop()


def run(
    backend: str,
    seed: int,
    steps: Sequence[Step],
    folder: Path,
    program: tuple[str, ...] = SERVE,
    patience: float = 1.0,
    chaos_type: type[Chaos] = Chaos,
) -> Report:
    """One run in a network of its own, which is taken down whatever happens."""
    os.environ["GRPC_VERBOSITY"] = "NONE"
    with Network(BACKENDS[backend].ports) as network:
        kinds = {KINDS[fault.kind].field for step in steps for fault in step.faults}
        chaos = chaos_type(
            network,
            backend,
            folder,
            Report(seed),
            program,
            patience,
            has_disks="disk" in kinds,
        )
        try:
            return chaos.run(steps)
        finally:
            chaos.close()
