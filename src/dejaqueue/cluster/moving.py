"""Moving the copies of streams from one JetStream server to others, while they are written to.

Room: cluster. Needs nats-server 2.15 or later: its leader adds the new copy through the stream's
own log, waits until that has everything, and only then removes the old one. Older servers exchange
copies in one step, in which a record may be on most of the old ones and on few of the new.
Holds: one stream at a time, and none before all its other copies have everything. Whoever stops in
the middle leaves nothing half done: a move that has begun is finished by the servers.
See: care.py, which calls this; docs/adr/0017-servers-join-and-leave.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dejaqueue.clock import Clock, Wake
from dejaqueue.connections.nats.answers import ApiRefusal, Meaning
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.errors import Refused, Unavailable

log = logging.getLogger("dejaqueue.cluster")

VERSION_MIN = (2, 15)
LOOK_US = 100_000
ASK_AGAIN_MS = 5_000
STREAM_MS = 600_000
"""How long the copying of a stream is waited for; a longer one goes on, and is looked at again."""


@dataclass(frozen=True, slots=True)
class Group:
    """The servers that have copies of a stream, as its leader says.

    Attributes:
        members: names of the servers; the leader's is among them.
        behind: those of them that do not have everything or do not answer.
        is_moving: the servers are moving copies.
    """

    stream: str
    leader: str
    members: frozenset[str]
    behind: frozenset[str]
    is_moving: bool

    @classmethod
    def of(cls, stream: str, told: dict[str, Any]) -> Group:
        """From what `STREAM.INFO` says."""
        cluster = told.get("cluster") or {}
        others = cluster.get("replicas") or ()
        leader = str(cluster.get("leader", ""))
        behind = (
            str(one.get("name", ""))
            for one in others
            if one.get("offline") or not one.get("current") or int(one.get("lag", 0)) > 0
        )
        names = {str(one.get("name", "")) for one in others} | ({leader} if leader else set())
        return cls(
            stream, leader, frozenset(names), frozenset(behind), bool(cluster.get("desired"))
        )


class Mover:
    """Moves copies.

    Args:
        connection: as the user whose streams they are.
        is_ours: which streams are looked at, by name.
        alive: called now and then while it waits; raises to end it.
    """

    def __init__(
        self,
        connection: NatsConnection,
        is_ours: Callable[[str], bool],
        clock: Clock,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._connection, self._is_ours = connection, is_ours
        self._clock, self._alive = clock, alive

    def check_version(self) -> None:
        """Raise Refused where the server cannot move copies safely."""
        version = self._connection.server_version
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        if numbers < VERSION_MIN:
            text = ".".join(map(str, VERSION_MIN))
            raise Refused(f"copies are moved safely by nats-server {text} or later, not {version}")

    def streams(self) -> list[str]:
        """Names of our streams. Raises Unavailable."""
        names: list[str] = []
        while True:
            try:
                page = self._connection.look_up("STREAM.NAMES", {"offset": len(names)})
            except ApiRefusal as error:
                raise Unavailable(str(error)) from error
            found = page.get("streams") or []
            names.extend(found)
            if not found or len(names) >= int(page.get("total", 0)):
                return sorted(name for name in names if self._is_ours(name))

    def group(self, stream: str) -> Group | None:
        """The servers with copies of a stream; None = it was deleted. Raises Unavailable."""
        try:
            return Group.of(stream, self._connection.look_up(f"STREAM.INFO.{stream}"))
        except ApiRefusal as error:
            if error.meaning is Meaning.ABSENT:
                return None
            raise Unavailable(str(error)) from error

    def groups_with(self, server: str) -> list[Group]:
        """The streams that a server has a copy of, or still gets or loses one of."""
        groups = (self.group(name) for name in self.streams())
        return [one for one in groups if one and (server in one.members or one.is_moving)]

    def move_off(self, server: str, say: Callable[[str], None] = lambda text: None) -> int:
        """Have all streams moved off a server, also those that are made meanwhile.

        Returns:
            How many it had.

        Raises:
            Unavailable: not in time; it is fine to call again. Refused: there is no other server.
        """
        self.check_version()
        moved: set[str] = set()
        while groups := self.groups_with(server):
            for number, group in enumerate(groups, 1):
                say(f"{group.stream}: copying to another server ({number} of {len(groups)})")
                self.move(group.stream, server)
                moved.add(group.stream)
        return len(moved)

    def move(self, stream: str, server: str) -> None:
        """Have one stream leave a server; return when it has. Raises as `move_off`."""
        began_ms = self._clock.now_ms()
        asked_ms = -ASK_AGAIN_MS
        while True:
            self._alive()
            group = self._group_now(stream)
            if group is None:
                return
            if server not in group.members and not group.is_moving and not group.behind:
                log.info("%s has left %s", stream, server)
                return
            now_ms = self._clock.now_ms()
            if now_ms - began_ms > STREAM_MS:
                raise Unavailable(f"{stream}: it has not left {server}: {group}")
            ready = not group.is_moving and not group.behind - {server}
            if ready and server in group.members and now_ms - asked_ms >= ASK_AGAIN_MS:
                self._ask(stream, server)
                asked_ms = now_ms
            self._clock.wait_until(self._clock.now_us() + LOOK_US, Wake())

    def _group_now(self, stream: str) -> Group | None:
        """As `group`; while there is no leader, somebody who has nothing yet."""
        try:
            return self.group(stream)
        except Unavailable as error:
            log.debug("%s", error)
            return Group(stream, "", frozenset(), frozenset({"?"}), True)

    def _ask(self, stream: str, server: str) -> None:
        try:
            self._connection.api(f"STREAM.PEER.EVACUATE.{stream}", {"peer": server})
        except ApiRefusal as error:
            if self._is_elsewhere(stream, server):
                return
            raise Refused(f"{stream} cannot leave {server}: {error}") from error
        except Unavailable as error:  # a leader may be just being chosen
            log.debug("%s: %s", stream, error)

    def _is_elsewhere(self, stream: str, server: str) -> bool:
        group = self._group_now(stream)
        return group is None or server not in group.members or group.is_moving
