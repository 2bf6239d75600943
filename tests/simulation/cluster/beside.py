"""One simulation of what nodes do about the servers beside their brokers; judged.

No broker and no server runs: nodes that live, die, sleep and lose touch with the coordinator say
where their servers are, have the turn to change them, leave, and start a server again that its disk
has stopped. The disk, and whether a server is off, are made up. Judged:

 1. While somebody who has the turn goes on, nobody else has got it.
 2. In the end all nodes know the same servers: those that have not left.
 3. In the end no server is off that has room.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from dejaqueue.cluster import disk, servers
from dejaqueue.cluster.disk import Disk, Restarter
from dejaqueue.cluster.jetstream_settings import Node
from dejaqueue.cluster.servers import (
    PREFIX,
    ServerAddress,
    ServerList,
    addresses_of,
    read_addresses,
)
from dejaqueue.cluster.turn import Turn
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.testing.simulation.threads import Gone
from dejaqueue.testing.simulation.world import START_US, Life, SimulatedClock, World
from tests.checker.fault import Fault
from tests.simulation.cluster.coordinators import (
    Facts,
    LateReader,
    coordinators_in_fibers,
    fiber_threads,
    make_facts,
)
from tests.simulation.cluster.fibers import FiberClock, Fibers
from tests.simulation.cluster.plan import choose_plan
from tests.simulation.run import SECOND, Run

NAMES = ("a", "b", "c", "d")
RUN_US = 240 * SECOND
DRAIN_US = 90 * SECOND
"""A turn whose owner died vanishes within a minute."""
RESERVE_BYTES = 4 << 20


@dataclass
class NodeHistory:
    """What happened."""

    lines: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    deliveries: list[str] = field(default_factory=list)
    """Turns that were had."""
    deaths: int = 0

    def text(self) -> str:
        """All of it."""
        return "\n".join(self.lines)

    def note(self, now_us: int, text: str) -> None:
        """Something happened."""
        self.lines.append(f"{(now_us - START_US) / SECOND:.6f} {text}")


class Post:
    """One node, over its lives.

    Attributes:
        knows: the servers that it was told of last.
        has_left: it is none of the cluster's any more.
        free_bytes, is_off: of its server's disk, and whether the server has stopped for it.
        entered_us: when it got the turn; 0 = it has not got it.
    """

    def __init__(self, name: str, town: Town) -> None:
        self.name, self.town, self.world = name, town, town.world
        self.own = Node(name, "127.0.0.1", 4_000 + ord(name), 6_000 + ord(name))
        self.directory = town.place / name
        self.directory.mkdir()
        self.knows: list[str] = []
        self.has_left = self.is_off = False
        self.free_bytes = 10 * RESERVE_BYTES
        self.entered_us = 0
        self.life = Life()
        self.life.over = True
        self.reader: LateReader | None = None

    def start(self) -> None:
        """Begin a life."""
        if not self.life.over or self.has_left:
            return
        self.life = Life(self._guarded)
        self._fibers = Fibers(self.world, self.life)
        self.world.after(self.world.between(1_000, 50_000), self._boot, self.life)

    def _guarded(self, call: object) -> None:
        with suppress(Gone):
            self._fibers.run(call)  # type: ignore[arg-type]

    def die(self) -> None:
        """The process ends at once."""
        if self.life.over:
            return
        self.town.history.deaths += 1
        self.entered_us = 0
        if self.reader is not None:
            self.reader.die()
            self.reader = None
        self.life.end()

    def _boot(self) -> None:
        town = self.town
        try:
            late_us_max = town.plan.facts_us_max
            self.reader = LateReader(town.facts, {}, self.world, self._fibers, late_us_max)
        except DejaQError:
            self.die()
            return
        clock = FiberClock(self._fibers)
        known = read_addresses(self.directory)
        settings = [one.node for one in known.values()] or [post.own for post in town.posts]
        servers_known = ServerList(
            self.reader, self.own, settings, self.directory, self._use, self._left, clock
        )
        self._restarter = Restarter(
            Disk(self.directory, RESERVE_BYTES), self._look_off, self._restart, clock
        )
        self._restarter.start()
        while True:
            try:
                servers_known.start()
                break
            except DejaQError:
                self._fibers.pass_time(SECOND)
        turn = Turn(self.name, self.reader, clock)
        while True:
            self._fibers.pass_time(self.world.between(SECOND // 10, 10 * SECOND))
            if not town.stopped:
                self._take_turn(turn)

    def _use(self, nodes: list[Node]) -> None:
        self.knows = [node.name for node in nodes]

    def _left(self) -> None:
        self.has_left = True
        self.world.after(self.world.between(0, SECOND), self.die)

    def _look_off(self) -> bool:
        if self.world.chance(0.1):
            raise Unavailable("it is starting", 100)
        return self.is_off

    def _restart(self) -> None:
        self.is_off = self.free_bytes < RESERVE_BYTES // 2

    # --- the turn -----------------------------------------------------------------------------

    def _take_turn(self, turn: Turn) -> None:
        world, history = self.world, self.town.history
        try:
            with turn() as keep:
                self.entered_us = world.now_us
                history.note(world.now_us, f"{self.name} has the turn")
                for _ in range(world.between(1, 20)):
                    self._fibers.pass_time(world.between(SECOND // 10, 2 * SECOND))
                    keep()
                    self._act()
                if world.chance(0.15):
                    self._have_one_leave()
        except DejaQError as error:
            history.note(world.now_us, f"{self.name}: {type(error).__name__}")
        finally:
            self.entered_us = 0
        history.deliveries.append(self.name)

    def _act(self) -> None:
        for other in self.town.posts:
            if other is not self and other.entered_us > self.entered_us:
                text = f"{self.name} and {other.name} have the turn at once"
                self.town.history.note(self.world.now_us, f"FAULT {text}")
                self.town.history.faults.append(Fault(0, text))

    def _have_one_leave(self) -> None:
        """Another node leaves, as care.py says it."""
        assert self.reader is not None
        staying = [post for post in self.town.posts if not post.has_left and post is not self]
        if len(staying) < 2 or self.town.leaving:
            return
        one = self.world.random.choice(staying)
        self.town.leaving.append(one.name)
        gone = ServerAddress(one.own, left=True).to_bytes()
        with suppress(DejaQError):
            self.reader.put(PREFIX + one.name, gone)


class Town:
    """All nodes, and what breaks."""

    def __init__(self, seed: int, place: Path) -> None:
        self.world = World(seed)
        self.place, self.plan = place, choose_plan(seed)
        clock = SimulatedClock(self.world)
        self.facts: Facts = make_facts(self.plan.coordinator, self.world, clock)
        self.history = NodeHistory()
        self.leaving: list[str] = []
        self.stopped = False
        self.posts: list[Post] = []
        count = self.world.random.choice([2, 3, 4])
        self.posts += [Post(name, self) for name in NAMES[:count]]

    def free_of(self, directory: Path) -> SimpleNamespace:
        """What the system says of the disk of a directory."""
        post = next(post for post in self.posts if post.directory == directory)
        return SimpleNamespace(f_bavail=post.free_bytes, f_frsize=1)

    def sync(self, _: int) -> None:
        """What a node writes to see whether it can comes through, unless some disk is full."""
        if any(post.free_bytes < RESERVE_BYTES // 2 for post in self.posts):
            raise OSError(28, "no space left on device")

    def break_something(self) -> None:
        """Every few seconds."""
        if self.stopped:
            return
        world = self.world
        holders = [post for post in self.posts if post.entered_us]
        post = world.random.choice(holders if holders and world.chance(0.7) else self.posts)
        what = world.random.random()
        longest_us = world.random.choice([SECOND, 90 * SECOND])
        if what < 0.2:
            post.die()
        elif what < 0.5:
            post.life.paused_until_us = world.now_us + world.between(1_000, longest_us)
        elif what < 0.75 and post.reader is not None:
            reader = post.reader
            reader.cut()
            world.after(world.between(1_000, longest_us), reader.mend)
        elif what < 0.85 and post.reader is not None:
            post.reader.lose_answers(world.between(1, 3))
        else:
            post.free_bytes, post.is_off = 0, True
            world.after(world.between(SECOND, 30 * SECOND), lambda: self._make_room(post))
        world.after(world.between(SECOND, 20 * SECOND), self.break_something)

    @staticmethod
    def _make_room(post: Post) -> None:
        post.free_bytes = 10 * RESERVE_BYTES

    def look(self) -> None:
        """Whoever died comes back."""
        for post in self.posts:
            if self.world.chance(0.2):
                post.start()
        if not self.stopped:
            self.world.after(SECOND, self.look)

    def heal(self) -> None:
        """Nothing is broken any more."""
        self.stopped = True
        for post in self.posts:
            self._make_room(post)
            post.life.paused_until_us = 0
            if post.reader is not None:
                post.reader.lose_answers(0)
                post.reader.late_us_max = 0
                post.reader.mend()
            post.start()

    def judge(self) -> None:
        """See what all know in the end."""
        said = addresses_of(self.facts.find(PREFIX))
        left = {name for name, one in said.items() if one.left}
        wanted = sorted(post.name for post in self.posts if post.name not in left)
        for post in self.posts:
            if post.has_left != (post.name in left):
                self.history.faults.append(Fault(0, f"{post.name} does not know that it has left"))
            elif not post.has_left and post.knows != wanted:
                text = f"{post.name} knows {post.knows}, there are {wanted}"
                self.history.faults.append(Fault(0, text))
            if not post.has_left and post.is_off:
                self.history.faults.append(Fault(0, f"the server of {post.name} stays off"))


@coordinators_in_fibers()
def simulate_servers(seed: int) -> Run:
    """Run a seed."""
    memory = Path("/dev/shm")
    with (
        TemporaryDirectory(dir=memory if memory.is_dir() else None) as place,
        pytest.MonkeyPatch.context() as patch,
    ):
        town = Town(seed, Path(place))
        world, history = town.world, town.history
        patch.setattr(servers, "threading", fiber_threads())
        patch.setattr(disk, "threading", fiber_threads())
        patch.setattr(disk, "os", SimpleNamespace(statvfs=town.free_of, fsync=town.sync))
        for post in town.posts:
            post.start()
        world.after(SECOND, town.look)
        world.after(world.between(0, 10 * SECOND), town.break_something)
        world.run(world.now_us + RUN_US)
        town.heal()
        for _ in range(5):
            world.run(world.now_us + DRAIN_US // 5)
            town.heal()
        town.judge()
        for post in town.posts:
            post.die()
        world.run(world.now_us + SECOND)
    return Run.of(world, history, history.faults, history.deaths)
