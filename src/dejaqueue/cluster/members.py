"""Membership: this broker is there, and who else is.

Room: cluster.
Holds: `valid_until_us` is never later than when others may take over what this broker has: it
counts from before the last renewal that was answered, and a fifth of the time is kept back for
clocks that run apart. It is a courtesy: what keeps two owners from both writing is the journal.
See: node.py, whose threads call this; coordinator/interface.py, duty 4.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

from dejaqueue.clock import Clock, Wake
from dejaqueue.coordinator.interface import Conflict, Coordinator, Fact
from dejaqueue.errors import Locked, Unavailable

PREFIX = "members/"
PEERS_KEY = "peers/key"
"""The fact that has what brokers show to one another: whoever reads it is one of them."""


@dataclass(frozen=True, slots=True)
class Member:
    """A broker of the cluster, as it says of itself.

    Attributes:
        node: its name, unique in the cluster.
        session: this life of it.
        url: its Flight port, `dejaq://host:port`.
        http_url: its HTTP port.
        version: of DejaQ.
        leaving: it hands over what it has, and takes nothing.
        comparing: it has not compared its clock with the others' yet: it takes nothing.
        apart: its clock differs from the others': it keeps what it has, and takes nothing.
        apart_us: by how much it does for certain, ahead is positive.
        short: the disk of the server beside it has too little room: producers wait everywhere.
        place: the revision of its fact when it joined, which rises from one to the next; 0 = the
            fact is still that one. A process whose membership had ended keeps its place.
    """

    node: str
    session: str
    url: str
    http_url: str
    version: str
    leaving: bool = False
    comparing: bool = False
    apart: bool = False
    apart_us: int = 0
    short: bool = False
    place: int = 0

    @property
    def takes(self) -> bool:
        """True if it may be given more than it has."""
        return not (self.leaving or self.comparing or self.apart)

    def to_bytes(self) -> bytes:
        """As a fact's value."""
        return json.dumps(asdict(self)).encode()

    def described(self) -> dict[str, object]:
        """What an operator sees."""
        names = ("node", "url", "http_url", "version", "leaving", "short")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def of(cls, fact: Fact) -> Member:
        """From a fact's value."""
        return _member_of(fact.value)


@lru_cache(maxsize=1_024)
def _member_of(value: bytes) -> Member:
    """Each round asks for all of them several times, and they hardly ever change."""
    values = json.loads(value)
    return Member(**{name: values[name] for name in Member.__slots__ if name in values})


def members_of(facts: Iterable[Fact]) -> dict[str, Member]:
    """Members by node."""
    return {member.node: member for member in map(Member.of, facts)}


def peers_key(coordinator: Coordinator) -> str | None:
    """What brokers show to one another; the first one makes it. Raises Unavailable."""
    found = coordinator.get(PEERS_KEY)
    if found is None:
        with suppress(Conflict):
            coordinator.put(PEERS_KEY, secrets.token_urlsafe(32).encode(), 0)
        found = coordinator.get(PEERS_KEY)
    return None if found is None else found.value.decode()


def new_session() -> str:
    """A name for one life of a broker."""
    return secrets.token_hex(8)


class Membership:
    """One life of this broker in the cluster.

    Args:
        clock: elapsed time; steps of the wall clock must not show.
        lock: of one call about the fact at a time; it is held while the coordinator is asked.

    Attributes:
        member: what others see.
        valid_until_us: until when this broker may serve, unless it is renewed; 0 = it may not.
        place: as `Member.place`, once it has joined.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        member: Member,
        lease_ms: int,
        clock: Clock,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self.member = member
        self.valid_until_us = 0
        self._coordinator = coordinator
        self._lease_ms = lease_ms
        self._clock = clock
        self.place = 0
        self._lock = lock or threading.Lock()
        """A renewal names the fact as it is: it must not be changed meanwhile."""

    @property
    def key(self) -> str:
        """Of its fact."""
        return PREFIX + self.member.node

    def join(self) -> None:
        """Be there. Raises Locked: another broker with this name is; Unavailable."""
        began_us = self._clock.now_us()
        try:
            value = self.member.to_bytes()
            place = self._coordinator.put(self.key, value, 0, ttl_ms=self._lease_ms)
        except Conflict:
            found = self._coordinator.get(self.key)
            if found is not None and Member.of(found).session != self.member.session:
                text = f"node {self.member.node} is in the cluster already, from another process"
                raise Locked(text) from None
            if found is None:
                raise Unavailable("membership changed meanwhile", 100) from None
            # Ours, by a call whose answer was lost: put again, so that it can be renewed.
            revision, ttl_ms = found.revision, self._lease_ms
            try:
                place = self._coordinator.put(self.key, value, revision, ttl_ms=ttl_ms)
            except Conflict:  # it vanished meanwhile: that answer took as long as the lease
                raise Unavailable("membership changed meanwhile", 100) from None
        self.place = self.member.place or place
        self._renewed(began_us)

    def join_within(self, wait_ms: int) -> None:
        """Be there as soon as an earlier life of this node is forgotten. Raises as `join`."""
        until_us, bell = self._clock.now_us() + wait_ms * 1_000, Wake()
        while True:
            try:
                self.join()
            except (Locked, Unavailable):
                if self._clock.now_us() >= until_us:
                    raise
                self._clock.wait_until(self._clock.now_us() + 100_000, bell)
            else:
                return

    def renew(self) -> bool:
        """Stay there; False if it has vanished. Raises Unavailable."""
        with self._lock:
            began_us = self._clock.now_us()
            if not self._coordinator.renew(self.key):
                self.valid_until_us = 0
                return False
            self._renewed(began_us)
            return True

    def change(self, member: Member) -> None:
        """Have others see this of the same life. Raises Unavailable."""
        with self._lock:
            if self.is_valid():
                member = replace(member, place=self.place)
                self._coordinator.put(self.key, member.to_bytes(), ttl_ms=self._lease_ms)
                self.member = member

    def _renewed(self, began_us: int) -> None:
        self.valid_until_us = began_us + self._lease_ms * 800

    def is_valid(self) -> bool:
        """True while nobody else may take over what this broker has."""
        return self._clock.now_us() < self.valid_until_us

    def leave(self) -> None:
        """Be there no more. Raises Unavailable."""
        self.valid_until_us = 0
        self._coordinator.delete(self.key)
