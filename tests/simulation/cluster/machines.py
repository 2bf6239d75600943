"""Machines of a simulated cluster: each has a broker that lives, dies, sleeps and comes back.

Holds: what brokers agree on (facts) and what they keep (server.py) outlives them; a broker that
died does nothing any more, but what it had sent to the server may still arrive there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from greenlet import getcurrent

from dejaqueue.broker.broker import Broker
from dejaqueue.cluster.node import Node
from dejaqueue.cluster.shared_keys import SharedKeys
from dejaqueue.coordinator.interface import Coordinator, Fact
from dejaqueue.errors import DejaQError, Refused
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.settings import BrokerSettings, ClockSettings, DispatchSettings, JournalSettings
from dejaqueue.testing.simulation.disk import Died
from dejaqueue.testing.simulation.machine import JUMP_US, Machine
from dejaqueue.testing.simulation.threads import Gone
from dejaqueue.testing.simulation.world import Life, SimulatedClock, World
from tests.simulation.cluster.coordinators import LateReader, make_facts
from tests.simulation.cluster.fibers import FiberClock, Fibers, Waiter
from tests.simulation.cluster.peers import SimulatedPeers
from tests.simulation.cluster.plan import PLAIN, Plan
from tests.simulation.cluster.server import Line, Server
from tests.simulation.cluster.threads import FiberConcurrency, FiberThreads

SLOTS = 8
"""Of each simulated cluster: fewer than there are otherwise, since each is a call to claim."""

KeysOf = Callable[["ClusterMachine", Coordinator, Fibers], SharedKeys]


HANG_LOOK_US = 5_000


def _wait_while(fibers: Fibers, is_so: Callable[[], bool]) -> None:
    """Wait while something is true, where there is somebody who may."""
    if getcurrent() is not fibers.hub:
        fibers.pass_until(lambda: not is_so(), HANG_LOOK_US)


def _pass(fibers: Fibers, longest_us: int) -> None:
    """Wait, where there is somebody who may."""
    if getcurrent() is not fibers.hub:
        fibers.pass_time(fibers.world.between(20, longest_us))


class ClusterMachine(Machine):
    """One of several machines.

    Attributes:
        name: of its broker.
        line: of this life's broker to the server.
        coordinator: of this life's broker.
        adopts: it is started with cluster.adopt, since the coordinator had lost the cluster.
        starts_wrong: its clock stays as wrong as it is at the next start.
        is_gone: it has left for good, and does not start again.
    """

    sending_us = 0
    """How late threads that send may be, where they are."""

    def __init__(self, name: str, world: World, cluster: Cluster) -> None:
        super().__init__(world)
        self.name = name
        self._cluster = cluster
        self.node: Node | None = None
        self.line: Line | None = None
        self.coordinator: LateReader | None = None
        self.is_up = self.starts_wrong = self.is_gone = self.adopts = False
        self.life.over = True

    def start(self) -> None:
        """Start a broker; it is there a little later, or dies on the way."""
        if self.is_up or self.is_gone:
            return
        self.is_up = True
        self.restarts += 1
        life = self.life = Life(self.guarded)
        self._fibers = Fibers(self.world, life)
        self._latest_us = self.time_us
        if not self.starts_wrong:
            self.clock.jump(0)
        self.starts_wrong = False
        self.clock = self.clock.renewed()
        self.world.after(self.world.between(1_000, 50_000), self._boot, life)

    def _boot(self) -> None:
        cluster, world, fibers = self._cluster, self.world, self._fibers
        random = world.random
        settings = BrokerSettings(
            journal=JournalSettings(
                url="memory:",
                snapshot_entries=random.choice([0, 20, 200]),
                snapshot_interval_ms=random.choice([0, 2_000]),
            ),
            dispatch=DispatchSettings(workers=random.choice([1, 2])),
            clock=ClockSettings(step_ms_max=JUMP_US // 1_000),
        )
        plan = cluster.plan
        self.line = Line(world, fibers.life, cluster.server, cluster.trouble, plan.late_us_max)
        self.line.waits_while = partial(_wait_while, fibers)
        late_us_max = cluster.facts_us_max
        if cluster.append_us_max:
            self.line.takes_time = partial(_pass, fibers, cluster.append_us_max)
        threads = FiberThreads(fibers, is_apart=plan.is_apart)
        try:
            reader = LateReader(cluster.facts, cluster.times, world, fibers, late_us_max)
            self.coordinator = reader
            store = RecordJournalStore(
                self.line,
                segment_bytes=64 << 10,
                patience_seconds=plan.patience_seconds,
                concurrency=FiberConcurrency(fibers),
            )
            keys = cluster.keys_of(self, reader, fibers) if cluster.keys_of else None
            adopts, self.adopts = self.adopts, False
            clock = FiberClock(fibers)
            node = Node(
                self.name,
                reader,
                plan.lease_ms,
                clock,
                threads,
                keys,
                slots=SLOTS,
                adopts=adopts,
            )
            broker = Broker(settings, self.clock, store, threads, node=node)
            broker.peers = SimulatedPeers(world, cluster, fibers.life)
            broker.start()
            node.start(broker, f"dejaq://{self.name}:1", f"http://{self.name}:2")
            self.node, self.broker = node, broker
            for tell in self.on_start:
                tell(broker)
            cluster.is_made = True
        except DejaQError as error:
            # An operator reads that, and starts it again as it says.
            self.adopts = isinstance(error, Refused)
            self.die(power_cut=False)

    def guarded(self, call: Callable[[], None]) -> None:
        """Do something in a fiber; it may be the broker's end."""
        if self.life.paused_until_us > self.world.now_us:
            self.world.after(self.life.paused_until_us - self.world.now_us, call, self.life)
            return
        try:
            self._fibers.run(call)
        except Died:
            self.die(power_cut=False)
        except Gone:
            pass

    def die(self, *, power_cut: bool) -> None:
        """The process ends at once. It has no disk."""
        if not self.is_up:
            return
        self.is_up = False
        self.broker = self.node = None
        self.deaths += 1
        if self.coordinator is not None:
            self.coordinator.die()
            self.coordinator = None
        self.life.end()

    def stop(self) -> None:
        """Hand everything over and end."""
        if self.broker is not None:
            self.world.after(0, self._stop, self.life)

    def _stop(self) -> None:
        node, broker = self.node, self.broker
        if node is None or broker is None:
            return
        self.broker = None  # nobody new is served
        node.stop()
        broker.stop()
        if self.sending_us:  # the server ends streams when all that was queued is sent
            Waiter(self._fibers).wait(self.world.now_us + self.sending_us)
        self.is_up, self.node = False, None
        self.life.end()

    @property
    def is_well(self) -> bool:
        """True if it is a member, and nothing keeps it from the others."""
        node, coordinator = self.node, self.coordinator
        is_member = self.broker is not None and node is not None and node.is_member
        is_awake = self.life.paused_until_us <= self.world.now_us
        return is_member and is_awake and coordinator is not None and not coordinator.is_cut

    def pass_time(self, longest_us: int) -> None:
        """Have whoever is running in this broker wait for a moment, if it may."""
        _pass(self._fibers, longest_us)

    def pause(self, duration_us: int) -> None:
        """Do nothing for so long, and know nothing of it."""
        self.life.paused_until_us = self.world.now_us + duration_us


def serves(broker: Broker | None, topic: str) -> bool:
    """True if a broker serves a topic, or a shard of it."""
    if broker is None:
        return False
    found = broker._catalogue.find(topic)  # as it is known; nobody may wait here
    return found is not None and any(map(broker.serves, broker.served_names(found)))


class Cluster:
    """Machines that serve the same topics, of which each is served by one at a time.

    Args:
        trouble: the share of calls to the server that get lost though nothing is cut.
        plan: what it is like.

    Attributes:
        is_made: the topics were made; before that a broker may die while it makes them.
        keys_of: how a broker reaches the API keys of the cluster; None = as everything else.
        times: what each broker wrote of its clock.
        append_us_max, facts_us_max: as in the plan, for brokers that start from now on.
    """

    moves = True
    keys_of: KeysOf | None = None
    is_made = False

    def __init__(self, world: World, count: int, trouble: float, plan: Plan = PLAIN) -> None:
        self.world, self.plan = world, plan
        self.append_us_max, self.facts_us_max = plan.append_us_max, plan.facts_us_max
        self.trouble = trouble
        self.server = Server(world.random.choice([500, 1_500, 1 << 20]))
        self.clock = SimulatedClock(world)
        self.facts = make_facts(plan.coordinator, world, self.clock)
        self.times: dict[str, Fact] = {}
        self.machines = [ClusterMachine(name, world, self) for name in "abcde"[:count]]

    @property
    def time_us(self) -> int:
        """The latest time that any broker may have seen."""
        return max(machine.time_us for machine in self.machines)

    @property
    def deaths(self) -> int:
        """Of all brokers."""
        return sum(machine.deaths for machine in self.machines)

    def pick(self, topic: str) -> Machine:
        """Mostly whom one of the brokers believes to serve the topic; else anyone."""
        world = self.world
        there = [machine for machine in self.machines if machine.broker is not None]
        asked = world.random.choice(there or self.machines)
        node = asked.node
        if node is not None and world.chance(0.9):
            served = node.describe("")["topics"]
            named = {one["node"] for one in served if one["topic"] == topic}
            for machine in self.machines:
                if machine.name in named:
                    return machine
        return asked
