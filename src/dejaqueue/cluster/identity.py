"""Which cluster this is: the same word at the coordinator and in the catalogue's journal.

    fact cluster/identity        {"id": …, "slots": …, "is_kept": …, "maker": …}
    first entry of the catalogue {"founded": {"id": …, "slots": …}}

Room: cluster. Asked when a broker starts, before it joins.
Holds: brokers that share a coordinator and not a store of journals, or the reverse, do not
start; of brokers that make a cluster together one writes to its store, and the others compare.
See: docs/adr/0027 and 0034.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

from dejaqueue.catalogue.changes import Change, FoundedCluster
from dejaqueue.catalogue.log import CatalogueLog
from dejaqueue.clock import Clock, Wake
from dejaqueue.coordinator.interface import Conflict, Coordinator
from dejaqueue.errors import JournalDamaged, Refused, Unavailable
from dejaqueue.version import __version__

KEY = "cluster/identity"
LOOK_US = 100_000
PATIENCE_US = 30_000_000
MAKER_US_MAX = 5_000_000
"""Whoever makes a cluster has written to its store within this, or somebody else does it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the coordinator knows.

    Attributes:
        slots: into how many its topics are dealt, for the life of the cluster.
        is_kept: the store of journals has it, too.
        maker: the broker that writes it there.
    """

    id: str
    slots: int
    is_kept: bool
    maker: str
    revision: int = 0

    def to_bytes(self) -> bytes:
        """As a fact's value."""
        values = {
            "id": self.id,
            "slots": self.slots,
            "is_kept": self.is_kept,
            "maker": self.maker,
        }
        return json.dumps(values).encode()


def agree(
    coordinator: Coordinator,
    open_log: Callable[[], CatalogueLog],
    clock: Clock,
    *,
    slots: int,
    adopts: bool = False,
) -> tuple[Identity, CatalogueLog]:
    """What this cluster is, at the coordinator and in the catalogue's journal alike; and that.

    Args:
        open_log: opens the catalogue's journal; tried again while its server is away.
        clock: elapsed time.
        slots: of a cluster that is made now.
        adopts: let a coordinator that knows no cluster take that of the journals.

    Raises:
        Refused: they are of two clusters. JournalDamaged. Unavailable: for longer than PATIENCE_US.
    """
    maker = secrets.token_hex(8)
    began_us = clock.now_us()
    log: CatalogueLog | None = None
    while True:
        waited_us = clock.now_us() - began_us
        try:
            new = Identity("", slots, is_kept=False, maker=maker)
            log = log or open_log()
            found = _look(coordinator, log, new, adopts=adopts, replaces=waited_us > MAKER_US_MAX)
        except Unavailable:  # servers that start together may take a while
            if waited_us > PATIENCE_US:
                raise
            found = None
        if found is not None and log is not None:
            return found, log
        clock.wait_until(clock.now_us() + LOOK_US, Wake())


def _look(
    coordinator: Coordinator, log: CatalogueLog, new: Identity, *, adopts: bool, replaces: bool
) -> Identity | None:
    """Compare, or go a step towards a cluster; None = look again."""
    known = _known(coordinator)
    kept = _kept(log)  # after the fact, since it is written before the fact says so
    if known is None:
        if kept is not None and not adopts and _known(coordinator) is None:
            raise Refused(
                f"{coordinator.summary} knows no cluster, and the journals belong to cluster "
                f"{kept.id}: if the coordinator was lost, start one broker with cluster.adopt"
            )
        made = replace(new, id=secrets.token_hex(8))
        _put(coordinator, made if kept is None else replace(kept, maker=new.maker))
    elif known.is_kept or kept is not None:
        _compare(coordinator, known, kept)
        if not known.is_kept:
            _put(coordinator, replace(known, is_kept=True))
        return known
    elif known.maker == new.maker:
        _found(log, known)
    elif replaces and _put(coordinator, replace(known, maker=new.maker)):
        # At once: others that are tired of waiting replace this one as soon as they look.
        _found(log, known)
    return None


def _compare(coordinator: Coordinator, known: Identity, kept: Identity | None) -> None:
    if kept is not None and (known.id, known.slots) == (kept.id, kept.slots):
        return
    # One that an earlier version made, which kept this elsewhere, looks like none.
    none = f"belong to no cluster that dejaq {__version__} can read"
    whose = none if kept is None else f"belong to cluster {kept.id}"
    raise Refused(
        f"{coordinator.summary} has cluster {known.id}, and the journals here {whose}: brokers of "
        "one cluster share the coordinator and the journals (cluster.coordinator, journal.url)"
    )


def _kept(log: CatalogueLog) -> Identity | None:
    log.read()
    cluster = log.state.cluster
    if cluster is not None:
        return Identity(cluster.id, cluster.slots, is_kept=True, maker="")
    if log.revision:
        raise Refused("the journals here belong to a broker that is alone, not to a cluster")
    return None


def _found(log: CatalogueLog, identity: Identity) -> None:
    """Append which cluster this is, unless something was appended already."""

    def founded() -> Change | None:
        return None if log.revision else FoundedCluster(identity.id, identity.slots)

    log.change(founded)


def _known(coordinator: Coordinator) -> Identity | None:
    fact = coordinator.get(KEY)
    if fact is None:
        return None
    try:
        values = json.loads(fact.value)
        slots, is_kept, maker = values["slots"], values["is_kept"], values["maker"]
        return Identity(values["id"], slots, is_kept, maker, fact.revision)
    except (ValueError, KeyError, TypeError) as wrong:
        raise JournalDamaged(f"coordinator, fact {KEY}: {wrong}") from wrong


def _put(coordinator: Coordinator, identity: Identity) -> bool:
    """Write it; False: somebody else was quicker, look again."""
    try:
        coordinator.put(KEY, identity.to_bytes(), identity.revision)
    except Conflict:
        return False
    return True
