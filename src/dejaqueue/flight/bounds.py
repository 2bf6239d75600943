"""How many streams are open at once.

Room: flight.
Holds: a stream beyond the bound is refused at once, and those that are open go on.
"""

from __future__ import annotations

import threading

from dejaqueue.errors import ResourceExhausted

RETRY_MS = 1_000


class OpenStreams:
    """Counts streams; each is a `with` block.

    Args:
        count_max: streams at once.

    Attributes:
        count: streams that are open.
    """

    def __init__(self, count_max: int) -> None:
        self.count = 0
        self._count_max = count_max
        self._mutex = threading.Lock()

    def __enter__(self) -> None:
        """Raises ResourceExhausted."""
        with self._mutex:
            if self.count >= self._count_max:
                raise ResourceExhausted(
                    f"{self._count_max} streams are open, the limit of this broker", RETRY_MS
                )
            self.count += 1

    def __exit__(self, *_: object) -> None:
        with self._mutex:
            self.count -= 1
