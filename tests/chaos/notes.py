"""What clients of a cluster do and are told, noted as a history for the judge of tests/checker.

When a broker sent a delivery, its head says, by the broker's clock; where that clock is moved by a
fault, the earliest and the latest true time at which that may have been are both noted, so that the
judge says only what is a fault either way.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from dejaqueue.client.flight_transport import FlightConsumeChannel, FlightTransport
from dejaqueue.client.lane_consume import LaneConsumeChannel
from dejaqueue.client.routed_transport import RoutedTransport, urls_of
from dejaqueue.client.transport import Delivery as Arrived
from dejaqueue.errors import DejaQError
from dejaqueue.wire.descriptors import ConsumeStream
from dejaqueue.wire.frames import Pong, Reply, Settle
from tests.chaos.clocks import CLOCK, BrokerClock
from tests.checker.history import Away, Delivery, History
from tests.checker.history import Settle as Settled

AHEAD_US = 25_000
"""How long before its due time a message may be leased: Topic.lease_ahead_ms."""
STAMP_US = 2_000
"""A broker's clock and ours are one, but looks at it are no closer than this."""


class Notes:
    """Histories of several topics, and the clocks by which they are judged.

    Args:
        clocks: of each broker, by its address.
        lease_ms: of all consumers.
    """

    def __init__(self, clocks: dict[str, BrokerClock], lease_ms: int) -> None:
        self.clocks, self.lease_ms = clocks, lease_ms
        self.guard = threading.Lock()
        self.histories: dict[str, History] = defaultdict(History)
        self.handed: dict[tuple[str, int, int], Delivery] = {}
        self.newest: dict[str, int] = defaultdict(int)
        """Of each topic: the number of the latest send of which a message has come."""
        self.unexpected: list[str] = []
        self.ended: set[str] = set()
        """Streams that are no more."""
        self._where: dict[tuple[str, int, int], tuple[str, int]] = {}
        self._numbers = itertools.count(1)

    def highest_us(self, at_us: int) -> int:
        """The most that any broker's clock may have shown so far: a partition may be there yet."""
        return max(clock.highest_ever_us(at_us) for clock in self.clocks.values())

    def stream(self, consumer: str) -> str:
        """A name for one stream of a consumer."""
        return f"{consumer}#{next(self._numbers)}"

    def arrived(self, topic: str, address: str, stream: str, number: int, found: Arrived) -> None:
        """A delivery has come to a client."""
        now_us, head, batch = CLOCK.now_us(), found.head, found.batch
        clock = self.clocks[address]
        # It was leased before it was sent: from then on it counts as delivered. A partition's time
        # is never behind its last owner's clock; its leases begin and end by it.
        leased_us = (head.lease_end_ms - self.lease_ms) * 1_000
        earliest_us = min(head.broker_us, leased_us - AHEAD_US)
        first_us = clock.first_us(earliest_us, now_us) - STAMP_US
        partition_us = max(head.broker_us, leased_us)
        names = ("id", "payload", "attempts", "due")
        columns = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
        with self.guard:
            history = self.histories[topic]
            for place, (message_id, payload, attempt, due_ms) in enumerate(columns):
                d = Delivery(
                    message_id,
                    payload.decode(),
                    attempt,
                    due_ms,
                    first_us,
                    partition_us,
                    -1,
                    head.lease_end_ms,
                    stream,
                    head.partition,
                    (number, place),
                    latest_us=now_us,
                )
                history.deliveries.append(d)
                self.handed[topic, message_id, attempt] = d
                self._where[topic, message_id, attempt] = address, now_us
                self.newest[topic] = max(self.newest[topic], int(d.token.rpartition("-")[2]))

    def hand_over(self, topic: str, message_id: int, attempt: int) -> None:
        """The application has a message in its hands."""
        now_us = CLOCK.now_us()
        with self.guard:
            d = self.handed[topic, message_id, attempt]
            address, since_us = self._where.pop((topic, message_id, attempt), ("", 0))
        if address:
            # What was due by the clock of the process that sent it stays so when that one ends.
            d.handed_broker_us = self.clocks[address].highest_us(now_us, since_us)

    def away(self, topic: str, stream: str, at_us: int) -> None:
        """A stream has ended; what its consumer held may be with others since it was last heard."""
        with self.guard:
            self.histories[topic].aways.append(Away(stream, at_us))
            self.ended.add(stream)

    def released(self, topic: str, settle: Settle) -> None:
        """The client gives back what it has not handed over; whether that arrives, nobody says."""
        assert settle.ids is not None
        assert settle.attempts is not None
        now_us = CLOCK.now_us()
        rows = zip(settle.ids.tolist(), settle.attempts.tolist(), strict=True)
        with self.guard:
            self.histories[topic].settles += [
                Settled(now_us, op="nack", id=message_id, attempt=attempt)
                for message_id, attempt in rows
            ]


class _Channel:
    """An open consumer that notes what it gives back by itself, and when it is closed."""

    def __init__(
        self,
        inner: FlightConsumeChannel | LaneConsumeChannel,
        closing: Callable[[], None],
        releasing: Callable[[Settle], None],
    ) -> None:
        self._inner, self._closing, self._releasing = inner, closing, releasing
        self.credit, self.ping = inner.credit, inner.ping

    def settle(self, settle: Settle) -> Future[Reply]:
        """See ConsumeChannel.settle."""
        if settle.release:
            self._releasing(settle)
        return self._inner.settle(settle)

    def close(self) -> None:
        """See ConsumeChannel.close."""
        self._closing()
        self._inner.close()


class NotedTransport(FlightTransport):
    """A connection to one broker; what it delivers is noted before anybody sees it."""

    def __init__(self, url: str, notes: Notes) -> None:
        super().__init__(url, follows=True)
        self._address = url.rpartition("/")[2].partition(":")[0]
        self._notes = notes

    def open_consume(
        self,
        stream: ConsumeStream,
        on_delivery: Callable[[Arrived], None],
        on_pong: Callable[[Pong], None],
        on_end: Callable[[DejaQError | None], None],
    ) -> Any:
        """See Transport.open_consume."""
        notes, name = self._notes, self._notes.stream(stream.consumer)
        numbers = itertools.count(1)
        heard = [CLOCK.now_us()]
        left = threading.Event()

        def leave() -> None:
            if not left.is_set():
                left.set()
                notes.away(stream.topic, name, heard[0])

        def delivered(found: Arrived) -> None:
            notes.arrived(stream.topic, self._address, name, next(numbers), found)
            heard[0] = CLOCK.now_us()
            on_delivery(found)

        def answered(pong: Pong) -> None:
            heard[0] = CLOCK.now_us()
            on_pong(pong)

        def ended(error: DejaQError | None) -> None:
            leave()
            on_end(error)

        def release(settle: Settle) -> None:
            notes.released(stream.topic, settle)

        channel = super().open_consume(stream, delivered, answered, ended)
        return _Channel(channel, leave, release)


def noted(url: str, notes: Notes) -> RoutedTransport:
    """A way to the cluster on which everything that is delivered is noted."""
    return RoutedTransport(urls_of(url), lambda one: NotedTransport(one, notes))
