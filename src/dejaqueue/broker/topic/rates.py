"""Rates: how fast one producer may send.

Room: broker. Checked at the door, by any thread.
Holds: a refusal says to the millisecond when as many messages fit, and takes none of them.
See: docs/guides/backpressure.md; model.Topic for the setting.
"""

from __future__ import annotations

import re
import threading

from dejaqueue import limits
from dejaqueue.errors import ResourceExhausted
from dejaqueue.model import Topic

_PARTS = 1_000_000
"""Credit is counted in millionths of a message: a rate of n a second adds n of them each µs."""
_UNIQUE_END = re.compile(r"-[0-9a-f]{32}\Z")


def name_of(producer: str) -> str:
    """Who a stream's producer is: clients make a name of their own and something unique.

    >>> name_of("billing-0123456789abcdef0123456789abcdef")
    'billing'
    """
    return _UNIQUE_END.sub("", producer)


class Rates:
    """How much each producer of a topic has sent lately: a bucket each, which holds what may be
    sent in one second and is filled again at the topic's rate.

    A batch larger than a second's worth is let in when the bucket is full, and owes the rest.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # producer → (millionths of a message used, at which µs)
        self._used: dict[tuple[str, str], tuple[int, int]] = {}

    def check(self, topic: Topic, sender: str, producer: str, rows: int, now_us: int) -> None:
        """Take so many messages out of the producer's bucket.

        Args:
            sender: whose producer it is; another's of the same name has a bucket of its own.

        Raises:
            ResourceExhausted: they are not in it; when they will be is exact, rounded up to 1 ms.
        """
        rate = topic.producer_rate_max
        if not rate:
            return
        room, wanted = rate * _PARTS, rows * _PARTS
        name = name_of(producer)
        with self._lock:
            used, since_us = self._used.get((sender, name), (0, now_us))
            used = max(0, used - max(0, now_us - since_us) * rate)
            missing = used + min(wanted, room) - room
            if missing <= 0:
                self._used[sender, name] = used + wanted, now_us
                if len(self._used) > limits.PRODUCERS_MAX:
                    self._forget(rate, now_us)
                return
        retry_ms = -(-missing // (rate * 1_000))
        raise ResourceExhausted(
            f"topic {topic.name}: producer_rate_max is {rate} messages a second, producer {name} "
            f"wants to send {rows} more; retry in {retry_ms} ms",
            retry_ms,
        )

    def _forget(self, rate: int, now_us: int) -> None:
        """Forget the buckets that are full again, and at least the oldest one."""
        self._used.pop(next(iter(self._used)))
        full = [n for n, (used, at_us) in self._used.items() if used <= (now_us - at_us) * rate]
        for name in full:
            del self._used[name]
