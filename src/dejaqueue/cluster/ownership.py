"""Which broker owns which slots, and what this one should do about it.

Room: cluster. Pure.
Holds: a slot that has a living owner is never claimed: only its owner lets go of it.
See: node.py, which carries a plan out; placement.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dejaqueue.cluster.members import Member
from dejaqueue.cluster.placement import PlacedTopic, dealt, slot_of
from dejaqueue.coordinator.interface import Fact
from dejaqueue.topic_names import parse_shard, topic_of

PREFIX = "owners/"
COMPLETE = "planned/complete"
"""The fact that says that all brokers that are planned have come, or that one will not soon."""


def key_of(slot: int) -> str:
    """The key of the fact that names a slot's owner."""
    return f"{PREFIX}{slot}"


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a slot.

    Attributes:
        node, session: a life of a broker; empty = it was released.
        epoch: how often the slot changed hands; for people. The journal's epoch is the fence.
        revision: of the fact.
    """

    node: str
    session: str
    epoch: int
    revision: int

    def to_bytes(self) -> bytes:
        """As a fact's value."""
        values = {"node": self.node, "session": self.session, "epoch": self.epoch}
        return json.dumps(values).encode()


def owner_of(fact: Fact) -> tuple[int, Owner]:
    """A slot and its owner."""
    values = json.loads(fact.value)
    owner = Owner(values["node"], values["session"], values["epoch"], fact.revision)
    return int(fact.key.removeprefix(PREFIX)), owner


def owners_of(facts: Iterable[Fact]) -> dict[int, Owner]:
    """Owners by slot."""
    return dict(map(owner_of, facts))


@dataclass(frozen=True, slots=True)
class View:
    """The cluster as this broker last saw it."""

    members: dict[str, Member]
    owners: dict[int, Owner]

    def living_owner(self, slot: int) -> Member | None:
        """The member that has the slot; None if there is none, or it is gone."""
        owner = self.owners.get(slot)
        member = None if owner is None else self.members.get(owner.node)
        if owner is None or member is None or member.session != owner.session:
            return None
        return member


@dataclass(frozen=True, slots=True)
class Plan:
    """What a broker should do with slots.

    Attributes:
        keep: they are its own.
        claim: nobody has them, and it should.
        hand_over: it has them, and somebody else should.
        drop: somebody else has them, so it must not serve them.
    """

    keep: list[int] = field(default_factory=list)
    claim: list[int] = field(default_factory=list)
    hand_over: list[int] = field(default_factory=list)
    drop: list[int] = field(default_factory=list)


def plan(
    node: str,
    session: str,
    view: View,
    slots: int,
    *,
    waits: bool = False,
    planned: tuple[str, ...] = (),
    is_complete: bool = True,
) -> Plan:
    """What a broker should do about each slot; each is in one list.

    Args:
        planned: as of placement.dealt.
        is_complete: all who are planned have come once; until then theirs is left to them.
        waits: it claims nothing that another node had last: that may be about to come back, too.
    """
    made = Plan()
    members = [member for member in view.members.values() if not member.leaving]
    # Of those that are planned, one that is just about to take is not forestalled.
    takers = {one.node for one in members if one.takes or (planned and one.comparing)}
    wanted = dealt(takers if is_complete else takers.union(planned), slots, planned)
    may_claim = not planned or any(one.takes for one in members if one.node == node)
    # A clock that is apart, or was not compared yet, keeps what it has.
    keeping = (one.node for one in members if one.takes or one.node == node)
    kept = dealt(keeping, slots, planned)
    may_claim = may_claim and bool(wanted)
    get = view.owners.get
    for slot in range(slots):
        owner = get(slot)
        if owner is not None and owner.session == session:
            (made.keep if not kept or kept[slot] == node else made.hand_over).append(slot)
        elif (
            not may_claim
            or wanted[slot] != node
            or view.living_owner(slot) is not None
            or (waits and owner is not None and owner.node not in ("", node))
        ):
            made.drop.append(slot)
        else:
            made.claim.append(slot)
    return made


def next_owners(
    node: str, view: View, slots: int, planned: tuple[str, ...] = (), *, leaves: bool = False
) -> dict[int, str]:
    """Where the next owner is of each slot that another broker is to have, as `plan` sees it.

    Args:
        planned: as of `plan`.
        leaves: this broker hands over everything.
    """
    found = {one.node: one.url for one in view.members.values() if not one.leaving}
    keeping = {name for name in found if view.members[name].takes or name == node}
    if leaves:
        keeping.discard(node)
    kept = dealt(keeping, slots, planned)
    return {slot: found[one] for slot, one in enumerate(kept) if one != node and one in found}


def served(
    view: View, placed: Mapping[str, PlacedTopic], names: Iterable[str], slots: int
) -> list[dict[str, str | int]]:
    """Which broker serves each topic or shard, a row for each.

    Returns:
        `topic`, `shard`, `spread`, `node` ("" = nobody at the moment), `epoch`.
    """
    rows: list[dict[str, str | int]] = []
    found = [row for row in map(placed.get, names) if row is not None]
    for name in [shard for row in found for shard in row.topic.shards]:
        slot, shard = slot_of(name, placed, slots), parse_shard(name)
        member, owner = view.living_owner(slot), view.owners.get(slot)
        rows.append(
            {
                "topic": topic_of(name),
                "shard": 0 if shard is None else shard[1],
                "spread": 1 if shard is None else shard[2],
                "node": "" if member is None else member.node,
                "epoch": 0 if owner is None else owner.epoch,
            }
        )
    return rows
