"""What an application keeps between requests: gatherers and the lease pool.

Room: http. One for each application, made on its event loop by the first request that needs it.
Holds: at most GATHERS_MAX gatherers are kept (gather.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from fastapi import Request

from dejaqueue.access.senders import Sender
from dejaqueue.broker.broker import Broker
from dejaqueue.http.auditing import IS_CLOSING, SHARDED
from dejaqueue.http.columns import send_batch
from dejaqueue.http.gather import Gather, Gathers, ToBatch
from dejaqueue.http.leasing.pool import LeasePool
from dejaqueue.http.named import settle_batch
from dejaqueue.wire.descriptors import WriteStream


class Flow:
    """The ways in and out that requests share.

    Attributes:
        broker: the broker.
        leases: consumers that requests share.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.leases = LeasePool(broker)
        self._gathers: Gathers[tuple[WriteStream, Sender, ToBatch | None]] = Gathers()

    def gather(
        self, stream: WriteStream, sender: Sender, to_batch: ToBatch | None = None
    ) -> Gather:
        """The gatherer of batches of one kind and one sender.

        Args:
            to_batch: makes a batch of rows; None = they are JSON objects, or (id, attempt) to
                settle.

        Raises:
            TopicUnknown, Unavailable.
        """
        gather = self._gathers.get((stream, sender, to_batch))
        if gather is not None:
            return gather
        self.broker.view(stream.topic)
        made = Gather(self.broker, stream, sender, to_batch or self._to_batch(stream.op))
        return self._gathers.keep((stream, sender, to_batch), made)

    def _to_batch(self, op: str) -> ToBatch:
        if op != "enqueue":
            return settle_batch
        clock = self.broker.clock
        return lambda rows: send_batch(rows, clock.utc_ms())

    def now_ms(self) -> int:
        """The broker's time, UTC milliseconds."""
        return self.broker.clock.utc_ms()

    def close(self) -> None:
        """Tell those who wait for messages that the broker stops."""
        self.leases.close()


def has_gone(request: Request) -> bool:
    """True if the connection that a request came on is closed: nobody gets its answer."""
    is_closing: Callable[[], bool] | None = request.scope.get(IS_CLOSING)
    return is_closing is not None and is_closing()


def flow_of(request: Request) -> Flow:
    """The flow of the application that a request came to; call it on the event loop."""
    sharded = request.scope.get(SHARDED)
    if sharded is not None:  # a caller's own: what goes on is with the caller's key
        if sharded.flow is None:
            sharded.flow = Flow(sharded)
        return cast(Flow, sharded.flow)
    return flow_at(request.app.state)


def flow_at(state: Any) -> Flow:
    """The flow of an application, by its state; call it on the event loop."""
    flow: Flow | None = getattr(state, "flow", None)
    if flow is None:
        flow = state.flow = Flow(state.service.broker)
    return flow
