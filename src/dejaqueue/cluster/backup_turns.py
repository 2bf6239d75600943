"""BackupTurns: whose turn it is to take a backup of the cluster, and who serves what meanwhile.

Room: cluster. Reads facts and has one of its own; any thread may ask.
Holds: one broker at a time takes a backup; if it dies another one may, TTL_MS later; owners are
told as the coordinator has them now, not as this broker saw them last.
See: turn.py; broker/topic/cluster_port.py, the port; broker/backup/cluster_backup.py, who asks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from dejaqueue.broker.topic.cluster_port import Owners
from dejaqueue.clock import Clock
from dejaqueue.cluster import members, ownership
from dejaqueue.cluster.cuts_lead import CutsLead
from dejaqueue.cluster.turn import Turn
from dejaqueue.coordinator.interface import Coordinator

KEY: Final = "changes/backup"
TTL_MS: Final = 15_000
"""Longer than a broker that takes one is ever silent; so late is the next one if it dies."""


class BackupTurns:
    """See broker/topic/cluster_port.py."""

    def __init__(self, node: str, coordinator: Coordinator, clock: Clock) -> None:
        self.node, self._coordinator, self._clock = node, coordinator, clock
        self._lead = CutsLead(node, coordinator, clock)

    def turn(self) -> AbstractContextManager[Callable[[], None]]:
        """The right to take a backup. Raises Refused: another broker has it. Unavailable."""
        return Turn(
            self.node,
            self._coordinator,
            self._clock,
            key=KEY,
            doing="taking a backup of the cluster",
            begun="take a backup of the cluster",
            ttl_ms=TTL_MS,
        )()

    def owners(self) -> Owners:
        """Who serves what now. Raises Unavailable."""
        living = members.members_of(self._coordinator.list(members.PREFIX))
        owners = ownership.owners_of(self._coordinator.list(ownership.PREFIX))
        view = ownership.View(living, owners)
        return Owners(
            {name: member.url for name, member in living.items()},
            {slot: (one.node, one.session, one.revision) for slot, one in owners.items()},
            is_whole=all(view.living_owner(slot) is not None for slot in owners),
        )

    def leads_cuts(self) -> bool:
        """Whether this broker takes the cuts of the archive."""
        return self._lead.has()

    def leave_cuts(self) -> None:
        """Another broker may take them."""
        self._lead.leave()
