"""Simulated NATS servers: what they keep, who leads, how copies follow, and what becomes of them.

Much simpler than the real ones, which tests/cluster runs: a stream is a count of records, and a
copy of it says how many of them a server has, and which it lacks though it should have them.

Holds: a record is acknowledged once most members of its stream have it. A server that finds its
directory gone begins with nothing, and all the same has a voice. Who leads is the one that has most
of those that are there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dejaqueue.testing.simulation.world import World
from tests.checker.fault import Fault

TICK_US = 200_000
COPIED_MAX = 60
"""Records that a copy takes over in a tick."""
FULL_LINE = "[1] 2026/01/02 03:04:05.678901 [ERR] JetStream resource limits exceeded for server"
WRITE_LINE = "[1] 2026/01/02 03:04:05.678901 [ERR] Critical write error: input/output error"
START_LINE = "[1] 2026/01/02 03:04:05.678901 [INF] Server is ready"


@dataclass
class Copy:
    """What a server has of a stream.

    Attributes:
        last: number of the last record.
        missing: records before that it lacks.
    """

    last: int = 0
    missing: set[int] = field(default_factory=set)


@dataclass
class Stream:
    """A stream.

    Attributes:
        members: servers that are to have a copy.
        acknowledged: number of the last record that somebody was told is safe.
        moving: from which member to which server a copy is on its way.
    """

    name: str
    members: list[str]
    leader: str = ""
    acknowledged: int = 0
    moving: tuple[str, str] | None = None

    @property
    def all_members(self) -> list[str]:
        """Also who is about to become one."""
        return [*self.members, *([self.moving[1]] if self.moving else [])]


class NatsServer:
    """One server, over its starts.

    Attributes:
        place: host:port for clients.
        store: its directory, as its settings say.
        run: changes with each start; "" = no process runs.
        ready_us: from when it answers.
        is_off: JetStream has stopped there.
        is_hung: it answers nothing.
        copies: by stream, as on its disk.
        given_up: streams without whose copy it goes on until it is started again.
    """

    def __init__(self, name: str, place: str, store: Path) -> None:
        self.name, self.place, self.store = name, place, store
        self.run = ""
        self.ready_us = 0
        self.is_off = self.is_hung = False
        self.copies: dict[str, Copy] = {}
        self.given_up: set[str] = set()
        self.lines: list[str] = []


class NatsServers:
    """All servers of a cluster.

    Attributes:
        known: names of the servers that count.
        faults: promises that were seen broken.
        stopped: nothing more is written.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.servers: dict[str, NatsServer] = {}
        self.streams: dict[str, Stream] = {}
        self.known: set[str] = set()
        self.faults: list[Fault] = []
        self.stopped = False

    def is_alive(self, name: str) -> bool:
        """True if its JetStream takes part."""
        server = self.servers.get(name)
        return server is not None and self.answers(server) and not server.is_off

    def answers(self, server: NatsServer) -> bool:
        """True if it answers at all."""
        return bool(server.run) and not server.is_hung and self.world.now_us >= server.ready_us

    @property
    def leader(self) -> str:
        """Who leads the cluster; "" while most are away."""
        alive = sorted(name for name in self.known if self.is_alive(name))
        return alive[0] if 2 * len(alive) > len(self.known) else ""

    # --- processes ----------------------------------------------------------------------------

    def begin(self, server: NatsServer) -> None:
        """Its process starts."""
        world = self.world
        server.run = f"{world.random.getrandbits(64):016x}"
        server.ready_us = world.now_us + world.between(100_000, 2_000_000)
        server.is_off = server.is_hung = False
        server.given_up.clear()
        self.servers[server.name] = server
        self.known.add(server.name)
        self._look_for(server)
        server.store.mkdir(parents=True, exist_ok=True)
        for name in list(server.copies):
            stream = self.streams.get(name)
            if stream is None or server.name not in stream.all_members:
                del server.copies[name]
        server.lines.append(START_LINE)

    def _look_for(self, server: NatsServer) -> None:
        """If its streams were removed, by the node, all the others have to have everything."""
        if not server.copies or server.store.exists():
            return
        for name in server.copies:
            stream = self.streams[name]
            whole = [
                one for one in stream.members if one != server.name and self._has_all(stream, one)
            ]
            if server.name in stream.members and 2 * len(whole) <= len(stream.members):
                text = f"{server.name} was emptied, and only {whole} have all of {name}"
                self.faults.append(Fault(1, text))
        server.copies.clear()

    def end(self, server: NatsServer) -> None:
        """Its process has ended."""
        server.run = ""

    # --- copies -------------------------------------------------------------------------------

    def _has_all(self, stream: Stream, name: str) -> bool:
        copy = self.servers[name].copies.get(stream.name)
        return copy is not None and not copy.missing and copy.last >= stream.acknowledged

    def is_whole(self, but: str = "") -> bool:
        """True if every copy that should be there is there with everything, or one server's may
        not be."""
        return all(
            name == but or (self.is_alive(name) and self._has_all(stream, name))
            for stream in self.streams.values()
            for name in stream.all_members
        )

    def make_stream(self, name: str) -> None:
        """As a broker that makes a topic."""
        alive = sorted(one for one in self.known if self.is_alive(one))
        if len(alive) >= 3:
            members = self.world.random.sample(alive, 3)
            self.streams[name] = Stream(name, members, members[0])
            for one in members:
                self.servers[one].copies[name] = Copy()

    def tick(self) -> None:
        """Everybody leads, writes and follows a little further."""
        for server in self.servers.values():
            self._look_for(server)
        for stream in self.streams.values():
            self._choose_leader(stream)
            if stream.leader:
                self._lead(stream)
        self.world.after(TICK_US, self.tick)

    def _alive(self, stream: Stream) -> list[str]:
        alive = [name for name in stream.members if self.is_alive(name)]
        return [one for one in alive if stream.name not in self.servers[one].given_up]

    def _choose_leader(self, stream: Stream) -> None:
        alive = self._alive(stream)
        for name in alive:
            self.servers[name].copies.setdefault(stream.name, Copy())
        if 2 * len(alive) <= len(stream.members):
            stream.leader = ""
        elif stream.leader not in alive:
            stream.leader = max(alive, key=lambda one: self.servers[one].copies[stream.name].last)

    def _lead(self, stream: Stream) -> None:
        world, leads = self.world, self.servers[stream.leader].copies[stream.name]
        if not self.stopped:
            leads.last += world.random.choice([0, 0, 1, 7])
        for name in stream.all_members:
            if name == stream.leader or not self.is_alive(name):
                continue
            server = self.servers[name]
            if stream.name not in server.given_up:
                self._follow(server.copies.setdefault(stream.name, Copy()), leads)
        have = sorted(
            (self.servers[name].copies.get(stream.name, Copy()).last for name in stream.members),
            reverse=True,
        )
        stream.acknowledged = max(
            stream.acknowledged, min(leads.last, have[len(stream.members) // 2])
        )
        if stream.moving is not None:
            self._move_on(stream, leads)

    def _follow(self, copy: Copy, leads: Copy) -> None:
        if copy.last > leads.last:
            copy.last = leads.last
            copy.missing = {one for one in copy.missing if one <= leads.last}
        # What a leader lacks, its followers lack as well on real servers. Two copies that are not
        # whole are more than the nodes can do something about, so that does not happen here.
        copied = self.world.between(COPIED_MAX // 4, COPIED_MAX)
        copy.last = min(leads.last, copy.last + copied)

    def _move_on(self, stream: Stream, leads: Copy) -> None:
        assert stream.moving is not None
        old, new = stream.moving
        if new not in self.known:
            stream.moving = None
            return
        copy = self.servers[new].copies.get(stream.name)
        if copy is None or copy.last < leads.last or not self.is_alive(new):
            return
        stream.members[stream.members.index(old)] = new
        stream.moving = None
        if stream.leader == old:
            stream.leader = new
        if old in self.servers and self.servers[old].run:
            self.servers[old].copies.pop(stream.name, None)

    def lost(self) -> list[Fault]:
        """What was acknowledged and is on no server any more."""
        faults = []
        for stream in self.streams.values():
            copies = [
                self.servers[name].copies[stream.name]
                for name in stream.all_members
                if stream.name in self.servers[name].copies
            ]
            if max((copy.last for copy in copies), default=0) < stream.acknowledged:
                faults.append(Fault(1, f"the end of {stream.name} is lost"))
            gone = [copy.missing for copy in copies if copy.last >= stream.acknowledged]
            if gone and set.intersection(*gone):
                faults.append(Fault(1, f"records of {stream.name} are lost"))
        return faults

    # --- what they say ------------------------------------------------------------------------

    def jsz(self, server: NatsServer) -> dict[str, Any]:
        """What a server says of itself."""
        details = [
            self._detail(server, self.streams[name], copy)
            for name, copy in sorted(server.copies.items())
            if name in self.streams and name not in server.given_up
        ]
        told: dict[str, Any] = {"server_id": server.run, "meta_cluster": self._meta()}
        if server.is_off:
            told["disabled"] = True
        else:
            told["config"] = {"sync_always": True}
            told["account_details"] = [{"name": "DEJAQ", "stream_detail": details}]
        return {"server": {"name": server.name, "ver": "2.15.1"}, "data": told}

    def _meta(self) -> dict[str, Any]:
        return {"leader": self.leader, "cluster_size": len(self.known)}

    def _detail(self, server: NatsServer, stream: Stream, copy: Copy) -> dict[str, Any]:
        messages = copy.last - len(copy.missing)
        return {
            "name": stream.name,
            "state": {
                "messages": messages,
                "first_seq": 1,
                "last_seq": copy.last,
                "num_deleted": len(copy.missing),
                "bytes": 100 * messages,
            },
            "cluster": self._cluster(stream),
        }

    def _cluster(self, stream: Stream) -> dict[str, Any]:
        leader = stream.leader
        last = self.servers[leader].copies[stream.name].last if leader else 0
        replicas = []
        for name in stream.all_members:
            if name != leader:
                copy = self.servers[name].copies.get(stream.name, Copy())
                is_there = self.is_alive(name)
                lag = last - copy.last
                replicas.append(
                    {"name": name, "current": is_there and lag <= 0, "lag": max(lag, 0)}
                    | ({} if is_there else {"offline": True})
                )
        told: dict[str, Any] = {"leader": leader, "replicas": replicas}
        if stream.moving is not None:
            told["desired"] = {"replicas": [{"name": stream.moving[1]}]}
        return told

    def call(self, name: str, asked: dict[str, Any]) -> dict[str, Any] | None:
        """An answer of the API; None = nobody answers."""
        what, _, stream = name.rpartition(".")
        if name == "SERVER.REMOVE":
            return self._remove(str(asked["peer"]))
        if name == "STREAM.NAMES":
            names = sorted(self.streams)
            page = names[int(asked.get("offset", 0)) :][:3]
            return {"streams": page, "total": len(names)} if self.leader else None
        if what == "STREAM.INFO":
            return self._info(stream)
        if what == "STREAM.LEADER.STEPDOWN":
            return self._step_down(stream, str(asked["placement"]["preferred"]))
        if what == "STREAM.PEER.EVACUATE":
            return self._evacuate(stream, str(asked["peer"]))
        raise AssertionError(f"a simulated server does not know {name}")

    def _info(self, name: str) -> dict[str, Any] | None:
        stream = self.streams.get(name)
        if stream is None:
            return _refusal(404, 10059, "stream not found") if self.leader else None
        return {"cluster": self._cluster(stream)} if stream.leader else None

    def _step_down(self, name: str, preferred: str) -> dict[str, Any] | None:
        stream = self.streams.get(name)
        if stream is None or not stream.leader:
            return None
        if preferred in self._alive(stream):
            copy, leads = (self.servers[one].copies[name] for one in (preferred, stream.leader))
            if copy.last >= leads.last:  # it hands over what it has first
                stream.leader = preferred
        return {"success": True}

    def _evacuate(self, name: str, peer: str) -> dict[str, Any] | None:
        stream = self.streams.get(name)
        if stream is None or not stream.leader or not self.leader:
            return None
        if peer not in stream.members or stream.moving is not None:
            return _refusal(400, 10075, "peer not a member, or already moving")
        others = sorted(
            one for one in self.known if self.is_alive(one) and one not in stream.members
        )
        if not others:
            return _refusal(400, 10005, "no suitable peers for placement")
        stream.moving = (peer, self.world.random.choice(others))
        return {"success": True}

    def _remove(self, peer: str) -> dict[str, Any] | None:
        if not self.leader:
            return None
        if peer not in self.known:
            return _refusal(400, 10044, "server is not a member of the cluster")
        self.known.discard(peer)
        return {"success": True}


def _refusal(code: int, number: int, text: str) -> dict[str, Any]:
    return {"error": {"code": code, "err_code": number, "description": text}}
