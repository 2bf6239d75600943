"""Quotas: how much a topic may hold, and how fast one producer may send.

Room: broker. Backlogs are checked by the workers, rates at the door, by any thread.
Holds: a refusal names limit and value, says when to come back, and changes nothing (rule 14).
See: docs/guides/backpressure.md; model.Topic for the settings.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dejaqueue import limits
from dejaqueue.engine.state import PartitionState
from dejaqueue.errors import ResourceExhausted
from dejaqueue.model import Topic

if TYPE_CHECKING:
    from dejaqueue.broker.partition import Partition

RETRY_MS = 1_000
_PARTS = 1_000_000
"""Credit is counted in millionths of a message: a rate of n a second adds n of them each µs."""
_UNIQUE_END = re.compile(r"-[0-9a-f]{32}\Z")


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is live.

    Attributes:
        count: messages.
        byte_count: bytes of their payloads.
    """

    count: int = 0
    byte_count: int = 0

    def __add__(self, other: Backlog) -> Backlog:
        return Backlog(self.count + other.count, self.byte_count + other.byte_count)

    def __sub__(self, other: Backlog) -> Backlog:
        return Backlog(self.count - other.count, self.byte_count - other.byte_count)

    @staticmethod
    def of(state: PartitionState, mean_payload_bytes: int) -> Backlog:
        """That of a partition. Exact, but for messages that came before the topic had a limit of
        bytes: those count with the mean.

        Args:
            mean_payload_bytes: of the messages whose size was not noted.
        """
        count = state.counts.live
        unknown = count - state.sized_count
        return Backlog(count, state.payload_bytes + unknown * mean_payload_bytes)


def shortage(
    place: Partition, topic_backlog: Callable[[], Backlog], rows: int, byte_count: int
) -> ResourceExhausted | None:
    """Why a partition cannot take so much more now; None = it can.

    Args:
        topic_backlog: what is live in all partitions, as of their last steps.
    """
    topic = place.topic()
    if topic.max_backlog_count or topic.max_backlog_bytes:
        here = Backlog.of(place.engine.state, place.mean_payload_bytes)
        try:
            check_backlog(topic, topic_backlog() - place.backlog + here, rows, byte_count)
        except ResourceExhausted as full:
            # Its frames know the batch, and are known by who gets it: a cycle.
            return full.with_traceback(None)
    if has_room(place, rows, byte_count):
        return None
    return ResourceExhausted("the disk is full; consumers go on, producers wait", RETRY_MS)


def has_room(place: Partition, rows: int, byte_count: int = 0) -> bool:
    """True if the disk has room for so many rows; if not, some is made soon."""
    if place.journal.has_room(byte_count + 128 * rows):
        return True
    if place.maintenance is not None:
        place.maintenance.want_room()
    return False


def check_backlog(topic: Topic, live: Backlog, rows: int, byte_count: int) -> None:
    """Raise ResourceExhausted if so much more does not fit into the topic.

    Args:
        live: of all partitions.
        rows, byte_count: messages that want in, and bytes of their payloads.
    """
    if topic.max_backlog_count and live.count + rows > topic.max_backlog_count:
        raise ResourceExhausted(
            f"topic {topic.name}: max_backlog_count is {topic.max_backlog_count}, "
            f"{live.count} messages are live; retry when some are done",
            RETRY_MS,
        )
    if topic.max_backlog_bytes and live.byte_count + byte_count > topic.max_backlog_bytes:
        raise ResourceExhausted(
            f"topic {topic.name}: max_backlog_bytes is {topic.max_backlog_bytes}, "
            f"{live.byte_count} bytes are live and {byte_count} want in; retry when some are done",
            RETRY_MS,
        )


def share_of(topic: Topic) -> Topic:
    """A topic with a shard's share of what bounds the topic as a whole, rounded up."""
    names = ("max_backlog_count", "max_backlog_bytes", "producer_rate_max")
    return replace(topic, **{name: -(-getattr(topic, name) // topic.spread) for name in names})


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
        # Of each producer: millionths of messages that are used up, as of which time.
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
