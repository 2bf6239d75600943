"""A stream of server-sent events: messages as they become due, on an answer that goes on.

Room: http. On the event loop.
Holds: what is sent and not acked is never more than the client asked for, and its lease never half
over: then the stream ends, and the client comes back with the id of the last event, which acks it
(event_ids.py). What was on its way to a client that has gone goes back at once; what it was sent
waits RETURN_MS for its return.
See: pool.py, where messages come from; routes/event_streams.py; docs/guides/http.md; ADR 67.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dejaqueue.access.gate import Gate
from dejaqueue.access.quotas import Account
from dejaqueue.access.roles import Principal
from dejaqueue.broker.streams import no_reply
from dejaqueue.errors import DejaQError, Unauthenticated
from dejaqueue.http.event_ids import Row, event_id
from dejaqueue.http.flow import Flow
from dejaqueue.http.leasing.waiter import Taken
from dejaqueue.wire.descriptors import ConsumeStream
from dejaqueue.wire.frames import Settle, SettleOp

EVENT_STREAM = "text/event-stream"
SILENCE_MS = 15_000
"""A stream without messages says so: proxies keep it, and who is gone is found out."""
RETURN_MS = 5_000
"""So long a client that has gone may come back and ack what it got, before others get it."""
AGAIN_MS, LOST_MS = 20, 2_000
"""When a client is to come back from a stream that ended by itself, and from one that broke."""
_HEADERS = [
    (b"content-type", EVENT_STREAM.encode()),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(frozen=True, slots=True)
class EventOptions:
    """What a client asked for.

    Attributes:
        consumer: which messages, as a lease says it.
        unacked_max: messages that are sent and not acked at most.
        idle_ms: the stream ends when nothing came for so long; 0 = never for that.
        as_base64: payloads are base64, whatever is in them.
        auto_ack: messages are acked before they are sent.
    """

    consumer: ConsumeStream
    unacked_max: int
    idle_ms: int = 0
    as_base64: bool = False
    auto_ack: bool = False


class EventStream(Response):
    """The answer.

    Args:
        ack: acks what was taken, and returns what was acked.
        caller, account, gate: whose stream it is, for whose quotas it counts, and what ends it when
            the caller's key does.

    Raises:
        ResourceExhausted: the caller has too many streams.
    """

    def __init__(
        self,
        flow: Flow,
        options: EventOptions,
        ack: Callable[[list[Taken]], Awaitable[list[Taken]]],
        *,
        caller: Principal,
        account: Account,
        gate: Gate,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.raw_headers = list(_HEADERS)
        self._flow = flow
        self._options = options
        self._ack = ack
        self._caller, self._account, self._gate = caller, account, gate
        self._open: list[Row] = []
        self._until_ms = 0
        # Now, as the answer is no stream yet: it may still be a refusal.
        self._wait_ms = account.enter_stream()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the stream is over, or its client has gone."""
        loop = asyncio.get_running_loop()
        refusals: list[DejaQError] = []
        try:
            # tidy: allow sleep, because who opens streams too fast waits for nothing else
            await asyncio.sleep(self._wait_ms / 1_000)
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            feed, gone = loop.create_task(self._feed(send)), loop.create_task(_until_gone(receive))

            def end(error: Unauthenticated) -> None:
                refusals.append(error)
                with suppress(RuntimeError):  # the loop has ended, and the stream with it
                    loop.call_soon_threadsafe(feed.cancel)

            with self._gate.admit(self._caller, end):
                try:
                    await asyncio.wait({feed, gone}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    is_gone = gone.done()
                    feed.cancel()
                    gone.cancel()
                    found, _ = await asyncio.gather(feed, gone, return_exceptions=True)
            if isinstance(found, Exception) and not isinstance(found, OSError):
                raise found
            if not is_gone:
                for error in refusals:
                    await _write(send, _told(error))
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._account.leave_stream()

    async def _feed(self, send: Send) -> None:
        """All events. Returns when the stream is over."""
        is_ended = False
        try:
            await _write(send, f"retry: {LOST_MS}\n\n")
            await self._send_events(send)
            await _write(send, f"retry: {AGAIN_MS}\n\n")
            is_ended = True
        except DejaQError as error:
            # Its topic was deleted, or the broker stops: what the next request is told, too.
            await _write(send, _told(error))
        finally:
            if not is_ended:
                self._let_go()

    async def _send_events(self, send: Send) -> None:
        options, leases = self._options, self._flow.leases
        quiet_ms = 0
        while True:
            room = options.unacked_max - len(self._open)
            wait_ms = SILENCE_MS
            if options.idle_ms:
                wait_ms = min(wait_ms, options.idle_ms - quiet_ms)
            if self._open:
                wait_ms = min(wait_ms, self._until_ms - self._flow.now_ms())
            if room <= 0 or wait_ms <= 0:
                return
            began_ms = self._flow.now_ms()
            taken = await leases.lease(options.consumer, room, wait_ms)
            if not taken:
                quiet_ms += max(wait_ms, self._flow.now_ms() - began_ms)
                if options.idle_ms and quiet_ms >= options.idle_ms:
                    # In a short time nobody may have looked; what is there now comes still.
                    taken = await leases.lease(options.consumer, room, 0)
            if taken and options.auto_ack:
                taken = await self._ack(taken)
            if taken:
                quiet_ms = 0
                await _write(send, "".join(self._as_events(taken)))
            else:
                await _write(send, ": nothing new\n\n")

    def _as_events(self, taken: list[Taken]) -> list[str]:
        """Messages as events; from now on they are open, unless they are acked."""
        texts = []
        is_acked = self._options.auto_ack
        for part in taken:
            if not is_acked:
                now_ms = self._flow.now_ms()
                half_ms = now_ms + (part.lease_end_ms - now_ms) // 2
                self._until_ms = min(self._until_ms, half_ms) if self._open else half_ms
            for message in part.objects(as_base64=self._options.as_base64):
                named = ""
                if not is_acked:
                    self._open.append((int(message["id"]), message["attempt"]))
                    named = f"id: {event_id(self._open)}\n"
                texts.append(f"{named}data: {orjson.dumps(message).decode()}\n\n")
        return texts

    def _let_go(self) -> None:
        """The client has gone: what it was sent waits a moment for it, and goes to others."""
        if not self._open or self._until_ms - self._flow.now_ms() <= 0:
            return
        ids, attempts = zip(*self._open, strict=True)
        settle = Settle(
            SettleOp.EXTEND,
            0,
            ids=np.array(ids, dtype=np.int64),
            attempts=np.array(attempts, dtype=np.uint16),
            argument_ms=RETURN_MS,
        )
        with suppress(DejaQError):  # its topic has gone, or the broker stops
            self._flow.leases.session(self._options.consumer).session.settle(settle, no_reply)


def _told(error: DejaQError) -> str:
    """Why a stream ends, as an event."""
    values = {"title": type(error).__name__, "detail": error.told()}
    return f"event: end\ndata: {orjson.dumps(values).decode()}\n\n"


async def _write(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
