"""Which cluster this is: the same word at the coordinator and in the store of journals.

    fact cluster/identity        {"id": …, "is_kept": …, "maker": …}
    document cluster             {"id": …}, in the store of journals

Room: cluster. Asked when a broker starts, before it joins.
Holds: brokers that share a coordinator and not a store of journals, or the reverse, do not
start; of brokers that make a cluster together one writes to its store, and the others compare.
See: docs/adr/0027; checking.py, for what a coordinator does not know any more.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace

from dejaqueue.clock import Clock, Wake
from dejaqueue.coordinator.interface import Conflict, Coordinator
from dejaqueue.errors import JournalDamaged, Refused, Unavailable
from dejaqueue.journal.interface import JournalStore

KEY = "cluster/identity"
DOCUMENT = "cluster"
LOOK_US = 100_000
PATIENCE_US = 30_000_000
MAKER_US_MAX = 5_000_000
"""Whoever makes a cluster has written to its store within this, or somebody else does it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the coordinator knows.

    Attributes:
        is_kept: the store of journals has it, too.
        maker: the broker that writes it there.
    """

    id: str
    is_kept: bool
    maker: str
    revision: int = 0

    def to_bytes(self) -> bytes:
        """As a fact's value."""
        values = {"id": self.id, "is_kept": self.is_kept, "maker": self.maker}
        return json.dumps(values).encode()


def agree(
    coordinator: Coordinator, store: JournalStore, clock: Clock, *, adopts: bool = False
) -> str:
    """What this cluster is called at the coordinator and in the store alike.

    Args:
        clock: elapsed time.
        adopts: let a coordinator that knows no cluster take that of the journals.

    Raises:
        Refused: they are of two clusters. JournalDamaged. Unavailable: for longer than PATIENCE_US.
    """
    maker = secrets.token_hex(8)
    began_us = clock.now_us()
    while True:
        waited_us = clock.now_us() - began_us
        try:
            name = _look(
                coordinator, store, maker, adopts=adopts, replaces=waited_us > MAKER_US_MAX
            )
        except Unavailable:  # servers that start together may take a while
            if waited_us > PATIENCE_US:
                raise
            name = None
        if name is not None:
            return name
        clock.wait_until(clock.now_us() + LOOK_US, Wake())


def _look(
    coordinator: Coordinator, store: JournalStore, maker: str, *, adopts: bool, replaces: bool
) -> str | None:
    """Compare, or go a step towards a cluster; None = look again."""
    known = _known(coordinator)
    kept = _kept(store)  # after the fact, since it is written before the fact says so
    if known is None:
        if kept and not adopts and _known(coordinator) is None:
            raise Refused(
                f"{coordinator.summary} knows no cluster, and the journals belong to cluster "
                f"{kept}: if the coordinator was lost, start one broker with cluster.adopt"
            )
        _put(coordinator, Identity(kept or secrets.token_hex(8), bool(kept), maker))
    elif known.is_kept or kept:
        _compare(coordinator, known.id, kept)
        if not known.is_kept:
            _put(coordinator, replace(known, is_kept=True))
        return known.id
    elif known.maker == maker:
        store.store_document(DOCUMENT, json.dumps({"id": known.id}))
    elif replaces and _put(coordinator, replace(known, maker=maker)):
        # At once: others that are tired of waiting replace this one as soon as they look.
        store.store_document(DOCUMENT, json.dumps({"id": known.id}))
    return None


def _compare(coordinator: Coordinator, known: str, kept: str) -> None:
    if known == kept:
        return
    whose = f"belong to cluster {kept}" if kept else "belong to no cluster"
    raise Refused(
        f"{coordinator.summary} has cluster {known}, and the journals here {whose}: brokers of one "
        "cluster share the coordinator and the journals (cluster.coordinator, journal.url)"
    )


def _kept(store: JournalStore) -> str:
    text = store.load_document(DOCUMENT)
    try:
        return "" if text is None else str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError) as wrong:
        raise JournalDamaged(f"the identity of the cluster: {wrong}") from wrong


def _known(coordinator: Coordinator) -> Identity | None:
    fact = coordinator.get(KEY)
    if fact is None:
        return None
    try:
        values = json.loads(fact.value)
        return Identity(values["id"], values["is_kept"], values["maker"], fact.revision)
    except (ValueError, KeyError, TypeError) as wrong:
        raise JournalDamaged(f"coordinator, fact {KEY}: {wrong}") from wrong


def _put(coordinator: Coordinator, identity: Identity) -> bool:
    """Write it; False: somebody else was quicker, look again."""
    try:
        coordinator.put(KEY, identity.to_bytes(), identity.revision)
    except Conflict:
        return False
    return True
