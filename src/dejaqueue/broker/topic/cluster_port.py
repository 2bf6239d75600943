"""What a broker has in common with the others of its cluster.

Room: broker. A port: cluster/ is behind it, and a broker that is alone has none.
See: ownership.py for what of it a partition asks; cluster/node.py.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from dejaqueue.access.key_ring import KeyRing
from dejaqueue.broker.topic.catalogue import Catalogue
from dejaqueue.errors import DejaQError, Elsewhere, Unavailable
from dejaqueue.journal.interface import JournalStore
from dejaqueue.model import Topic


def in_shards(topic: Topic, spread: int) -> Elsewhere:
    """Why a topic that is served in shards is not to be asked as a whole, or the other way round.

    Args:
        spread: how many shards it is served in here.
    """
    text = f"topic {topic.name} is served in {spread} shards, each of which is to be asked"
    return Elsewhere(text, 50, spread=spread)


class TopicOwnership:
    """The ownership of one topic, or of one shard of it, as the cluster says.

    Args:
        name: the topic's, or the shard's.
    """

    def __init__(self, cluster: ClusterPort, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._is_over = False

    def refusal(self) -> DejaQError | None:
        """Why its journals must not be opened here now; None = they may."""
        if self._is_over:
            return Unavailable(f"topic {self._name} was let go of", 50)
        return self._cluster.refusal(self._name)

    def fenced(self) -> None:
        """One of its journals has another owner."""
        self._cluster.fenced(self._name)

    def end(self) -> None:
        """It is let go of here."""
        self._is_over = True


@dataclass(frozen=True, slots=True)
class Disks:
    """Room on the disks of the servers beside brokers, which keep the journals.

    Attributes:
        free_bytes: here; None = it is not known, or there is no such server.
        short: names of brokers whose server's disk has less than the reserve: producers of the
            whole cluster wait, since each record is on most of them.
    """

    free_bytes: int | None = None
    short: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Owners:
    """Who serves what, as the coordinator says.

    Attributes:
        urls: of all members, by name.
        slots: by number: the owner, its life, and the revision of the fact that says so. As long as
            they are the same, nobody else has served what is in them.
        is_whole: each slot that was ever served is served by a member.
    """

    urls: dict[str, str]
    slots: dict[int, tuple[str, str, int]]
    is_whole: bool


class BackupTurns(Protocol):
    """What the brokers of a cluster agree on about its backups.

    Attributes:
        node: name of this broker.
    """

    @property
    def node(self) -> str: ...  # noqa: D102

    def turn(self) -> AbstractContextManager[Callable[[], None]]:
        """The right to take a backup of the cluster, and what is called now and then to keep it.

        Raises:
            Refused: another broker has it. Unavailable.
        """
        ...

    def owners(self) -> Owners:
        """Who serves what now. Raises Unavailable."""
        ...

    def leads_cuts(self) -> bool:
        """Whether this broker takes the cuts of the archive, as of a second ago. One thread."""
        ...

    def leave_cuts(self) -> None:
        """Another broker may take them."""
        ...


class ClusterPort(Protocol):
    """The part of a broker that is agreed upon with others.

    A topic that has shards is named here by the names of its shards.
    """

    @property
    def clock_apart_us(self) -> int:
        """How far this broker's clock is from the others' for certain; 0 = it agrees."""
        ...

    @property
    def disks(self) -> Disks:
        """Room on the disks of the servers beside brokers."""
        ...

    def catalogue(
        self, store: JournalStore, snapshot_writer: Executor, now_ms: Callable[[], int]
    ) -> Catalogue:
        """All topics of the cluster, as known here.

        Args:
            snapshot_writer: where snapshots of it are written.
            now_ms: the time that is noted with each change.

        Raises:
            Refused: this store of journals is not the cluster's. JournalDamaged, Unavailable.
        """
        ...

    def elsewhere(self, topic: str) -> DejaQError:
        """Why a topic that exists is not served here: Elsewhere, or Unavailable for the moment."""
        ...

    def refusal(self, topic: str, *, begins: bool = False) -> DejaQError | None:
        """Why journals of a topic must not be opened here now; None = they may.

        Args:
            begins: the topic is not served here yet, and would be: not while it is handed over.
        """
        ...

    def fenced(self, topic: str) -> None:
        """A journal of the topic has another owner. Returns at once: a worker calls it."""
        ...

    def placed(self, topic: str) -> None:
        """Return when somebody serves a topic that was just made, or when that takes too long."""
        ...

    def settled(self, topic: str) -> None:
        """Return when a topic is not being deleted any more: nothing is left of it, or it is there.

        Raises:
            Unavailable: that takes too long; it goes on all the same.
        """
        ...

    def describe(self, topic: str) -> dict[str, Any]:
        """Who is there and who serves what; of one topic, or "" = of all."""
        ...

    def act(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """What an operator asks: `remove_node`, `repair_node` or `check_cluster`.

        Raises:
            BadRequest, Refused, Elsewhere.
        """
        ...

    def open_keys(self, keys: KeyRing) -> None:
        """Have a broker's API keys be those of the cluster. Raises as KeyRing.open."""
        ...
