"""A simulated ZooKeeper: nodes with versions, transactions, sessions, and watches that fire once.

Written from what ZooKeeper's pages say of it. tests/conformance/test_simulated_zookeeper.py
compares it with a real one, answer by answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)

TICK_US = 500_000
"""Sessions end with one of these, and have to last for two to forty of them."""
Watch = Callable[[object], None]


@dataclass(frozen=True)
class Stat:
    """What there is about a node, as kazoo names it."""

    mzxid: int
    version: int
    ephemeralOwner: int  # noqa: N815 - as kazoo has it


@dataclass(frozen=True)
class Node:
    """A node."""

    value: bytes
    stat: Stat


@dataclass
class Session:
    """A session.

    Attributes:
        until_us: when it ends unless it is heard of.
    """

    number: int
    timeout_us: int
    until_us: int = 0


@dataclass(frozen=True)
class Op:
    """A part of a transaction: create, set or delete."""

    what: str
    path: str
    value: bytes = b""
    version: int = -1
    ephemeral: bool = False


@dataclass
class ZooKeeperServer:
    """Whichever server leads, and what most of them have.

    Args:
        now_us: its clock.

    Attributes:
        zxid: of the last change.
    """

    now_us: Callable[[], int]
    zxid: int = 0
    nodes: dict[str, Node] = field(default_factory=lambda: {"/": Node(b"", Stat(0, 0, 0))})
    sessions: dict[int, Session] = field(default_factory=dict)
    _count: int = 0
    _watches: dict[tuple[str, str], dict[Watch, None]] = field(default_factory=dict)

    def copy(self) -> ZooKeeperServer:
        """All that is kept now, sessions too."""
        sessions = {number: replace(one) for number, one in self.sessions.items()}
        return replace(self, nodes=dict(self.nodes), sessions=sessions, _watches={})

    # --- sessions -----------------------------------------------------------------------------

    def connect(self, number: int, timeout_us: int) -> Session | None:
        """A new session, or this one if it has not ended; None = it has."""
        if number:
            self.hear(number)
            return self.sessions.get(number)
        self._count += 1
        self.zxid += 1  # every server is told
        granted_us = min(max(timeout_us, 2 * TICK_US), 40 * TICK_US)
        session = self.sessions[self._count] = Session(self._count, granted_us)
        self.hear(session.number)
        return session

    def hear(self, number: int) -> None:
        """A session lives."""
        session = self.sessions.get(number)
        if session is not None:
            until_us = self.now_us() + session.timeout_us
            session.until_us = (until_us // TICK_US + 1) * TICK_US

    def expire(self) -> None:
        """End the sessions that nobody has heard of."""
        now_us = self.now_us()
        for session in list(self.sessions.values()):
            if session.until_us <= now_us:
                self.end(session.number)

    def end(self, number: int) -> None:
        """End a session, with what it holds."""
        if self.sessions.pop(number, None) is None:
            return
        self.zxid += 1
        held = [p for p, node in self.nodes.items() if node.stat.ephemeralOwner == number]
        for path in held:
            del self.nodes[path]
            self._fire(path, is_child=True)

    # --- calls --------------------------------------------------------------------------------

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """See KazooClient.get."""
        node = self._node(path)
        self._watch("data", path, watch)
        return node.value, node.stat

    def exists(self, path: str) -> Stat | None:
        """See KazooClient.exists."""
        return self.nodes[path].stat if path in self.nodes else None

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """See KazooClient.get_children."""
        self._node(path)
        self._watch("children", path, watch)
        return [one.rpartition("/")[2] for one in self.nodes if _parent(one) == path]

    def change(self, number: int, ops: Sequence[Op]) -> list[Any]:
        """A transaction of a session: what came of each part. All of it is done, or none."""
        if number not in self.sessions:
            raise SessionExpiredError
        before = dict(self.nodes)
        answers: list[Any] = []
        for place, op in enumerate(ops):
            try:
                answers.append(self._do(number, op, self.zxid + 1))
            except (NoNodeError, BadVersionError, NodeExistsError) as wrong:
                self.nodes = before
                after = len(ops) - place - 1
                undone = [RolledBackError() for _ in answers]
                return [*undone, wrong, *(RuntimeInconsistency() for _ in range(after))]
        self.zxid += 1
        for op in ops:
            self._fire(op.path, is_child=op.what != "set")
        return answers

    def _do(self, number: int, op: Op, zxid: int) -> Any:
        if op.what == "create":
            if op.path in self.nodes:
                raise NodeExistsError
            self._node(_parent(op.path))
            stat = Stat(zxid, 0, number if op.ephemeral else 0)
            self.nodes[op.path] = Node(op.value, stat)
            return op.path
        node = self._node(op.path)
        if op.version not in (-1, node.stat.version):
            raise BadVersionError
        if op.what == "delete":
            del self.nodes[op.path]
            return True
        stat = replace(node.stat, mzxid=zxid, version=node.stat.version + 1)
        self.nodes[op.path] = Node(op.value, stat)
        return stat

    def _node(self, path: str) -> Node:
        if path not in self.nodes:
            raise NoNodeError
        return self.nodes[path]

    # --- watches ------------------------------------------------------------------------------

    def _watch(self, what: str, path: str, watch: Watch | None) -> None:
        if watch is not None:
            self._watches.setdefault((what, path), {})[watch] = None

    def forget(self, watches: Sequence[Watch]) -> None:
        """Nobody hears these any more."""
        for kept in self._watches.values():
            for watch in watches:
                kept.pop(watch, None)

    def _fire(self, path: str, *, is_child: bool) -> None:
        places = [("data", path)]
        if is_child:
            places += [("children", path), ("children", _parent(path))]
        for place in places:
            for watch in self._watches.pop(place, {}):
                watch(path)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/" if path != "/" else ""
