"""What the client needs of a connection: over Flight, or straight into a broker in this process.

Room: client. The contract; `flight_transport.py` speaks Flight, `dejaqueue/local.py` calls
a broker.
Holds: every callback runs on a thread of the transport and must not block; a future of a broken
channel ends with Unavailable, never hangs.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from dejaqueue.client.row_batch import RowBatch
from dejaqueue.errors import DejaQError
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream
from dejaqueue.wire.frames import DeliveryHead, Ping, Pong, Reply, Settle


@dataclass(frozen=True, slots=True)
class Delivery:
    """A leased batch as it arrives.

    Attributes:
        is_text: False if a text in it is not UTF-8.
    """

    head: DeliveryHead
    batch: pa.RecordBatch
    is_text: bool = True


class WriteChannel(Protocol):
    """An open stream of batches of one kind (enqueue, move, cancel, ack …)."""

    def send(self, number: int, batch: pa.RecordBatch) -> Future[Reply]:
        """Send a batch; its reply, or Unavailable if the channel breaks first (outcome unknown)."""
        ...

    def close(self) -> None:
        """Wait for replies of what was sent, then close. Twice is fine."""
        ...


class RowChannel(Protocol):
    """The same for single messages, without a record batch."""

    def send(self, number: int, batch: RowBatch) -> Future[Reply]:
        """As WriteChannel."""
        ...

    def close(self) -> None:
        """As WriteChannel."""
        ...


class ConsumeChannel(Protocol):
    """An open consumer."""

    def credit(self, rows: int) -> None:
        """Take this many rows more."""
        ...

    def settle(self, settle: Settle) -> Future[Reply]:
        """ack, nack or extend; number 0 = no reply, the future is done at once."""
        ...

    def ping(self, ping: Ping) -> None:
        """Measure the clock offset; the answer goes to `on_pong`."""
        ...

    def close(self) -> bool:
        """End; leases still held end at once. Twice is fine.

        Returns:
            False if the stream broke, or its topic went to another broker: then the leases may go
            on.
        """
        ...


class Transport(Protocol):
    """A connection to a broker.

    Attributes:
        shares_clock: True if the broker's clock is this process's own: the offset is 0, exactly.
    """

    shares_clock: bool

    def open_write(self, stream: WriteStream, *, shared: bool = False) -> WriteChannel:
        """Open a stream of batches. Raises Unavailable, BadRequest.

        Args:
            shared: it may be one with those of other topics and producers.
        """
        ...

    def open_lane(self, stream: WriteStream, *, has_fields: bool = False) -> RowChannel | None:
        """A channel for single messages; None = they go as batches. Raises Unavailable,
        BadRequest.

        Args:
            has_fields: they may have more than a payload and a due time.
        """
        ...

    def open_consume(
        self,
        stream: ConsumeStream,
        on_delivery: Callable[[Delivery], None],
        on_pong: Callable[[Pong], None],
        on_end: Callable[[DejaQError | None], None],
    ) -> ConsumeChannel:
        """Open a consumer. `on_end` is called once, with the error that ended it, if any."""
        ...

    def action(
        self, name: str, body: dict[str, Any], *, repeats: bool = False
    ) -> Future[dict[str, Any]]:
        """One call: create_topic, alter_topic, delete_topic, list_topics, describe_topic, stats,
        clock (see docs/wire.md).

        Args:
            repeats: made twice it does what it does once. In a cluster it then leaves a broker that
                gives no sign of life for another one.
        """
        ...

    def rows(self, ticket: dict[str, Any]) -> Future[pa.Table]:
        """Rows without leasing: {"op": "peek", "topic": …, …}."""
        ...

    def close(self) -> None:
        """Close all channels and the connection. Twice is fine."""
        ...
