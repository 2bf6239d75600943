"""How often queues were called lately: DOQ's `enqueue_rps` and the like.

Room: http. On the event loop's thread alone.
Holds: what was counted longer ago than the window is forgotten; queues that are gone too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from dejaqueue.clock import Clock

WINDOW_SECONDS = 10
KINDS = ("enqueue", "dequeue", "ack", "nack")


class Rates:
    """Calls per second of each queue, over the last ten seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[tuple[str, str], deque[tuple[int, int]]] = {}

    def note(self, name: str, kind: str) -> None:
        """One call of a kind."""
        second = self._clock.now_ms() // 1_000
        counts = self._counts.setdefault((name, kind), deque(maxlen=WINDOW_SECONDS + 1))
        if counts and counts[-1][0] == second:
            counts[-1] = (second, counts[-1][1] + 1)
        else:
            counts.append((second, 1))

    def of(self, name: str) -> dict[str, float]:
        """`enqueue_rps`, `dequeue_rps`, `ack_rps`, `nack_rps`."""
        after = self._clock.now_ms() // 1_000 - WINDOW_SECONDS
        return {
            f"{kind}_rps": sum(
                count for second, count in self._counts.get((name, kind), ()) if second > after
            )
            / WINDOW_SECONDS
            for kind in KINDS
        }

    def keep(self, names: Iterable[str]) -> None:
        """Forget all other queues."""
        kept = set(names)
        self._counts = {pair: counts for pair, counts in self._counts.items() if pair[0] in kept}
