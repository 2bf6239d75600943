"""Requests that another broker answers: passed on to it, and its answer back.

Room: http. Middleware, inside of the entrance: who is not let in here is not passed on. There is
none where a broker is alone.
Holds: a request is passed on when its own answer would have been Elsewhere, so nothing of it has
been done here; as it came, with the caller's key; once. Bodies and answers go through piece by
piece. A caller who goes away ends the request at the other broker, too. A request that may be made
twice is ended when the other broker gives no sign of life.
See: flight/forwarding.py for the same of Flight; docs/guides/http.md.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dejaqueue.access.routes import REPEATED
from dejaqueue.client.silence_watch import (
    AGAIN_LOOK_SECONDS,
    AGAIN_SECONDS_MAX,
    ANSWER_SECONDS_MAX,
    SILENT_SECONDS_MAX,
)
from dejaqueue.errors import Elsewhere, Unavailable
from dejaqueue.flight.sharded import ShardedBrokers
from dejaqueue.http.auditing import BEARER, OUTCOME, SHARDED, SIGNED, is_by_certificate, note_error
from dejaqueue.http.problems import problem

FORWARDED = b"x-dejaq-forwarded"
"""The header of a request that was passed on: the broker that gets it does not pass it on again."""
HOST = b"x-dejaq-host"
"""The header with the host that such a request was sent to: a signature is of that one."""
FOLLOWS = b"x-dejaq-follows"
"""The header of a client that follows owners: it is told the owner, and not passed on."""
NAMED = b"idempotency-key"
"""The header of a request that is carried out once, however often it comes."""
CONNECT_S = 3.0
SILENCE_S = 120.0
"""Longer than any request may wait for messages."""
PIECE_BYTES = 64 << 10
_ANYWHERE = re.compile("/v1/topics/[^/]+/payload")
"""What any broker answers, and whose bodies are too large to be held for another."""

# Those of one connection, and those that another broker would take for a web page's.
_OWN = frozenset(
    {b"connection", b"expect", b"host", b"keep-alive", b"origin", b"proxy-authenticate",
     b"proxy-authorization", b"referer", b"te", b"trailer", b"transfer-encoding", b"upgrade",
     HOST}
)  # fmt: skip

Headers = list[tuple[bytes, bytes]]


class Forwarding:
    """Passes on what another broker serves.

    Args:
        app: what comes behind.
        sharded: what answers for topics in shards, for each caller.
        tls: for brokers at https; None = the system's certificates are trusted.
    """

    def __init__(
        self, app: ASGIApp, sharded: ShardedBrokers, tls: ssl.SSLContext | None = None
    ) -> None:
        self._app = app
        self._sharded = sharded
        self._owners = _Owners(tls)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""
        if (
            scope["type"] != "http"
            or any(name in (FORWARDED, FOLLOWS) for name, _ in scope["headers"])
            or _ANYWHERE.fullmatch(scope["path"])
        ):
            await self._app(scope, receive, send)
            return
        taken: list[Message] = []
        other: Elsewhere | None = None

        async def take() -> Message:
            message = await receive()
            taken.append(message)
            return message

        async def unless_elsewhere(message: Message) -> None:
            nonlocal other
            if message["type"] == "http.response.start":
                outcome = scope.get(OUTCOME)
                # This broker cannot show a caller's certificate to another one.
                if isinstance(outcome, Elsewhere) and not is_by_certificate(scope):
                    other = outcome if outcome.http_url or outcome.spread else None
            if other is None:
                await send(message)

        await self._app(scope, take, unless_elsewhere)
        if other is not None and other.spread:
            del scope[OUTCOME]
            try:
                scope[SHARDED] = self._sharded.of(scope.get(BEARER))
            except Unavailable as error:
                note_error(scope, error)
                await problem(error)(scope, receive, send)
                return
            await self._app(scope, _again(taken, receive), send)
        elif other is not None:
            del scope[OUTCOME]
            await _pass_on(other, scope, _body(taken, receive), receive, send, self._owners)


def _again(taken: list[Message], receive: Receive) -> Receive:
    """What was received already, then the rest."""
    left = list(taken)

    async def again() -> Message:
        return left.pop(0) if left else await receive()

    return again


async def _body(taken: Iterable[Message], receive: Receive) -> AsyncIterator[bytes]:
    """The request's body: what was read of it already, then the rest.

    Raises:
        ConnectionError: the caller went away.
    """
    for message in taken:
        if message["type"] == "http.request":
            yield message.get("body", b"")
            if not message.get("more_body", False):
                return
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ConnectionError("the caller went away")
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


async def _pass_on(
    other: Elsewhere,
    scope: Scope,
    body: AsyncIterator[bytes],
    receive: Receive,
    send: Send,
    owners: _Owners,
) -> None:
    url = other.http_url
    try:
        upstream = await _connect(url, owners.tls)
    except (OSError, TimeoutError) as error:
        silent = Unavailable(f"{other.node} at {url} does not answer: {error!r}", 200)
        note_error(scope, silent)
        await problem(silent)(scope, receive, send)
        return
    answer = _Answer(scope, send)
    try:
        attend = partial(owners.attend, url, upstream, repeats=_may_repeat(scope))
        await attend(upstream.ask(scope, body))
        await attend(upstream.answer(answer), _until_gone(receive))
    except (OSError, TimeoutError, h11.RemoteProtocolError) as error:
        if answer.has_begun:
            raise  # the server breaks the connection: half an answer must not look whole
        told = f"{other.node} did not answer: {error!r}"
        if isinstance(error, _Silence):
            told = f"the broker at {url} does not answer"
        lost = Unavailable(f"{told}; the outcome is unknown", 200)
        note_error(scope, lost)
        await problem(lost)(scope, receive, send)
    finally:
        await upstream.close()


class _Silence(TimeoutError):
    """The other broker gave no sign of life."""


class _Owners:
    """Asks other brokers for a sign of life, and remembers which of them gave none.

    Args:
        tls: as Forwarding takes it.
    """

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self.tls = tls
        self._lost: set[str] = set()

    async def attend(
        self,
        url: str,
        upstream: _Upstream,
        work: Coroutine[Any, Any, None],
        *ends: Coroutine[Any, Any, None],
        repeats: bool,
    ) -> None:
        """Do something that waits for a broker, until it is done, or one of `ends` is.

        Args:
            repeats: end it, too, when the broker gives no sign of life.

        Raises:
            What the work raises. _Silence: there was no sign.
        """
        tasks = [asyncio.ensure_future(one) for one in (work, *ends)]
        try:
            while True:
                patience_s = self._patience_s(url) if repeats else None
                done, _ = await asyncio.wait(
                    tasks, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
                )
                if done:
                    break
                if await self._is_silent(url) and not any(task.done() for task in tasks):
                    upstream.abort()
                    raise _Silence
            if tasks[0].done():
                tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _patience_s(self, url: str) -> float:
        """How long an answer is waited for before the broker is asked."""
        return AGAIN_LOOK_SECONDS if url in self._lost else SILENT_SECONDS_MAX

    async def _is_silent(self, url: str) -> bool:
        """Ask whether its process answers at all. Whatever it answers is a sign of life."""
        seconds = AGAIN_SECONDS_MAX if url in self._lost else ANSWER_SECONDS_MAX
        try:
            async with asyncio.timeout(seconds):
                upstream = await _connect(url, self.tls)
                try:
                    await upstream.ask_for_a_sign()
                finally:
                    upstream.abort()
        except (OSError, TimeoutError):
            self._lost.add(url)
            return True
        self._lost.discard(url)
        return False


def _may_repeat(scope: Scope) -> bool:
    """Whether a request may be made twice, of which this broker knows the route by now."""
    path = getattr(scope.get("route"), "path", None)
    return (scope["method"], path) in REPEATED or any(n == NAMED for n, _ in scope["headers"])


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _Answer:
    """The answer on its way back."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send = send
        self.has_begun = False

    async def begin(self, status: int, headers: Headers) -> None:
        """Status and headers."""
        self.has_begun = True
        kept = [(name, value) for name, value in headers if name not in _OWN]
        await self._send({"type": "http.response.start", "status": status, "headers": kept})

    async def piece(self, content: bytes, *, more: bool) -> None:
        """A piece of the body."""
        await self._send({"type": "http.response.body", "body": content, "more_body": more})


async def _connect(url: str, tls: ssl.SSLContext | None) -> _Upstream:
    parts = urlsplit(url)
    secured = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
    port = parts.port or (443 if secured else 80)
    opening = asyncio.open_connection(parts.hostname, port, ssl=secured)
    reader, writer = await asyncio.wait_for(opening, CONNECT_S)
    return _Upstream(reader, writer, parts.netloc.rpartition("@")[2])


class _Upstream:
    """A connection to another broker, for one request."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str
    ) -> None:
        self._reader, self._writer, self._host = reader, writer, host
        self._protocol = h11.Connection(h11.CLIENT)

    async def ask(self, scope: Scope, body: AsyncIterator[bytes]) -> None:
        """Send the request."""
        headers: Headers = [(n, v) for n, v in scope["headers"] if n not in _OWN]
        names = {name for name, _ in scope["headers"]}
        if b"transfer-encoding" in names and b"content-length" not in names:
            headers.append((b"transfer-encoding", b"chunked"))
        if SIGNED in scope:
            headers += [(HOST, value) for name, value in scope["headers"] if name == b"host"]
        headers += [(b"host", self._host.encode()), (b"connection", b"close"), (FORWARDED, b"1")]
        target = scope.get("raw_path") or quote(scope["path"]).encode()
        if scope.get("query_string"):
            target += b"?" + scope["query_string"]
        self._write(h11.Request(method=scope["method"], target=target, headers=headers))
        async for piece in body:
            if piece:
                self._write(h11.Data(data=piece))
                await self._writer.drain()
        self._write(h11.EndOfMessage())
        await self._writer.drain()

    def _write(self, part: h11.Request | h11.Data | h11.EndOfMessage) -> None:
        content = self._protocol.send(part)
        if not content:
            return
        try:
            self._writer.write(content)
        except RuntimeError as closed:  # so uvloop says it
            raise ConnectionError("the connection ended in the middle of the request") from closed

    async def ask_for_a_sign(self) -> None:
        """Ask whether the process answers at all. Raises ConnectionError."""
        headers: Headers = [(b"host", self._host.encode()), (b"connection", b"close")]
        self._write(h11.Request(method="GET", target=b"/livez", headers=headers))
        self._write(h11.EndOfMessage())
        await self._writer.drain()
        if not await self._reader.read(1):
            raise ConnectionError("the connection ended before the answer")

    async def answer(self, answer: _Answer) -> None:
        """Give the answer back as it comes."""
        while True:
            part = self._protocol.next_event()
            if part is h11.NEED_DATA:
                read = self._reader.read(PIECE_BYTES)
                self._protocol.receive_data(await asyncio.wait_for(read, SILENCE_S))
            elif isinstance(part, h11.Response):
                await answer.begin(part.status_code, list(part.headers))
            elif isinstance(part, h11.Data):
                await answer.piece(bytes(part.data), more=True)
            elif isinstance(part, h11.EndOfMessage):
                await answer.piece(b"", more=False)
                return
            elif isinstance(part, h11.ConnectionClosed):
                raise ConnectionError("the connection ended before the answer")

    def abort(self) -> None:
        """End it, and say nothing: who is silent would be waited for."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """End it."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
