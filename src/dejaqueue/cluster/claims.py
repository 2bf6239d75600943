"""Claiming slots and giving them up: changes of owners' facts.

Room: cluster. Asks the coordinator, several things at once where there are several.
Holds: a slot is claimed as it was seen: if its fact has changed since, somebody else was quicker.
See: ownership.py, for what to claim; node.py.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from dejaqueue.broker.topic.threads import Threads
from dejaqueue.cluster.ownership import Owner, key_of
from dejaqueue.coordinator.followed_facts import FollowedFacts
from dejaqueue.coordinator.interface import Conflict, Coordinator, Fact
from dejaqueue.errors import Unavailable

CLAIMS_AT_ONCE = 8

log = logging.getLogger("dejaqueue.cluster")


class Claims:
    """What one broker says of slots.

    Args:
        node: its name.
        threads: where several changes are asked for at once.
        known: owners as this broker sees them: it is told of what changes here.
    """

    def __init__(
        self,
        node: str,
        coordinator: Coordinator,
        threads: Threads,
        known: FollowedFacts[tuple[int, Owner]],
    ) -> None:
        self._node, self._known = node, known
        self._coordinator = coordinator
        self._threads = threads

    def claim_all(self, slots: Sequence[int], session: str, owners: dict[int, Owner]) -> list[int]:
        """Own slots; those that are ours now.

        Args:
            session: this life of the broker.
            owners: as they were seen; what is claimed is put there.

        Raises:
            Unavailable.
        """
        if len(slots) < 2:
            return [slot for slot in slots if self.claim(slot, session, owners)]
        # What is asked for at once may be one request, where requests are paid for.
        at_once = min(CLAIMS_AT_ONCE * self._coordinator.request_weight, len(slots))
        with self._threads.executor("dejaq-claim", at_once) as threads:
            won = list(threads.map(lambda slot: self.claim(slot, session, owners), slots))
        return [slot for slot, is_ours in zip(slots, won, strict=True) if is_ours]

    def claim(self, slot: int, session: str, owners: dict[int, Owner]) -> bool:
        """Own a slot; False if somebody else was quicker. As `claim_all`."""
        before = owners.get(slot)
        owner = Owner(self._node, session, 1 if before is None else before.epoch + 1, 0)
        try:
            revision = self._put(slot, owner, 0 if before is None else before.revision)
        except Conflict:
            return False
        owners[slot] = replace(owner, revision=revision)
        return True

    def release(self, slot: int, owner: Owner, revision: int) -> None:
        """Say that a slot is nobody's, unless somebody has taken it over. Raises Unavailable."""
        released = Owner("", "", owner.epoch, 0)
        try:
            self._put(slot, released, revision)
        except Conflict:
            log.info("slot %d was taken over already", slot)

    def _put(self, slot: int, owner: Owner, revision: int) -> int:
        """Change a slot's fact; its new revision. Raises Conflict, Unavailable."""
        key, value = key_of(slot), owner.to_bytes()
        try:
            stored = self._coordinator.put(key, value, revision)
        except (Conflict, Unavailable):
            self._known.look_again(key)
            raise
        self._known.note(Fact(key, value, stored))
        return stored
