"""A fleet is started, rests, loses brokers, gets them back, and has topics made.

What is measured in the world's time (claims, moves, facts, bytes) comes from the seed, unless
brokers pay for their processor time; what is processor time comes from this machine.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

import pytest

from dejaqueue.catalogue.changes import Change, FoundedCluster, MadeTopic, UsedTopic
from dejaqueue.catalogue.log import CatalogueLog, _Waiting
from dejaqueue.catalogue.state import CatalogueState
from dejaqueue.cluster import ownership
from dejaqueue.cluster.members import PREFIX as MEMBERS
from dejaqueue.cluster.members import Member, members_of
from dejaqueue.cluster.ownership import View
from dejaqueue.cluster.placement import hashed_slot
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import Topic
from dejaqueue.testing.simulation.world import World
from tests.simulation.cluster.server import Server
from tests.simulation.fleet.machines import Fleet, FleetMachine, Traffic

SECOND = 1_000_000
CHANGES_AT_ONCE = 1_000
START_SECONDS_MAX, CLAIM_SECONDS_MAX = 120, 120
STEP_US = 5_000


@dataclass(frozen=True, slots=True)
class Size:
    """How large a fleet is.

    Attributes:
        topics: all of them used, with so many `partitions` each.
        rest_seconds: how long it is looked at while nothing happens.
        made: topics that are made one after the other, in so many seconds.
    """

    brokers: int = 100
    slots: int = 4_096
    topics: int = 10_000
    partitions: int = 100
    rest_seconds: int = 20
    made: int = 20
    deaths: tuple[int, ...] = (1, 10)


@dataclass(frozen=True, slots=True)
class Phase:
    """What was seen while something went on.

    Attributes:
        seconds: how long it took, or was looked at.
        traffic: of all brokers with the coordinator.
        rounds: of all brokers.
        used_us: processor time of each broker that was there: the median.
        moved: slots whose owner is another one than before.
        noticed_seconds: until the coordinator knew that members were gone.
        claimed_seconds: from then on, until each slot had an owner that is there.
    """

    name: str
    seconds: float
    traffic: Traffic
    rounds: int
    used_us: float
    moved: int = 0
    noticed_seconds: float = 0.0
    claimed_seconds: float = 0.0


@dataclass
class FleetRun:
    """What came of a fleet."""

    size: Size
    phases: list[Phase] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def fill(server: Server, size: Size) -> None:
    """Write the catalogue of a fleet, with a snapshot of all of it."""
    store = RecordJournalStore(server.kept)
    log = CatalogueLog(store)
    names = [f"topic-{number:06d}" for number in range(size.topics)]
    log.change(lambda: FoundedCluster("fleet", size.slots))
    changes: list[Change] = []
    for name in names:
        topic = Topic(name, partitions=size.partitions)
        changes.append(MadeTopic(topic, hashed_slot(name, size.slots)))
    changes += [UsedTopic(name) for name in names]
    for first in range(0, len(changes), CHANGES_AT_ONCE):
        group = changes[first : first + CHANGES_AT_ONCE]
        log._make([_Waiting(lambda one=one: one, None) for one in group])  # type: ignore[misc]
    for row in log.state.rows.values():
        store.make(f"{row.topic.name}.{row.number}", row.number)
    journal, state = log._journal, log.state
    assert journal is not None
    log._write_snapshot(journal, state.copy())
    log.close()


@contextmanager
def rows_in_common() -> Iterator[None]:
    """Brokers of this process share the rows of topics that they read from one snapshot.

    Each of a hundred processes has its own; in one they would not fit.
    """
    known: dict[bytes, CatalogueState] = {}
    read = CatalogueState.from_bytes

    def once(text: bytes | memoryview) -> CatalogueState:
        copy = bytes(text)
        if copy not in known:
            known[copy] = read(copy)
        return known[copy].copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CatalogueState, "from_bytes", once)
        yield


_owner_of = lru_cache(maxsize=1 << 14)(ownership.owner_of)


class Watcher:
    """Looks at a fleet from outside."""

    def __init__(self, fleet: Fleet, size: Size) -> None:
        self._fleet, self._size = fleet, size
        self._world = fleet.world

    def view(self) -> View:
        """What the coordinator says."""
        facts = self._fleet.facts
        return View(self.members(), dict(map(_owner_of, facts.find(ownership.PREFIX))))

    def members(self) -> dict[str, Member]:
        """Whom the coordinator knows."""
        return members_of(self._fleet.facts.find(MEMBERS))

    def owners(self) -> dict[int, str]:
        """Which broker owns each slot."""
        return {slot: owner.node for slot, owner in self.view().owners.items()}

    def unowned(self) -> int:
        """How many slots have no owner that is there."""
        view = self.view()
        return sum(view.living_owner(slot) is None for slot in range(self._size.slots))

    def until(self, is_so: Callable[[], bool], seconds: float, step_us: int = STEP_US) -> bool:
        """Let the world go on until something is true, looked at each step; False: too long."""
        world = self._world
        until_us = world.now_us + int(seconds * SECOND)
        while not is_so():
            if world.now_us >= until_us:
                return False
            world.run(world.now_us + step_us)
        return True

    def is_settled(self) -> bool:
        """Whether each slot has an owner that is there, and none is on its way to another."""
        there = [one for one in self._fleet.machines if one.is_up]
        if any(one.node is None or not one.node.is_member for one in there) or self.unowned():
            return False
        counts = Counter(self.owners().values())
        return max(counts.values()) <= -(-self._size.slots // len(there))


class Measured:
    """One phase while it goes on."""

    def __init__(self, fleet: Fleet, watcher: Watcher) -> None:
        self._fleet, self._watcher = fleet, watcher
        self._traffic = fleet.traffic.copy()
        self._began_us = fleet.world.now_us
        self._owners = watcher.owners()
        self._used = {one.name: one.used_us for one in fleet.machines}
        self._rounds = sum(one.rounds for one in fleet.machines)

    def phase(self, name: str, *, noticed: float = 0.0, claimed: float = 0.0) -> Phase:
        """What was seen until now."""
        fleet, owners = self._fleet, self._watcher.owners()
        there = [one for one in fleet.machines if one.is_up]
        return Phase(
            name,
            (fleet.world.now_us - self._began_us) / SECOND,
            fleet.traffic.since(self._traffic),
            sum(one.rounds for one in fleet.machines) - self._rounds,
            statistics.median(one.used_us - self._used[one.name] for one in there),
            sum(owners.get(slot) != node for slot, node in self._owners.items()),
            noticed,
            claimed,
        )


class FleetStory:
    """One fleet, from its start to its end."""

    def __init__(self, seed: int, size: Size, *, pays_time: bool) -> None:
        self.world, self.size = World(seed), size
        server = Server(1 << 20)
        fill(server, size)
        names = [f"broker-{number:03d}" for number in range(size.brokers)]
        self.fleet = Fleet(self.world, names, size.slots, server, pays_time=pays_time)
        self.watcher = Watcher(self.fleet, size)
        self.run = FleetRun(size)

    def tell(self, say: Callable[[str], None] = lambda _: None) -> FleetRun:
        """Have all of it happen."""
        for act in (self.start, self.rest, self.lose, self.come_back, self.make_topics):
            began = time.monotonic()
            act()
            say(f"{act.__name__}: {time.monotonic() - began:.1f} s here")
        self.judge()
        return self.run

    def _keep(self, phase: Phase) -> None:
        self.run.phases.append(phase)

    def start(self) -> None:
        """All start within a second."""
        measured = Measured(self.fleet, self.watcher)
        for machine in self.fleet.machines:
            self.world.after(self.world.between(0, SECOND), machine.start)
        self._settle("start", measured)
        self.world.run(self.world.now_us + 5 * SECOND)

    def _settle(self, name: str, measured: Measured) -> None:
        self.world.run(self.world.now_us + SECOND)
        if not self.watcher.until(self.watcher.is_settled, START_SECONDS_MAX, SECOND // 10):
            self.run.faults.append(f"{name}: {self.watcher.unowned()} slots have no owner")
        self._keep(measured.phase(name))

    def rest(self) -> None:
        """Nothing happens."""
        measured = Measured(self.fleet, self.watcher)
        self.world.run(self.world.now_us + self.size.rest_seconds * SECOND)
        self._keep(measured.phase("rest"))

    def lose(self) -> None:
        """So many machines die at one moment, of those that are there."""
        for count in self.size.deaths:
            there = [one for one in self.fleet.machines if one.is_up]
            self._lose(self.world.random.sample(there, count))

    def _lose(self, machines: list[FleetMachine]) -> None:
        world, watcher = self.world, self.watcher
        measured = Measured(self.fleet, watcher)
        names = {machine.name for machine in machines}
        lost = sum(node in names for node in watcher.owners().values())
        began_us = world.now_us
        for machine in machines:
            machine.die(power_cut=False)
        watcher.until(lambda: not names & watcher.members().keys(), CLAIM_SECONDS_MAX)
        noticed_us = world.now_us
        if not watcher.until(lambda: not watcher.unowned(), CLAIM_SECONDS_MAX):
            self.run.faults.append(f"{watcher.unowned()} slots of {len(names)} were not claimed")
        claimed_us = world.now_us
        watcher.until(watcher.is_settled, CLAIM_SECONDS_MAX, SECOND // 10)
        world.run(world.now_us + SECOND)
        times = (noticed_us - began_us) / SECOND, (claimed_us - noticed_us) / SECOND
        phase = measured.phase(f"death of {len(names)}", noticed=times[0], claimed=times[1])
        self._keep(phase)
        if phase.moved < lost:
            self.run.faults.append(f"{lost} slots were lost, {phase.moved} have another owner")

    def come_back(self) -> None:
        """Whoever died starts again."""
        measured = Measured(self.fleet, self.watcher)
        for machine in self.fleet.machines:
            if not machine.is_up:
                self.world.after(self.world.between(0, SECOND), machine.start)
        self._settle("return", measured)
        self.world.run(self.world.now_us + 5 * SECOND)

    def make_topics(self) -> None:
        """Somebody makes topics, one each second, and all follow."""
        measured = Measured(self.fleet, self.watcher)
        for number in range(self.size.made):
            machine = self.world.random.choice(self.fleet.machines)
            self._make_topic(machine, Topic(f"made-{number}", partitions=self.size.partitions))
            self.world.run(self.world.now_us + SECOND)
        self.world.run(self.world.now_us + 2 * SECOND)
        self._keep(measured.phase(f"{self.size.made} topics are made"))
        for machine in self.fleet.machines:
            broker = machine.broker
            count = 0 if broker is None else len(broker.topics())
            if count != self.size.topics + self.size.made:
                self.run.faults.append(f"{machine.name} knows {count} topics")

    def _make_topic(self, machine: FleetMachine, topic: Topic) -> None:
        broker = machine.broker
        assert broker is not None

        def make() -> None:
            broker.create_topic(topic)

        self.world.after(0, make, machine.life)

    def judge(self) -> None:
        """Each broker serves what it owns, and nothing else."""
        owners = self.watcher.owners()
        served: Counter[str] = Counter()
        for machine in self.fleet.machines:
            assert machine.broker is not None
            names = [one.served_as for one in machine.broker.runtimes()]
            served.update(names)
            astray = [n for n in names if owners[hashed_slot(n, self.size.slots)] != machine.name]
            if astray:
                self.run.faults.append(f"{machine.name} serves {len(astray)} topics of others")
        if len(served) != self.size.topics or max(served.values()) > 1:
            text = f"{len(served)} of {self.size.topics} topics are served"
            self.run.faults.append(text)


def simulate_fleet(
    seed: int = 1,
    size: Size | None = None,
    *,
    pays_time: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> FleetRun:
    """Run a fleet."""
    gc.collect()
    with rows_in_common():
        return FleetStory(seed, size or Size(), pays_time=pays_time).tell(say)
