"""What is done to the servers of a cluster at an operator's word: one leaves, one is rebuilt.

Room: cluster. Work that takes minutes runs on a thread of its own; the operator asks again to hear
how it goes.
Holds: in the whole cluster one node at a time leaves or is rebuilt; a node leaves only while three
others are whole, and is told so when nothing is on it any more.
See: moving.py, jetstream.py; docs/guides/cluster.md; docs/adr/0017-servers-join-and-leave.md.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dejaqueue.clock import Clock, SteadyClock, Wake
from dejaqueue.cluster import members
from dejaqueue.cluster.jetstream import JetStreamServer
from dejaqueue.cluster.members import Member, members_of
from dejaqueue.cluster.moving import Mover
from dejaqueue.cluster.servers import PREFIX as SERVERS
from dejaqueue.cluster.servers import ServerAddress, addresses_of
from dejaqueue.cluster.turn import Keep, Turn
from dejaqueue.connections.nats.answers import ApiRefusal
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.connections.nats.monitor import ServerReport, SystemMonitor
from dejaqueue.connections.nats.url import NatsUrl, read_url
from dejaqueue.coordinator.interface import Coordinator
from dejaqueue.errors import BadRequest, DejaQError, Elsewhere, Refused, Unavailable
from dejaqueue.journal.records.nats.store import NatsRecordStore

log = logging.getLogger("dejaqueue.cluster")

STOP_MS = 90_000
"""How long a broker that was removed has to hand over its topics and stop."""
MEMBERS_MIN = 3
LOOK_US = 200_000
LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass
class Progress:
    """How far something is.

    Attributes:
        state: `working`, `done` or `failed`.
        text: what is being done, or why it failed.
    """

    state: str = "working"
    text: str = ""


Work = Callable[[str, Progress, Keep], None]


class Care:
    """Does what `remove_node` and `repair_node` ask for.

    Args:
        node: this broker's name.
        server: the server beside this broker; None = the servers are the operator's own.
        records: the journal's, on JetStream.
    """

    def __init__(
        self,
        node: str,
        coordinator: Coordinator,
        records: NatsRecordStore,
        server: JetStreamServer | None,
        clock: Clock | None = None,
    ) -> None:
        self._node, self._coordinator = node, coordinator
        self._records, self._server = records, server
        self._clock: Clock = clock or SteadyClock()
        self._guard = threading.Lock()
        self._progress: dict[tuple[str, str], Progress] = {}
        self._turn = Turn(node, coordinator, self._clock)

    # --- what is asked -------------------------------------------------------------------------

    def act(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """Begin `remove_node` or `repair_node`, or say how it goes.

        Args:
            body: `node`; `start`, False = only say.

        Returns:
            `node`, `state`, `text`; see Progress.

        Raises:
            BadRequest. Elsewhere: another broker has to do it. Refused: it cannot be done.
        """
        node = body.get("node")
        if not isinstance(node, str) or not node:
            raise BadRequest("node", "the name of a node", node)
        with self._guard:
            progress = self._progress.get((name, node))
        if not body.get("start"):
            return self._told(name, node, progress)
        work = self._leaving(node) if name == "remove_node" else self._repairing(node)
        with self._guard:
            progress = self._progress.get((name, node))
            if progress is None or progress.state != "working":
                progress = self._progress[name, node] = Progress()
                threading.Thread(
                    target=self._run, args=(work, node, progress), name="dejaq-care", daemon=True
                ).start()
        return self._told(name, node, progress)

    def _told(self, name: str, node: str, progress: Progress | None) -> dict[str, Any]:
        if progress is None:
            member = None if node == self._node else self._members().get(node)
            if name == "repair_node" and self._server is not None and member is not None:
                raise self._at(member)
            return {"node": node, "state": "", "text": "nothing was begun here"}
        return {"node": node, "state": progress.state, "text": progress.text}

    def _leaving(self, node: str) -> Work:
        if self._server is None:
            raise Refused("the servers of this cluster are not run by its brokers: remove it there")
        if node == self._node:
            others = self._others()
            raise self._at(others[0]) if others else Refused("no other broker is there")
        there = {one.name for one in self._server.nodes}
        known = there | set(addresses_of(self._coordinator.list(SERVERS)))
        if node not in known:
            raise BadRequest("node", f"one of {', '.join(sorted(known))}", node)
        if len(there - {node}) < MEMBERS_MIN:
            raise Refused(
                f"{len(there)} nodes keep three copies of everything: let another one join first"
            )
        return self._leave

    def _repairing(self, node: str) -> Work:
        if self._server is None:
            return self._rebuild_elsewhere
        if node == self._node:
            return self._rebuild_here
        member = self._members().get(node)
        if member is None:
            known = ", ".join(sorted(self._members()))
            raise BadRequest("node", f"one whose broker is there ({known})", node)
        raise self._at(member)

    def _members(self) -> dict[str, Member]:
        return members_of(self._coordinator.list(members.PREFIX))

    def _others(self) -> list[Member]:
        return [one for name, one in sorted(self._members().items()) if name != self._node]

    @staticmethod
    def _at(member: Member) -> Elsewhere:
        text = f"this is done by {member.node} at {member.url}"
        return Elsewhere(text, 50, member.node, member.url, member.http_url)

    def _run(self, work: Work, node: str, progress: Progress) -> None:
        try:
            with self._turn() as keep:
                work(node, progress, keep)
        except DejaQError as error:
            log.error("node %s: %s", node, error)
            progress.text, progress.state = str(error), "failed"
        except Exception as error:
            log.exception("node %s", node)
            progress.text, progress.state = f"{type(error).__name__}: {error}", "failed"
        else:
            progress.state = "done"

    # --- leaving -------------------------------------------------------------------------------

    def _leave(self, node: str, progress: Progress, keep: Keep) -> None:
        """Move all copies off a node, have its broker stop, and forget it."""
        assert self._server is not None
        url = read_url(self._server.url)
        monitor, connection = SystemMonitor(url), NatsConnection(url)
        try:
            self._check_others(node, monitor.reports())

            def say(text: str) -> None:
                progress.text = text

            mover = Mover(connection, lambda name: True, self._clock, keep)
            count = mover.move_off(node, say)
            log.info("%d streams have left node %s", count, node)
            self._say_left(node)
            progress.text = (
                f"node {node} has nothing any more; waiting until its broker has stopped"
            )
            self._until_gone(node, monitor, keep)
            # What somebody made meanwhile may have been placed there.
            mover.move_off(node, say)
            self._forget(node, url, keep)
            progress.text = f"node {node} has left; {count} streams were moved"
        finally:
            connection.close()
            monitor.close()

    def _check_others(self, node: str, reports: list[ServerReport]) -> None:
        """Raise Refused unless all the others are there and whole."""
        assert self._server is not None
        there = {one.server for one in reports if not one.is_off}
        away = sorted({one.name for one in self._server.nodes} - there - {node})
        if away:
            raise Refused(f"not while {', '.join(away)} does not answer")
        sick = sorted({one.server for one in self._records.look_now()} - {node})
        if sick:
            raise Refused(f"not while copies of {', '.join(sick)} are not whole")

    def _say_left(self, node: str) -> None:
        assert self._server is not None
        fact = self._coordinator.get(SERVERS + node)
        if fact is not None:
            place = ServerAddress.of(json.loads(fact.value))
        else:
            place = ServerAddress(next(one for one in self._server.nodes if one.name == node))
        gone = ServerAddress(place.node, left=True)
        self._coordinator.put(SERVERS + node, gone.to_bytes())

    def _until_gone(self, node: str, monitor: SystemMonitor, keep: Keep) -> None:
        """Wait until a node's broker and server have stopped."""
        until_us = self._clock.now_us() + STOP_MS * 1_000
        while True:
            keep()
            reports = monitor.reports()
            is_there = node in {one.server for one in reports if not one.is_off}
            if reports and not is_there and node not in self._members():
                return
            if self._clock.now_us() > until_us:
                raise Unavailable(
                    f"node {node} has nothing any more, but runs: stop it, and remove it again"
                )
            self._clock.wait_until(self._clock.now_us() + LOOK_US, Wake())

    def _forget(self, node: str, url: NatsUrl, keep: Keep) -> None:
        """Have the servers count without a node that has stopped."""
        system = NatsConnection(url, as_system=True)
        try:
            until_us = self._clock.now_us() + STOP_MS * 1_000
            while True:
                keep()
                try:
                    system.api("SERVER.REMOVE", {"peer": node, "peer_id": peer_mark(node)})
                    return
                except ApiRefusal as error:
                    if "not a member" in str(error):
                        return  # an answer of before was lost
                    refusal: Exception = error
                except Unavailable as error:  # a leader is being chosen
                    refusal = error
                if self._clock.now_us() > until_us:
                    raise Unavailable(f"node {node} has stopped, but is not forgotten: {refusal}")
                self._clock.wait_until(self._clock.now_us() + LOOK_US, Wake())
        finally:
            system.close()

    # --- rebuilding ----------------------------------------------------------------------------

    def _rebuild_here(self, node: str, progress: Progress, keep: Keep) -> None:
        assert self._server is not None
        progress.text = "emptying it, and taking everything from the others"
        self._server.repair(alive=keep)
        progress.text = f"node {node} is whole"

    def _rebuild_elsewhere(self, node: str, progress: Progress, keep: Keep) -> None:
        """Have the operator's own servers copy what is sick on one of them to another."""
        sick = [one for one in self._records.look_now() if one.server == node]
        if not sick:
            progress.text = f"all copies of {node} are whole"
            return
        url = self._records.address
        connection = NatsConnection(url)
        try:
            mover = Mover(connection, self._records.has_stream, self._clock, keep)
            mover.check_version()
            for stream in sorted({one.stream for one in sick}):
                progress.text = f"{stream}: copying to another server"
                if not stream or not self._has_spare(mover, stream):
                    raise Refused(by_hand(node))
                mover.move(stream, node)
        finally:
            connection.close()
        self._records.look_now()
        progress.text = f"{len(sick)} sick copies of {node} were replaced by others elsewhere"

    def _has_spare(self, mover: Mover, stream: str) -> bool:
        """True if a server that is whole has no copy of the stream yet."""
        group, sick = mover.group(stream), {one.server for one in self._records.sick}
        have = sick | (set(group.members) if group is not None else set())
        return bool({one["server"] for one in self._records.servers()} - have)


def by_hand(node: str) -> str:
    """What is to be done with a server that only its operator can empty."""
    return (
        f"no further server can take copies: stop {node}, remove its directory `jetstream`, start "
        f"it again, one server at a time; `dejaq cluster status` says when it is whole"
    )


def peer_mark(server: str) -> str:
    """What JetStream's groups call a server: known also when nobody remembers its name."""
    digest = hashlib.sha256(server.encode()).digest()
    return "".join(LETTERS[byte % len(LETTERS)] for byte in digest[:8])
