"""Which broker owns what, and what this one should do about it.

Room: cluster. Pure.
Holds: a unit that has a living owner is never claimed: only its owner lets go of it.
See: node.py, which carries a plan out; placement.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dejaqueue.cluster.members import Member
from dejaqueue.cluster.placement import preferred, unit_of
from dejaqueue.coordinator.interface import Fact
from dejaqueue.model import Topic, parse_shard, topic_of

PREFIX = "owners/"


def key_of(unit: str) -> str:
    """The key of the fact that names a unit's owner; that of a shard has one part more."""
    return PREFIX + unit.replace("=", "/")


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a unit.

    Attributes:
        node, session: a life of a broker; empty = it was released.
        epoch: how often the unit changed hands; for people. The journal's epoch is the fence.
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


def owners_of(facts: Iterable[Fact]) -> dict[str, Owner]:
    """Owners by unit."""
    found = {}
    for fact in facts:
        values = json.loads(fact.value)
        owner = Owner(values["node"], values["session"], values["epoch"], fact.revision)
        found[fact.key.removeprefix(PREFIX).replace("/", "=")] = owner
    return found


@dataclass(frozen=True, slots=True)
class View:
    """The cluster as this broker last saw it."""

    members: dict[str, Member]
    owners: dict[str, Owner]

    def living_owner(self, unit: str) -> Member | None:
        """The member that has the unit; None if there is none, or it is gone."""
        owner = self.owners.get(unit)
        member = None if owner is None else self.members.get(owner.node)
        if owner is None or member is None or member.session != owner.session:
            return None
        return member


@dataclass(frozen=True, slots=True)
class Plan:
    """What a broker should do with units.

    Attributes:
        keep: they are its own.
        claim: nobody has them, and it should.
        hand_over: it has them, and somebody else should.
        drop: somebody else has them, so it must not serve them.
    """

    keep: list[str] = field(default_factory=list)
    claim: list[str] = field(default_factory=list)
    hand_over: list[str] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)


def plan(node: str, session: str, view: View, units: Mapping[str, object]) -> Plan:
    """What a broker should do about these units; each is in one list at most."""
    found = Plan()
    members = [member for member in view.members.values() if not member.leaving]
    able = [member.node for member in members if member.takes]
    able_or_here = [one.node for one in members if one.takes or one.node == node]
    for unit in units:
        owner = view.owners.get(unit)
        wanted = preferred(unit, able)
        if owner is not None and owner.session == session:
            wanted = preferred(unit, able_or_here)  # a clock that is apart keeps what it has
            (found.keep if wanted in (node, None) else found.hand_over).append(unit)
        elif view.living_owner(unit) is not None:
            found.drop.append(unit)
        elif wanted == node:
            found.claim.append(unit)
        else:
            found.drop.append(unit)
    return found


def served(
    view: View, topics: Mapping[str, Topic], names: Iterable[str]
) -> list[dict[str, str | int]]:
    """Which broker serves each topic or shard, a row for each.

    Returns:
        `topic`, `shard`, `spread`, `node` ("" = nobody at the moment), `epoch`.
    """
    rows: list[dict[str, str | int]] = []
    for name in [shard for one in names if one in topics for shard in topics[one].shards]:
        unit, shard = unit_of(name, topics), parse_shard(name)
        member, owner = view.living_owner(unit), view.owners.get(unit)
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
