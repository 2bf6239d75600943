"""Taking turns: in a whole cluster one change of its servers at a time.

Room: cluster.
Holds: two nodes are never emptied at once, and none while copies are on their way to it.
See: care.py, embedded.py; coordinator/interface.py, duty 4.
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
    """The right to change the servers of a cluster."""

    def __init__(self, node: str, coordinator: Coordinator, clock: Clock | None = None) -> None:
        self._node, self._coordinator = node, coordinator
        self._clock: Clock = clock or SteadyClock()
        self._renewed_us = 0

    @contextmanager
    def __call__(self) -> Iterator[Keep]:
        """Have the turn. Raises Refused: another broker has it. Unavailable."""
        began_us = self._clock.now_us()
        try:
            revision = self._coordinator.put(KEY, self._node.encode(), 0, ttl_ms=TTL_MS)
        except Conflict:
            found = self._coordinator.get(KEY)
            who = f"node {found.value.decode()}" if found is not None else "another node"
            raise Refused(f"{who} is changing the servers of the cluster: one at a time") from None
        self._renewed_us = began_us
        try:
            yield self._keep
        finally:
            try:
                # Not that of the next node, which got it while this one slept.
                self._coordinator.delete(KEY, revision)
            except (DejaQError, Conflict) as error:
                log.debug("%s", error)  # it vanishes by itself

    def _keep(self) -> None:
        began_us = self._clock.now_us()
        if began_us - self._renewed_us < RENEW_US:
            return
        try:
            if not self._coordinator.renew(KEY):
                raise Refused("another node has begun to change the servers of the cluster")
            self._renewed_us = began_us
        except Unavailable as error:
            # The fact vanishes while the coordinator is away: another node may have the turn then.
            if self._clock.now_us() - self._renewed_us > TTL_MS * 800:
                raise Unavailable(f"the turn may be another node's by now: {error}") from error
            log.debug("%s", error)
