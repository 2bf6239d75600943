"""Taking turns: in a whole cluster one change of its servers at a time, and one backup.

Room: cluster.
Holds: two nodes are never emptied at once, and none while copies are on their way to it; two
brokers never take a backup of the cluster at once.
See: care.py, embedded.py, backup_turns.py; coordinator/interface.py, duty 4.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dejaqueue.clock import Clock, SteadyClock
from dejaqueue.coordinator.interface import Conflict, Coordinator
from dejaqueue.errors import DejaQError, Refused, Unavailable

log = logging.getLogger("dejaqueue.cluster")

KEY = "changes/servers"
TTL_MS = 60_000
RENEW_US = 5_000_000

Keep = Callable[[], None]
"""Called now and then by the holder of the turn; raises Refused when another one has it, and
Unavailable when another one may have it."""


class Turn:
    """The right to do something that one broker of a cluster does at a time.

    Args:
        key: of the fact that says who does it.
        doing, begun: what that is, in words: "is …", "has begun to …".
        ttl_ms: so long after it died others may do it.
    """

    def __init__(
        self,
        node: str,
        coordinator: Coordinator,
        clock: Clock | None = None,
        *,
        key: str = KEY,
        doing: str = "changing the servers of the cluster",
        begun: str = "change the servers of the cluster",
        ttl_ms: int = TTL_MS,
    ) -> None:
        self._node, self._coordinator = node, coordinator
        self._clock: Clock = clock or SteadyClock()
        self._key, self._doing, self._begun, self._ttl_ms = key, doing, begun, ttl_ms
        self._renewed_us = 0

    @contextmanager
    def __call__(self) -> Iterator[Keep]:
        """Have the turn. Raises Refused: another broker has it. Unavailable."""
        began_us = self._clock.now_us()
        try:
            revision = self._coordinator.put(self._key, self._node.encode(), 0, ttl_ms=self._ttl_ms)
        except Conflict:
            found = self._coordinator.get(self._key)
            who = f"node {found.value.decode()}" if found is not None else "another node"
            raise Refused(f"{who} is {self._doing}: one at a time") from None
        self._renewed_us = began_us
        try:
            yield self._keep
        finally:
            try:
                # Not that of the next node, which got it while this one slept.
                self._coordinator.delete(self._key, revision)
            except (DejaQError, Conflict) as error:
                log.debug("%s", error)  # it vanishes by itself

    def _keep(self) -> None:
        began_us = self._clock.now_us()
        if began_us - self._renewed_us < RENEW_US:
            return
        try:
            if not self._coordinator.renew(self._key):
                raise Refused(f"another node has begun to {self._begun}")
            self._renewed_us = began_us
        except Unavailable as error:
            # The fact vanishes while the coordinator is away: another node may have the turn then.
            if self._clock.now_us() - self._renewed_us > self._ttl_ms * 800:
                raise Unavailable(f"the turn may be another node's by now: {error}") from error
            log.debug("%s", error)
