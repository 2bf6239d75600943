"""The server of DOQ's gRPC API: finds out who calls, and answers.

Room: http. grpcio's asyncio server, on the event loop of the HTTP server.
Holds: every call passes `_caller`, unknown ones too, before anything of it is read; a stream ends
when its caller's key does; whoever waits is told when the broker stops.
See: calls.py, streams.py; access/gate.py; ADR 49 for why not a thread for each stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from grpc import aio

from dejaqueue import limits
from dejaqueue.access import audit
from dejaqueue.access.gate import only_bearer_of
from dejaqueue.access.quotas import host_of
from dejaqueue.access.tls import ServerTls
from dejaqueue.errors import BadRequest, DejaQError, NotAllowed
from dejaqueue.http.doq.door import streams
from dejaqueue.http.doq.door.calls import CALLS, Call, Caller, DoorState, Fields
from dejaqueue.http.doq.door.protocol import SERVICE, WireCall, load_calls
from dejaqueue.http.doq.door.statuses import ours, status_of
from dejaqueue.http.gather import call_soon, stopping

log = logging.getLogger("dejaqueue.doq")

STREAMS = {"EnqueueStream": streams.enqueue_stream, "DequeueStream": streams.dequeue_stream}
CALLS_MAX = 10_000
"""Calls and streams that are open, of all connections; gRPC refuses more."""
GRACE_SECONDS = 2.0
"""What is being answered has so long when the server stops."""
METADATA_BYTES_MAX = 16 << 10
MESSAGE_BYTES_MAX = limits.PAYLOAD_BYTES_MAX + (64 << 10)
"""Of one request: the largest payload that a topic may allow, and what is beside it."""
Context = Any  # grpcio says nothing of its types


class GrpcServer:
    """Serves DOQ's gRPC API between `start` and `stop`, both on the event loop.

    Attributes:
        port: where it listens; 0 = not yet.
    """

    def __init__(self, shared: DoorState, host: str, port: int, tls: ServerTls | None) -> None:
        self._shared = shared
        self._host = host
        self._asked_port = port
        self._tls = tls
        self._methods = load_calls()
        self._server: Any = None
        self._open: set[_OpenStream] = set()
        self._is_stopping = False
        self.port = 0

    async def start(self) -> None:
        """Open the port. Raises BadRequest."""
        head_ms = self._shared.service.broker.settings.server.http_head_ms_max
        self._server = aio.server(
            handlers=[self._handlers()],
            options=[
                ("grpc.so_reuseport", 0),  # else two brokers would share the port in silence
                ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
                ("grpc.max_metadata_size", METADATA_BYTES_MAX),
                ("grpc.server_handshake_timeout_ms", head_ms),
            ],
            maximum_concurrent_rpcs=CALLS_MAX,
        )
        host = f"[{self._host}]" if ":" in self._host else self._host
        address = f"{host}:{self._asked_port}"
        try:
            if self._tls is None:
                self.port = self._server.add_insecure_port(address)
            else:
                self.port = self._server.add_secure_port(address, credentials(self._tls))
        except RuntimeError as error:
            raise BadRequest(
                "doq.port", f"a free port of {self._host}", self._asked_port
            ) from error
        await self._server.start()

    async def stop(self) -> None:
        """Tell who waits, finish what is being answered, close the port. Twice is fine."""
        self._is_stopping = True
        for stream in list(self._open):
            stream.end(stopping())
        if self._server is not None:
            await self._server.stop(GRACE_SECONDS)

    # --- who calls ------------------------------------------------------------------------------

    def _caller(self, context: Context, name: str) -> Caller:
        """Who makes a call. Raises Unauthenticated, Unavailable."""
        service = self._shared.service
        peer = str(context.peer())
        sent = [value for key, value in context.invocation_metadata() if key == "authorization"]
        try:
            bearer = only_bearer_of(sent)
            principal = service.gate.principal(bearer, _certificate(context))
        except NotAllowed as refused:
            audit.refused(audit.NOBODY, peer, f"{SERVICE}/{name}", "", refused)
            raise
        account = service.broker.quotas.of(principal, host_of(peer))
        return Caller(principal, peer, bearer, account)

    # --- calls ----------------------------------------------------------------------------------

    def _handlers(self) -> Any:
        handlers = {}
        for name, method in self._methods.items():
            if method.is_stream:
                handlers[name] = grpc.stream_stream_rpc_method_handler(self._streaming(method))
            else:
                handlers[name] = grpc.unary_unary_rpc_method_handler(self._answering(method))
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _answering(self, method: WireCall) -> Callable[[bytes, Context], Awaitable[bytes]]:
        call = CALLS[method.name]

        async def answer(content: bytes, context: Context) -> bytes:
            try:
                caller = self._caller(context, method.name)
                fields = await self._do(call, method, caller, content)
                return bytes(method.response(**fields).SerializeToString())
            except Exception as error:
                await _refuse(context, error)
                raise AssertionError("abort returned") from error

        return answer

    async def _do(self, call: Call, method: WireCall, caller: Caller, content: bytes) -> Fields:
        asked = method.parsed(content)
        named = str(getattr(asked, call.field)) if call.field else ""
        action = f"{SERVICE}/{method.name}"
        name = caller.principal.name
        with audit.recorded(name, caller.peer, action, named, always=call.is_audited):
            call.require(caller.principal, asked)
            return await call.function(self._shared, caller, asked)

    def _streaming(
        self, method: WireCall
    ) -> Callable[[AsyncIterator[bytes], Context], Awaitable[None]]:
        function = STREAMS[method.name]

        async def stream(contents: AsyncIterator[bytes], context: Context) -> None:
            try:
                caller = self._caller(context, method.name)
                await self._pass_on(function, method, caller, contents, context)
            except Exception as error:  # noqa: BLE001 - our bug too, and somebody waits
                await _refuse(context, error)

        return stream

    async def _pass_on(
        self,
        function: Callable[[DoorState, Caller, AsyncIterator[Any]], AsyncIterator[Fields]],
        method: WireCall,
        caller: Caller,
        contents: AsyncIterator[bytes],
        context: Context,
    ) -> None:
        """Answers to a stream, until it ends, or its caller's key does, or the broker stops."""
        wait_ms = caller.account.enter_stream()
        opened = _OpenStream()
        self._open.add(opened)
        action = f"{SERVICE}/{method.name}"
        try:
            with (
                self._shared.service.gate.admit(caller.principal, opened.end),
                audit.recorded(caller.principal.name, caller.peer, action, ""),
                opened,
            ):
                if self._is_stopping:
                    raise stopping()
                # tidy: allow sleep, because who opens streams too fast waits for nothing else
                await asyncio.sleep(wait_ms / 1_000)

                async def asked() -> AsyncIterator[Any]:
                    async for content in contents:
                        yield method.parsed(content)

                async for fields in function(self._shared, caller, asked()):
                    content = method.response(**fields).SerializeToString()
                    await opened.write(context, content)
        finally:
            self._open.discard(opened)
            caller.account.leave_stream()


class _OpenStream:
    """A stream that can be ended from outside: with an error, which its client is told.

    An answer that is being written is written first: grpcio would forget that it has sent the
    headers already, send them again with the status, and the client would never hear of that.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._error: DejaQError | None = None
        self._is_writing = False

    async def write(self, context: Context, content: bytes) -> None:
        """Send an answer. Raises what the stream was ended with meanwhile."""
        self._is_writing = True
        await context.write(content)
        self._is_writing = False
        if self._error is not None:
            raise self._error

    def end(self, error: DejaQError) -> None:
        """End it. Any thread; twice is fine."""
        call_soon(self._loop, self._end, error)

    def _end(self, error: DejaQError) -> None:
        if self._error is None and self._task is not None:
            self._error = error
            if not self._is_writing:
                self._task.cancel()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self_ended, task, self._task = self._error, self._task, None
        if isinstance(error, asyncio.CancelledError) and self_ended is not None:
            assert task is not None
            task.uncancel()
            raise self_ended


def _certificate(context: Context) -> str:
    """The name in the certificate that the caller has shown; "" = none was."""
    shown = context.auth_context()
    for kind in ("x509_subject_alternative_name", "x509_common_name"):
        for name in shown.get(kind, ()):
            return str(name.decode("utf-8", "replace"))
    return ""


async def _refuse(context: Context, error: Exception) -> None:
    """End a call with the status of an error."""
    if isinstance(error, aio.AbortError):
        raise error
    code, text, more = status_of(ours(error))
    await context.abort(code, text, more)


def credentials(tls: ServerTls) -> Any:
    """What the server shows: the newest files at each handshake."""
    seen: list[tuple[bytes, bytes, bytes | None]] = []

    def configuration() -> Any:
        current = (tls.key, tls.certificate, tls.client_ca)
        if seen == [current]:
            return None  # as before
        seen[:] = [current]
        return grpc.ssl_server_certificate_configuration([current[:2]], current[2])

    return grpc.dynamic_ssl_server_credentials(
        configuration(), configuration, require_client_authentication=tls.client_ca is not None
    )
