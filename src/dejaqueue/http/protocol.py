"""HTTP/1.1 with bounds: how large, how slow and how many.

Room: http. uvicorn's protocol, with what it lacks. On the event loop alone.
Holds: what a connection makes the broker keep is bounded, in bytes and in time, whatever is sent;
who goes beyond a bound gets an answer that says which (a problem, RFC 9457), unless an answer is on
its way already, and is closed; every connection that was opened is closed at some time.
See: limits.py and settings.ServerSettings for the bounds, and why they are so.

What a connection does is noted in two fields, its phase and since when; one timer for all of them
looks every second (Connections). So a request costs no timer of its own.

    NEW ─▶ HEAD ─▶ BODY ─▶ IDLE ─▶ HEAD …      IDLE: a request is being answered, or none is there
             └──────┴────────┴────▶ DEAF        DEAF: refused; what still comes is thrown away
             └────▶ LANE                        LANE: frames instead of HTTP (lane.py)
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import partial
from http import HTTPStatus
from typing import Any, TypeAlias

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dejaqueue.access.quotas import Account, Quotas
from dejaqueue.access.roles import Principal
from dejaqueue.access.tls import certificate_name
from dejaqueue.errors import DejaQError, ResourceExhausted
from dejaqueue.http.auditing import CERTIFICATE, IS_CLOSING
from dejaqueue.http.bounds import Bounds
from dejaqueue.http.hang_up import has_hung_up
from dejaqueue.http.lane import SWITCHING, Lane, Lanes
from dejaqueue.http.one_write import OneWrite
from dejaqueue.http.problems import MEDIA_TYPE
from dejaqueue.wire import lane

LOOK_CONNECTIONS = 256
"""How many are looked at in one go: half a millisecond."""
PROBES = frozenset({b"/livez", b"/readyz", b"/metrics"})
"""Paths that are answered on a connection beyond the bound, too: one request, then it is closed."""
PROBE_SECONDS = 2.0
"""How long such a connection has to ask."""
LINGER_SECONDS = 2.0
"""Who was refused in the middle of a request may go on sending for so long: closing at once would
make its system throw our answer away."""
CLOSE_SECONDS = 5.0
"""How long a client has to read the rest after a connection is closed."""


@dataclass(slots=True)
class Counters:
    """What happened to connections since the start; numbers only rise.

    Attributes:
        opened: connections.
        refused: connections over the bound.
        silent: closed without a request, or idle for too long.
        malformed: requests that are not HTTP.
        head_large, body_large, bodies_full: requests over these bounds.
        head_late, body_late: requests that came too slowly.
        pipelined: connections that sent too many requests ahead.
        stuck: closed because they did not take their answer.
    """

    opened: int = 0
    refused: int = 0
    silent: int = 0
    malformed: int = 0
    head_large: int = 0
    body_large: int = 0
    bodies_full: int = 0
    head_late: int = 0
    body_late: int = 0
    pipelined: int = 0
    stuck: int = 0

    def add(self, name: str) -> None:
        """One more of these."""
        setattr(self, name, getattr(self, name) + 1)

    def values(self) -> dict[str, int]:
        """All of them, by name."""
        return {counter.name: getattr(self, counter.name) for counter in fields(self)}


class Phase(Enum):
    """What a connection is waited for."""

    NEW = "nothing came yet"
    HEAD = "request line and headers"
    BODY = "the body"
    IDLE = "the next request"
    DEAF = "the end"
    LANE = "frames: it is no HTTP any more"


PATH, PROTOCOL = lane.PATH.encode(), lane.PROTOCOL.encode()

_Excess: TypeAlias = Callable[[], tuple[int, str]]


def _refused(account: Account) -> tuple[int, str]:
    full = account.refused_connection()
    return full.http_status, str(full)


@dataclass(slots=True, eq=False)
class Connections:
    """All connections of a server.

    Attributes:
        body_bytes: of bodies whose requests are not answered yet.
        quotas: of the addresses that connections come from; None = there are none.
        lanes: connections that are asked to become one do (lane.py); None = no such thing here.
        beyond: those of `open` that are one too many, the oldest first.
    """

    bounds: Bounds
    quotas: Quotas | None = None
    counters: Counters = field(default_factory=Counters)
    lanes: Lanes | None = None
    open: set[BoundedProtocol] = field(default_factory=set)
    beyond: dict[BoundedProtocol, None] = field(default_factory=dict)
    body_bytes: int = 0
    _unseen: list[BoundedProtocol] = field(default_factory=list)
    _timer: asyncio.TimerHandle | None = None

    def add(self, connection: BoundedProtocol) -> None:
        """One more."""
        self.open.add(connection)
        self.counters.opened += 1
        if self._timer is None:
            self._plan(connection.loop)

    def admit(self, connection: BoundedProtocol, address: str) -> _Excess | None:
        """Says why a connection is one too many, status and text; None = it is not."""
        most = self.bounds.connections_max
        if len(self.open) - len(self.beyond) > most:
            return lambda: (503, f"connections: at most {most} at once")
        account = None if self.quotas is None else self.quotas.of_address(address)
        if account is not None and account.is_bounded:
            if not account.open_connection():
                return partial(_refused, account)
            connection.account = account
        return None

    def keep_for_probe(self, connection: BoundedProtocol) -> None:
        """It is one too many, and may ask one thing. Those that say nothing make room."""
        if len(self.beyond) >= self.bounds.probes_max:
            next(iter(self.beyond)).turn_away()
        self.beyond[connection] = None

    def leave(self, connection: BoundedProtocol) -> None:
        """It is closed."""
        self.open.discard(connection)
        self.beyond.pop(connection, None)
        if connection.account is not None:
            connection.account.close_connection()

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        parts = len(self.open) // LOOK_CONNECTIONS + 1
        self._timer = loop.call_later(self.bounds.look_seconds / parts, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close those whose time is over; some of them now, the others soon."""
        self._timer = None
        if not self._unseen:
            self._unseen = list(self.open)
        now = loop.time()
        for connection in self._unseen[-LOOK_CONNECTIONS:]:
            connection.look(now)
        del self._unseen[-LOOK_CONNECTIONS:]
        if self.open:
            self._plan(loop)


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Made by uvicorn; `bounded` binds it to the connections of a server.

    Attributes:
        account: of its address, if that has quotas.
    """

    shared: Connections
    account: Account | None = None
    _excess: _Excess | None = None
    """Why it is one too many."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._certificate = ""
        self._phase = Phase.NEW
        self._since = self.loop.time()
        self._began_here = False
        self._head_bytes = 0
        self._declared_bytes = 0
        self._body_bytes = 0
        self._body_mark = 0
        self._refusal: tuple[int, str, str] | None = None
        self._running: Any = None
        self._unsent_bytes = 0
        self._unsent_since = 0.0
        self._closing_since: float | None = None
        self._asks_for_lane = False
        self._lane: Lane | None = None

    # --- life ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it, or find that there are too many: then it may be a probe."""
        super().connection_made(transport)
        self._certificate = certificate_name(transport.get_extra_info("peercert"))
        self.shared.add(self)
        self._excess = self.shared.admit(self, self.client[0] if self.client else "")
        if self._excess is not None:
            self.shared.keep_for_probe(self)

    def turn_away(self) -> None:
        """It is one too many, and has not asked for what it may ask for."""
        self.shared.beyond.pop(self, None)
        if self._excess is not None and not self._is_answering:
            self._refuse(*self._excess(), "refused")
        self.transport.close()  # without lingering: those beyond the bound must not pile up

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        self._forget_body()
        if self._lane is not None:
            self._lane.lost()
        self.shared.leave(self)
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        if self._is_answering:  # uvicorn only tells the request that came last
            self._silence(self._running)
        super().connection_lost(exc)

    @staticmethod
    def _silence(cycle: Any) -> None:
        """Tell the application that nobody listens to this answer any more."""
        cycle.disconnected = True
        cycle.message_event.set()

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn's never keeps it open
        """The client has closed its side: do not wait for a message on its behalf."""
        if self._lane is not None:
            self._lane.finish()
            return self.scheme == "http"  # over TLS there are no half-closed connections
        self._enter(Phase.DEAF)
        return False

    def _is_left(self) -> bool:
        """True if nobody reads an answer any more; the kernel knows sooner than the loop."""
        if self.transport.is_closing():
            return True
        connection = self.transport.get_extra_info("socket")
        return connection is not None and has_hung_up(connection.fileno())

    def shutdown(self) -> None:
        """The server stops."""
        if self._lane is not None:
            self._lane.stop()
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        if self._lane is not None:
            self._lane.slow(is_slow=True)

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        if self._lane is not None:
            self._lane.slow(is_slow=False)

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._since = self.loop.time()

    # --- what comes -----------------------------------------------------------------------------

    # tidy: allow name, because it is the name of the framework
    def data_received(self, data: bytes) -> None:
        """Read on."""
        if self._lane is not None:
            self._lane.received(data)
            return
        if self._phase is Phase.DEAF:
            return
        if self._phase is Phase.IDLE or self._phase is Phase.NEW:
            self._enter(Phase.HEAD)
        self._unset_keepalive_if_required()
        self._began_here = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._asks_for_lane:
                self._become_lane(data[upgrade.args[0] :])
                return
            self._last_one()  # answered as any request; what follows is in another language
            return
        except httptools.HttpParserError:
            self._refuse(*(self._refusal or (400, "the request is not HTTP/1.1", "malformed")))
            return
        # In the chunk in which a request began, how much of it is its head is not known.
        if self._phase is Phase.HEAD and not self._began_here:
            self._head_bytes += len(data)
            if self._head_bytes > self.shared.bounds.head_bytes_max:
                self._refuse(*self._head_large())

    def _head_large(self) -> tuple[int, str, str]:
        bounds = self.shared.bounds
        limit = f"at most {bounds.head_bytes_max} bytes in {bounds.header_count_max} headers"
        return 431, f"headers: {limit}", "head_large"

    def _give_up(self, status: int, detail: str, counter: str) -> None:
        """Stop the parser from within: it only knows that a callback has failed."""
        self._refusal = status, detail, counter
        raise ValueError(detail)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._enter(Phase.HEAD)
        self._began_here = True
        self._head_bytes = self._declared_bytes = 0
        super().on_message_begin()
        self.scope[IS_CLOSING] = self._is_left  # type: ignore[literal-required]
        if self._certificate:
            self.scope[CERTIFICATE] = self._certificate  # type: ignore[literal-required]

    def on_url(self, url: bytes) -> None:
        """A piece of the request line."""
        super().on_url(url)
        if len(self.url) > self.shared.bounds.head_bytes_max:
            self._give_up(*self._head_large())

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        name = name.lower()
        headers = self.headers
        headers.append((name, value))
        self._head_bytes = head_bytes = self._head_bytes + len(name) + len(value)
        bounds = self.shared.bounds
        if len(headers) > bounds.header_count_max or head_bytes > bounds.head_bytes_max:
            self._give_up(*self._head_large())
        if name == b"content-length":
            self._declared_bytes = int(value)
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True

    def on_headers_complete(self) -> None:
        """Begin to answer, if it may be answered."""
        if self._declared_bytes > self.shared.bounds.body_bytes_max:
            self._give_up(*self._body_large())
        if self._excess is not None and self.url.partition(b"?")[0] not in PROBES:
            self._give_up(*self._excess(), "refused")
        if self.shared.lanes is not None and self._is_for_lane():
            self._asks_for_lane = True
            return
        before = self.cycle
        waiting = before is not None and not before.response_complete
        if waiting and len(self.pipeline) >= self.shared.bounds.pipelined_max:
            self._give_up(429, "too many requests sent ahead of their answers", "pipelined")
        super().on_headers_complete()
        if not waiting:
            self._running = self.cycle
        if self.cycle is not None and self.scope["method"] != "HEAD":  # whose head has no body
            self.cycle.transport = OneWrite(self.transport)  # type: ignore[assignment]
        if self._excess is not None and self.cycle is not None:
            self.cycle.keep_alive = False
        self._body_bytes = self._body_mark = 0
        self._enter(Phase.BODY)

    def _body_large(self) -> tuple[int, str, str]:
        return 413, f"body: at most {self.shared.bounds.body_bytes_max} bytes", "body_large"

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        shared = self.shared
        self._body_bytes += len(body)
        if self.account is not None:
            try:
                self.account.hold_bytes(len(body), self._kept_bytes, wait=False)
            except ResourceExhausted as full:
                self._give_up(full.http_status, str(full), "bodies_full")
        shared.body_bytes += len(body)
        self._kept_bytes += len(body)
        if self._body_bytes > shared.bounds.body_bytes_max:
            self._give_up(*self._body_large())
        if shared.body_bytes > shared.bounds.bodies_bytes_max:
            limit = f"at most {shared.bounds.bodies_bytes_max} bytes at once"
            self._give_up(503, f"bodies: {limit}", "bodies_full")
        super().on_body(body)

    _kept_bytes = 0

    def _forget_body(self) -> None:
        self.shared.body_bytes -= self._kept_bytes
        if self.account is not None and self._kept_bytes:
            self.account.give_bytes(self._kept_bytes)
        self._kept_bytes = 0

    def on_message_complete(self) -> None:
        """All of a request is here."""
        self._enter(Phase.IDLE)
        if self._asks_for_lane:
            return
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer was written; the next request that waits is begun."""
        self._forget_body()
        following = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        self._running = following
        if self._phase is Phase.IDLE:
            self._since = self.loop.time()

    # --- the lane -------------------------------------------------------------------------------

    def _is_for_lane(self) -> bool:
        """Whether the request asks for one, and nothing else is being answered."""
        asks = self.url == PATH and self.parser.should_upgrade() and not self._is_answering
        return asks and self._get_upgrade() == PROTOCOL and self.parser.get_method() == b"GET"

    def _become_lane(self, rest: bytes) -> None:
        """Be a lane from here on, if the caller may have one; `rest`: what came of it already."""
        lanes, client = self.shared.lanes, self.client or ("", 0)
        assert lanes is not None
        try:
            who = lanes.admitted(self.headers, self._certificate, client)
            wait_ms = who[1].enter_stream()
        except DejaQError as refused:
            self._refuse(refused.http_status, str(refused), "refused")
            return
        if not wait_ms:
            self._switch(who, client, rest)
            return
        self.transport.pause_reading()  # lanes are opened too fast
        self.loop.call_later(wait_ms / 1_000, self._switch, who, client, rest)

    def _switch(self, who: tuple[Principal, Account], client: tuple[str, int], rest: bytes) -> None:
        if self not in self.shared.open or self.transport.is_closing():
            who[1].leave_stream()
            return
        lanes, bounds = self.shared.lanes, self.shared.bounds
        assert lanes is not None
        self._enter(Phase.LANE)
        self.transport.resume_reading()
        self.transport.write(SWITCHING)
        # A lane may be silent for long: a client that is gone is noticed by the system.
        connection = self.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        most = bounds.body_bytes_max, bounds.bodies_bytes_max
        self._lane = Lane(
            lanes, self.transport, who, client, frame_bytes_max=most[0], held_bytes_max=most[1]
        )
        if rest:
            self._lane.received(rest)

    # --- refusing -------------------------------------------------------------------------------

    def _refuse(self, status: int, detail: str, counter: str) -> None:
        """Answer with a problem if nothing else is being answered, and close."""
        self.shared.counters.add(counter)
        running = self._running
        if running is None or running.response_complete:
            if self._phase is Phase.BODY and running is not None:
                self.transport.close()  # it was answered before all of it had come
            else:
                self._say(status, detail)
        elif running is not self.cycle or self._phase is not Phase.BODY:
            self._last_one()  # an answer before this one is on its way
        elif running.response_started:
            self.transport.abort()
        else:
            self._silence(running)
            self._say(status, detail)

    def _last_one(self) -> None:
        """Read no more; close when what is being answered is answered."""
        self._enter(Phase.DEAF)
        if self._running is None or self._running.response_complete:
            self.transport.close()
            return
        self.pipeline.clear()
        self._running.keep_alive = False

    def _say(self, status: int, detail: str) -> None:
        """Write a problem, then close as soon as the other side has stopped sending."""
        title = HTTPStatus(status).phrase
        values = {"type": "about:blank", "title": title, "status": status, "detail": detail}
        body = json.dumps(values).encode()
        later = "retry-after: 1\r\n" if status in (429, 503) else ""
        head = (
            f"HTTP/1.1 {status} {title}\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(body)}\r\n{later}connection: close\r\n\r\n"
        )
        self._enter(Phase.DEAF)
        self.transport.write(head.encode() + body)
        if self.scheme == "http" and self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
        else:
            self.transport.close()

    # --- time -----------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Close it if its time is over."""
        if self not in self.shared.open:
            return  # it was closed since it was put on the list
        if self.transport.is_closing():
            self._closing_since = self._closing_since or now
            if now - self._closing_since > CLOSE_SECONDS:
                self.transport.abort()
            return
        if self._is_stuck(now):
            self.shared.counters.add("stuck")
            self.transport.abort()
            return
        if self._lane is not None:
            if self._lane.look(now, self.shared.bounds):
                self.shared.counters.add("body_late")
            return
        if self.flow.read_paused:  # we paused reading
            self._since, self._body_mark = now, self._body_bytes
            return
        self._look_at_phase(now - self._since)

    def _look_at_phase(self, waited: float) -> None:
        bounds, phase = self.shared.bounds, self._phase
        if phase is Phase.HEAD:
            if waited > bounds.head_seconds:
                limit = f"complete after at most {bounds.head_seconds:g} seconds"
                self._refuse(408, f"headers: {limit}", "head_late")
        elif phase is Phase.BODY:
            came = self._body_bytes - self._body_mark
            if waited > bounds.body_seconds + came / bounds.body_bytes_per_second:
                limit = f"at least {bounds.body_bytes_per_second} bytes in a second"
                self._refuse(408, f"body: {limit}", "body_late")
        elif phase is Phase.DEAF:
            if waited > LINGER_SECONDS and not self._is_answering:
                self.transport.close()
        elif not self._is_answering:
            if self._excess is not None and waited > PROBE_SECONDS:
                self.turn_away()
                return
            most = bounds.head_seconds if phase is Phase.NEW else bounds.idle_seconds
            if waited > most:
                self.shared.counters.add("silent")
                self.transport.close()

    @property
    def _is_answering(self) -> bool:
        running = self._running
        return running is not None and not (running.response_complete or running.disconnected)

    def _is_stuck(self, now: float) -> bool:
        """True if it has not taken a byte of what is written to it for too long."""
        unsent_bytes = self.transport.get_write_buffer_size()
        if unsent_bytes != self._unsent_bytes or not unsent_bytes:
            self._unsent_bytes, self._unsent_since = unsent_bytes, now
            return False
        return now - self._unsent_since > self.shared.bounds.stuck_seconds


def bounded(
    connections: Connections, kind: type[BoundedProtocol] = BoundedProtocol, **more: Any
) -> type[BoundedProtocol]:
    """The protocol class for the connections of one server.

    Args:
        kind: what they are.
        more: further attributes of the class.
    """
    return type("Bound", (kind,), {"shared": connections, **more})
