"""CutsLead: which broker of a cluster takes the cuts of the archive.

A fact of the coordinator says it, which vanishes when its broker does not renew it any more. Two
brokers may believe for a moment that they take them; what either takes is a cut.

Room: cluster. One thread.
See: backup_turns.py; broker/backup/cluster_cuts.py; coordinator/interface.py, duty 4.
"""

from __future__ import annotations

import logging
import secrets
from typing import Final

from dejaqueue.clock import Clock
from dejaqueue.coordinator.interface import Conflict, Coordinator
from dejaqueue.errors import DejaQError, Unavailable

KEY: Final = "changes/archive"
TTL_MS: Final = 5_000
"""So long after it died another one takes cuts."""
LOOK_US: Final = 1_000_000

log = logging.getLogger("dejaqueue.cluster")


class CutsLead:
    """Whether this broker takes them."""

    def __init__(self, node: str, coordinator: Coordinator, clock: Clock) -> None:
        self._coordinator, self._clock = coordinator, clock
        self._name = f"{node} {secrets.token_hex(8)}".encode()
        """Of this life of the broker."""
        self._look_us = self._revision = 0

    def has(self) -> bool:
        """Ask for it, or keep it; what was found is true for a second."""
        now_us = self._clock.now_us()
        if now_us >= self._look_us:
            self._look_us = now_us + LOOK_US
            try:
                self._revision = self._looked()
            except Unavailable as error:
                log.debug("who takes cuts of the archive is not known: %s", error)
                self._revision = 0
        return self._revision > 0

    def _looked(self) -> int:
        """The revision of the fact, if it names this broker, or 0. Raises Unavailable."""
        found = self._coordinator.get(KEY)
        if found is None:
            try:
                return self._coordinator.put(KEY, self._name, 0, ttl_ms=TTL_MS)
            except Conflict:
                return 0
        if found.value != self._name:
            return 0
        return found.revision if self._coordinator.renew(KEY) else 0

    def leave(self) -> None:
        """Another broker may take them; twice is fine."""
        revision, self._revision = self._revision, 0
        if not revision:
            return
        try:
            self._coordinator.delete(KEY, revision)
        except (DejaQError, Conflict) as error:
            log.debug("%s", error)  # it vanishes by itself
