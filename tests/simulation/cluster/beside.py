"""One simulation of what nodes do about the servers beside their brokers; judged.

No broker runs: nodes that live, die, sleep and lose touch with the coordinator start their server
and keep it running, say where it is, watch its copies and repair it, join, and leave when an
operator has it so. Their code is the product's, down to the connections to servers and the
processes of these, which are simulated (nats_wire.py, nats_servers.py). Judged:

 1. While somebody who has the turn goes on, nobody else has got it.
 2. In the end all nodes know the same servers, those that have not left, and so do their settings.
 3. In the end no server is off that has room, and all copies are whole.
 4. No server is emptied while most of the others do not have all that was acknowledged, and none of
    that is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TypeVar

import pytest

from dejaqueue.cluster.care import Care
from dejaqueue.cluster.embedded import list_beside, server_of, settings_beside, warn_if_plain
from dejaqueue.cluster.jetstream import PROGRAM_VARIABLE, JetStreamServer
from dejaqueue.cluster.members import Member, Membership, new_session
from dejaqueue.cluster.servers import PREFIX, addresses_of
from dejaqueue.cluster.turn import Keep, Turn
from dejaqueue.errors import DejaQError, Refused
from dejaqueue.journal.records.nats.store import NatsRecordStore
from dejaqueue.settings import BrokerSettings, ClusterSettings, JournalSettings
from dejaqueue.testing.simulation.threads import Gone
from dejaqueue.testing.simulation.world import START_US, Life, SimulatedClock, World
from tests.checker.fault import Fault
from tests.simulation.cluster.coordinators import (
    Facts,
    LateReader,
    coordinators_in_fibers,
    make_facts,
)
from tests.simulation.cluster.fibers import FiberClock, Fibers
from tests.simulation.cluster.nats_servers import FULL_LINE, WRITE_LINE, NatsServer, NatsServers
from tests.simulation.cluster.nats_wire import Processes, use_simulated_servers
from tests.simulation.cluster.plan import choose_plan
from tests.simulation.cluster.stand_ins import fibers_now
from tests.simulation.run import SECOND, Run

NAMES = ("a", "b", "c", "d", "e", "f")
STREAMS = ("dejaq-records-t-0", "dejaq-records-t-1", "dejaq-records-u-0", "KV_dejaq_facts")
RUN_US = 240 * SECOND
DRAIN_US = 900 * SECOND
"""At most: nodes are repaired one after the other, and each is waited for up to ten minutes."""
LOOK_AT_END_US = 30 * SECOND
RESERVE_BYTES = 64 << 20
LEASE_MS = 4_000
READY_MS = 2_000

Answer = TypeVar("Answer")


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
        has_left: it is none of the cluster's any more.
        free_bytes, is_read_only: of its server's disk.
        entered_us: when it got the turn; 0 = it has not got it.
        server, records, care, care_elsewhere: of this life; `care_elsewhere` is that of a broker
            whose servers are the operator's own.
    """

    def __init__(self, name: str, nodes: str, town: Town) -> None:
        self.name, self.town, self.world = name, town, town.world
        self.directory = town.place / name
        self.settings = BrokerSettings(
            journal=JournalSettings(url=str(self.directory)),
            cluster=ClusterSettings(node=name, nodes=nodes, reserve_bytes=RESERVE_BYTES),
        )
        self.has_left = self.is_read_only = False
        self.free_bytes = 10 * RESERVE_BYTES
        self.entered_us = 0
        self.life = Life()
        self.life.over = True
        self._forget()

    def _forget(self) -> None:
        self.reader: LateReader | None = None
        self.server: JetStreamServer | None = None
        self.records: NatsRecordStore | None = None
        self.care: Care | None = None
        self.care_elsewhere: Care | None = None

    @property
    def nats(self) -> NatsServer | None:
        """Its server, once it was started."""
        return self.town.servers.servers.get(self.name)

    def start(self) -> None:
        """Begin a life."""
        if not self.life.over or self.has_left:
            return
        self.life = Life(self._guarded)
        self._fibers = Fibers(self.world, self.life)
        self.world.after(self.world.between(1_000, 50_000), self._boot, self.life)

    def _guarded(self, call: Callable[[], None]) -> None:
        with suppress(Gone):
            self._fibers.run(call)

    def die(self) -> None:
        """The process ends at once; its server a little later, as a rule."""
        if self.life.over:
            return
        self.town.history.deaths += 1
        self.entered_us = 0
        if self.reader is not None:
            self.reader.die()
        self._forget()
        self.life.end()
        self.town.processes.end_those_of(self.name, soon=self.world.chance(0.8))

    def _boot(self) -> None:
        """As cli/clustering.py does."""
        town, fibers = self.town, self._fibers
        try:
            late_us_max = town.plan.facts_us_max
            self.reader = reader = LateReader(town.facts, {}, self.world, fibers, late_us_max)
            server = server_of(self.settings)
        except DejaQError as error:
            self.has_left = isinstance(error, Refused)
            self.die()
            return
        assert server is not None
        self.server = server
        clock = FiberClock(fibers)
        warn_if_plain(self.settings)
        server.start(wait=False)
        self._until_done(lambda: server.wait_until_ready(READY_MS))
        url = str(settings_beside(self.settings, server).journal.url)
        self.records = records = self._until_done(lambda: NatsRecordStore(url, clock=clock))
        server.turn = self._noted(Turn(self.name, reader, clock))
        self.care = Care(self.name, reader, records, server, clock)
        self.care_elsewhere = Care(self.name, reader, records, None, clock)
        for care in (self.care, self.care_elsewhere):
            care._turn = server.turn  # type: ignore[assignment]
        records.on_sick(server.heal)
        records.distrust(self.name)
        member = Member(self.name, new_session(), f"dejaq://{self.name}:1", "", "1")
        membership = Membership(reader, member, LEASE_MS, clock)
        self._until_done(membership.join)
        servers_known = list_beside(server, self.settings, reader, self._left)
        self._until_done(servers_known.start)
        self.world.after(0, partial(self._stay, membership), self.life)
        while True:
            longest_us = 10 * SECOND if town.takes_turns else 90 * SECOND
            fibers.pass_time(self.world.between(longest_us // 100, longest_us))
            if not town.stopped:
                self._take_turn()

    def _until_done(self, call: Callable[[], Answer]) -> Answer:
        while True:
            try:
                return call()
            except DejaQError:
                self._fibers.pass_time(SECOND // 5)

    def _stay(self, membership: Membership) -> None:
        while True:
            self._fibers.pass_time(LEASE_MS * 250)
            with suppress(DejaQError):
                if not membership.renew():
                    membership.join()

    def _left(self) -> None:
        """The broker stops, and its server with it."""
        self.has_left = True
        self.world.after(self.world.between(0, SECOND), self._stop, self.life)

    def _stop(self) -> None:
        server, reader = self.server, self.reader
        if server is not None and reader is not None:
            with suppress(DejaQError):
                reader.delete(f"members/{self.name}")
            server.stop()
        self.die()

    # --- the turn -----------------------------------------------------------------------------

    def _noted(self, turn: Turn) -> Callable[[], AbstractContextManager[Keep]]:
        """The turn, and somebody who sees who has it."""
        history, world = self.town.history, self.world

        @contextmanager
        def noted() -> Iterator[Keep]:
            with turn() as keep:
                self.entered_us = world.now_us
                history.note(world.now_us, f"{self.name} has the turn")
                # While something is being changed, something else breaks.
                if world.chance(0.2):
                    world.after(world.between(1_000, 5 * SECOND), self.town.break_one)
                elif world.chance(0.3):
                    late_us = world.between(1_000, 2 * SECOND)
                    world.after(late_us, lambda: self.town.break_disk_beside(self))

                def kept() -> None:
                    keep()
                    self._act()

                try:
                    yield kept
                finally:
                    self.entered_us = 0
                    history.deliveries.append(self.name)

        return noted

    def _take_turn(self) -> None:
        """Have the turn for a while, as whoever changes something."""
        assert self.server is not None
        world = self.world
        try:
            with self.server.turn() as keep:
                for _ in range(world.between(1, 80)):
                    self._fibers.pass_time(world.between(SECOND // 10, 2 * SECOND))
                    keep()
        except DejaQError as error:
            self.town.history.note(world.now_us, f"{self.name}: {type(error).__name__}")

    def _act(self) -> None:
        for other in self.town.posts:
            if other is not self and other.entered_us > self.entered_us > 0:
                text = f"{self.name} and {other.name} have the turn at once"
                self.town.history.note(self.world.now_us, f"FAULT {text}")
                self.town.history.faults.append(Fault(0, text))


class Operator:
    """Looks at the cluster, has nodes repaired, and some leave."""

    def __init__(self, town: Town) -> None:
        self._town, self._world = town, town.world
        self.leaving: list[str] = []

    def look(self) -> None:
        """Now and then, by way of any node."""
        town, world = self._town, self._world
        there = [post for post in town.posts if post.care is not None]
        if there:
            post = world.random.choice(there)
            world.after(0, partial(self._ask, post), post.life)
        world.after(world.between(SECOND, 15 * SECOND), self.look)

    def _ask(self, post: Post) -> None:
        with suppress(DejaQError):
            for name in self._unfinished():
                if name != post.name:
                    self._act(post, "remove_node", name)
                    return
            what = self._world.random.random()
            if self._town.stopped or what < 0.4:
                self._status(post)
            elif what < 0.5:
                self._act(post, "repair_node", post.name)
            elif what < 0.6:
                self._repair_elsewhere(post)
            elif what < 0.7:
                self._have_one_leave()

    def _unfinished(self) -> list[str]:
        return [name for name in self.leaving if name in self._town.servers.known]

    @staticmethod
    def _act(post: Post, what: str, node: str) -> None:
        if post.care is not None:
            told = post.care.act(what, {"node": node})
            if told["state"] != "working":
                post.care.act(what, {"node": node, "start": True})

    @staticmethod
    def _status(post: Post) -> None:
        if post.server is not None and post.records is not None:
            status = post.server.status()
            status.flaw(status.lasts())
            post.records.servers()

    @staticmethod
    def _repair_elsewhere(post: Post) -> None:
        """As where the servers are the operator's own: copies go to another one."""
        if post.records is not None and post.care_elsewhere is not None:
            for sick in post.records.sick:
                post.care_elsewhere.act("repair_node", {"node": sick.server, "start": True})

    def _have_one_leave(self) -> None:
        staying = [post for post in self._town.posts if not post.has_left]
        if len(staying) > 3 and not self._unfinished() and len(self.leaving) < 2:
            names = sorted({post.name for post in staying} - set(self.leaving))
            if names:
                self.leaving.append(self._world.random.choice(names))


class Town:
    """All nodes, their servers, and what breaks.

    Attributes:
        stopped: nothing new begins or breaks.
        takes_turns: nodes have the turn often, so that repairs have to wait for it.
    """

    def __init__(self, seed: int, place: Path) -> None:
        self.world = World(seed)
        self.place, self.plan = place, choose_plan(seed)
        clock = SimulatedClock(self.world)
        self.facts: Facts = make_facts(self.plan.coordinator, self.world, clock)
        self.history = NodeHistory()
        self.stopped = False
        self.takes_turns = self.world.chance(0.5)
        self.servers = NatsServers(self.world)
        self.processes = Processes(self.servers)
        self.operator = Operator(self)
        count = self.world.random.choice([3, 4, 4, 5])
        nodes = nodes_text(NAMES[:count])
        self.posts = [Post(name, nodes, self) for name in NAMES[:count]]
        self.world.after(self.world.between(SECOND, 100 * SECOND), self._join)

    def begin(self) -> None:
        """Everybody starts, and topics are made."""
        for post in self.posts:
            post.start()
        self.servers.tick()
        self._make_streams(list(STREAMS))
        self.world.after(SECOND, self.look)
        self.world.after(self.world.between(5 * SECOND, 15 * SECOND), self.break_something)
        self.world.after(10 * SECOND, self.operator.look)

    def _make_streams(self, names: list[str]) -> None:
        if names:
            self.servers.make_stream(names[0])
            left = names[1:] if names[0] in self.servers.streams else names
            self.world.after(
                self.world.between(SECOND, 3 * SECOND), lambda: self._make_streams(left)
            )

    def _join(self) -> None:
        """One more node, whose settings name those that were there at first."""
        if self.world.chance(0.6) and not self.stopped:
            name = NAMES[len(self.posts)]
            post = Post(name, nodes_text([one.name for one in self.posts] + [name]), self)
            self.posts.append(post)
            post.start()

    def _post_of(self, directory: Path) -> Post:
        return next(post for post in self.posts if directory.is_relative_to(post.directory))

    def free_of(self, directory: Path) -> SimpleNamespace:
        """What the system says of the disk of a directory."""
        return SimpleNamespace(f_bavail=self._post_of(directory).free_bytes, f_frsize=1)

    def sync(self, _: int) -> None:
        """What a node writes to see whether it can comes through, unless its disk takes none."""
        fibers = fibers_now()
        post = next(post for post in self.posts if not post.life.over and post._fibers is fibers)
        if post.is_read_only:
            raise OSError(30, "read-only file system")

    # --- what breaks --------------------------------------------------------------------------

    def break_something(self) -> None:
        """Every few seconds."""
        self.break_one()
        self.world.after(self.world.between(SECOND, 20 * SECOND), self.break_something)

    def break_one(self) -> None:
        """Something, at some node."""
        if self.stopped:
            return
        world = self.world
        holders = [post for post in self.posts if post.entered_us]
        post = world.random.choice(holders if holders and world.chance(0.7) else self.posts)
        kinds: list[tuple[float, Callable[[Post], None]]] = [
            (20, Post.die),
            (25, self._sleep),
            (25, self._cut),
            (10, self._lose_answers),
            (15, self._fill),
            (15, self._write_fails),
            (12, self._kill),
            (10, self._hang),
            (8, self._come_back_empty),
            (10, self._rot),
            (4, self._refuse),
        ]
        shares, calls = zip(*kinds, strict=True)
        [call] = world.random.choices(calls, shares)
        call(post)
        self.history.note(world.now_us, f"{getattr(call, '__name__', '')} {post.name}")

    def break_disk_beside(self, changed: Post) -> None:
        """The disk of another node takes no writes."""
        if not self.stopped:
            self._write_fails(self.world.random.choice([p for p in self.posts if p is not changed]))

    def _longest_us(self) -> int:
        return self.world.random.choice([SECOND, 90 * SECOND])

    def _sleep(self, post: Post) -> None:
        world = self.world
        post.life.paused_until_us = world.now_us + world.between(1_000, self._longest_us())

    def _cut(self, post: Post) -> None:
        reader = post.reader
        if reader is not None:
            reader.cut()
            self.world.after(self.world.between(1_000, self._longest_us()), reader.mend)

    def _lose_answers(self, post: Post) -> None:
        if post.reader is not None:
            post.reader.lose_answers(self.world.between(1, 3))

    def _fill(self, post: Post) -> None:
        """No room: the server notices at its next write, and switches itself off."""
        post.free_bytes = 0
        if post.nats is not None and self.servers.answers(post.nats):
            post.nats.is_off = True
            self._say(post, FULL_LINE)
        self.world.after(self.world.between(SECOND, 30 * SECOND), lambda: self._make_room(post))

    @staticmethod
    def _make_room(post: Post) -> None:
        post.free_bytes, post.is_read_only = 10 * RESERVE_BYTES, False

    def _write_fails(self, post: Post) -> None:
        """A disk that takes no writes: the server goes on without some copy."""
        if post.nats is not None and self.servers.answers(post.nats) and post.nats.copies:
            post.is_read_only = True
            post.nats.given_up.add(self.world.random.choice(sorted(post.nats.copies)))
            self._say(post, WRITE_LINE)
            self.world.after(self.world.between(SECOND, 30 * SECOND), lambda: self._make_room(post))

    def _say(self, post: Post, line: str) -> None:
        process = self.processes.of(post.name)
        if process is not None:
            process.server.lines.append(line)
            process.tell()

    def _kill(self, post: Post) -> None:
        process = self.processes.of(post.name)
        if process is not None:
            process.kill()

    def _hang(self, post: Post) -> None:
        """It answers nothing, for a while or until it is ended, and may not end when it is told."""
        process = self.processes.of(post.name)
        if process is None or not self.servers.is_whole():
            return
        server, run = process.server, process.server.run
        server.is_hung, process.is_deaf = True, self.world.chance(0.5)

        def go_on() -> None:
            if server.run == run:
                server.is_hung = process.is_deaf = False

        if self.world.chance(0.6):
            self.world.after(self.world.between(SECOND, 150 * SECOND), go_on)

    def _is_safe(self) -> bool:
        """What is lost now is somewhere else, and nobody is about to empty a node."""
        nobody = not any(post.entered_us for post in self.posts)
        return nobody and self.servers.is_whole()

    def _come_back_empty(self, post: Post) -> None:
        process = self.processes.of(post.name)
        if process is not None and self._is_safe():
            process.kill()
            process.server.copies.clear()

    def _rot(self, post: Post) -> None:
        """Records of one copy are gone."""
        server = post.nats
        if server is None or not self._is_safe():
            return
        copies = [copy for _, copy in sorted(server.copies.items()) if copy.last > 1]
        if copies:
            copy = self.world.random.choice(copies)
            copy.missing.add(self.world.between(1, copy.last - 1))

    def _refuse(self, post: Post) -> None:
        """No process can be started for a while, and this one's ends."""
        self.processes.refuses = True
        self._kill(post)

        def allow() -> None:
            self.processes.refuses = False

        self.world.after(self.world.between(SECOND, 10 * SECOND), allow)

    def look(self) -> None:
        """Whoever died comes back."""
        for post in self.posts:
            if self.world.chance(0.2):
                post.start()
        if not self.stopped:
            self.world.after(SECOND, self.look)

    def heal(self) -> None:
        """Nothing is broken any more."""
        self.stopped = self.servers.stopped = True
        self.processes.refuses = False
        for post in self.posts:
            self._make_room(post)
            post.life.paused_until_us = 0
            if post.reader is not None:
                post.reader.lose_answers(0)
                post.reader.late_us_max = 0
                post.reader.mend()
            post.start()

    # --- the end ------------------------------------------------------------------------------

    def drain(self) -> None:
        """Let the nodes do what is left to do."""
        world = self.world
        until_us = world.now_us + DRAIN_US
        while world.now_us < until_us:
            self.heal()
            world.run(world.now_us + LOOK_AT_END_US)
            if not self._flaws():
                return

    def judge(self) -> None:
        """See what there is in the end."""
        faults = [*self._flaws(), *self.servers.faults, *self.servers.lost()]
        self.history.faults += faults

    def _flaws(self) -> list[Fault]:
        said = addresses_of(self.facts.find(PREFIX))
        left = {name for name, one in said.items() if one.left}
        wanted = sorted(post.name for post in self.posts if post.name not in left)
        texts = []
        for post in self.posts:
            if post.has_left != (post.name in left):
                texts.append(f"{post.name} does not know that it has left")
            elif not post.has_left:
                texts += self._flaws_of(post, wanted)
        if set(wanted) != self.servers.known:
            texts.append(f"servers count {sorted(self.servers.known)}, there are {wanted}")
        if not self.servers.is_whole():
            texts.append("not all copies are whole")
        return [Fault(0, text) for text in texts]

    def _flaws_of(self, post: Post, wanted: list[str]) -> list[str]:
        server, nats = post.server, post.nats
        if server is None or nats is None:
            return [f"{post.name} does not run"]
        knows = [node.name for node in server.nodes]
        texts = [] if knows == wanted else [f"{post.name} knows {knows}, there are {wanted}"]
        text = (post.directory / "jetstream" / "nats-server.conf").read_text()
        ports = [node.route_port for node in server.nodes]
        if not all(f":{port}" in text for port in ports):
            texts.append(f"the settings of the server of {post.name} do not name {knows}")
        if not self.servers.is_alive(post.name):
            texts.append(f"the server of {post.name} stays off")
        return texts


def nodes_text(names: list[str] | tuple[str, ...]) -> str:
    """As settings name nodes."""
    return ",".join(f"{name}=127.0.0.1:{7_000 + 10 * ord(name)}" for name in names)


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
        patch.setenv("XDG_STATE_HOME", str(Path(place) / "state"))
        patch.setenv(PROGRAM_VARIABLE, "sh")
        use_simulated_servers(patch, town.servers, town.processes, town.free_of, town.sync)
        town.begin()
        world.run(world.now_us + RUN_US)
        town.drain()
        town.judge()
        for post in town.posts:
            post.die()
        world.run(world.now_us + SECOND)
    return Run.of(world, history, history.faults, history.deaths)
