"""Requests whose body is here, answered without the framework's request in between.

Room: http. A connection (protocol.py) and what answers some of its requests. On the event loop.
Holds: whoever sends a request cannot tell by which way it was answered. What a short lane does not
take, and what it has refused, goes the ordinary way, through all that is around the application.
See: sqs/short_lane.py, which is one; docs/adr/0060-small-requests-past-the-framework.md.

The framework around a small request (its task, its middleware, its two messages of an answer) takes
as long as all that the request asks for.
"""

from __future__ import annotations

from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any, Protocol, TypeAlias

from starlette.types import Receive, Scope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from dejaqueue.http.protocol import BoundedProtocol

_OK = f"HTTP/1.1 200 {HTTPStatus.OK.phrase}\r\n".encode()
Answering: TypeAlias = Coroutine[Any, Any, bytes | None]
"""Gives the content of the answer; None = the request goes the ordinary way after all."""


class ShortLane(Protocol):
    """What answers some requests by itself."""

    kind: bytes
    """The media type of its answers."""

    def is_for(self, scope: Scope) -> bool:
        """True if it may take this request, by its head."""
        ...

    def begin(self, scope: Scope, body: bytes, receive: Receive) -> Answering | None:
        """Take a request, or None. Nothing has been done when it is None, or ends in one."""
        ...


def _nobody_waits() -> None:
    """What an answer that is complete tells."""


class ShortLaneProtocol(BoundedProtocol):
    """One connection that has a short lane."""

    short_lane: ShortLane
    _held: Any = None
    """What waits for its body, to be asked for by the short lane then."""

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        """Begin to answer. Of what the framework would not read on for, or wait with the first byte
        of, nothing is held back."""
        waits = (
            cycle is self.cycle
            and cycle.more_body
            and 0 < self._declared_bytes <= HIGH_WATER_LIMIT
            and not cycle.waiting_for_100_continue
        )
        if waits and self.short_lane.is_for(cycle.scope):
            self._held = cycle, app
            return
        super()._start_asgi_task(cycle, app)

    def on_message_complete(self) -> None:
        """All of a request is here."""
        super().on_message_complete()
        if self._held is None:
            return
        (cycle, app), self._held = self._held, None
        body = bytes(cycle.body)
        answering = self.short_lane.begin(cycle.scope, body, cycle.receive)
        if answering is None:
            super()._start_asgi_task(cycle, app)
            return
        task = self.loop.create_task(self._answer(cycle, app, body, answering))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    async def _answer(self, cycle: Any, app: Any, body: bytes, answering: Answering) -> None:
        content = await answering
        if content is None:
            # Who waited for the client to go away may have read the body.
            cycle.body, cycle.more_body = bytearray(body), False
            cycle.message_event.set()
            super()._start_asgi_task(cycle, app)
            return
        if self.flow.write_paused and not cycle.disconnected:
            await self.flow.drain()
        if not cycle.disconnected:
            self._write(cycle, content)
        cycle.on_response = _nobody_waits

    def _write(self, cycle: Any, content: bytes) -> None:
        parts = [_OK]
        for name, value in cycle.default_headers:
            parts += (name, b": ", value, b"\r\n")
        closes = b"" if cycle.keep_alive else b"connection: close\r\n"
        head = b"content-length: %d\r\ncontent-type: %b\r\n%b\r\n"
        parts += (head % (len(content), self.short_lane.kind, closes), content)
        cycle.response_started = cycle.response_complete = True
        self.transport.write(b"".join(parts))
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
