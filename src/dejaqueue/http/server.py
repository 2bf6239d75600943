"""The HTTP server: one thread with an event loop of its own, beside the broker's threads.

Room: http. uvicorn; decides nothing about messages.
Holds: the port is bound when the server is built; `stop` gives it back; twice is fine.
"""

from __future__ import annotations

import asyncio
import math
import socket
import threading
from concurrent.futures import Future
from typing import Any, Protocol

import uvicorn
import uvloop
from fastapi import FastAPI

from dejaqueue.access.tls import ServerTls
from dejaqueue.connections.extras import load
from dejaqueue.errors import DejaQError
from dejaqueue.flight.sharded import ShardedBrokers
from dejaqueue.http.app import build_app
from dejaqueue.http.bounds import Bounds
from dejaqueue.http.flow import Flow, flow_at
from dejaqueue.http.gather import call_soon
from dejaqueue.http.lane import Lanes
from dejaqueue.http.protocol import CLOSE_SECONDS, Connections, bounded
from dejaqueue.http.service import Service
from dejaqueue.http.short_lane import ShortLane, ShortLaneProtocol
from dejaqueue.wire.lane import LaneAddress

BACKLOG = 2_048
STOP_SECONDS_MAX = 5
"""Requests that are being answered have this long when the server stops."""


def uvicorn_config(
    app: FastAPI, connections: Connections | None = None, short_lane: ShortLane | None = None
) -> uvicorn.Config:
    """How an application is served.

    Args:
        connections: where they are kept; None = somewhere, with the usual bounds.
        short_lane: answers some requests past the application.
    """
    connections = connections or Connections(Bounds())
    http = bounded(connections)
    if short_lane is not None:
        http = bounded(connections, ShortLaneProtocol, short_lane=short_lane)
    return uvicorn.Config(
        app,
        http=http,
        timeout_keep_alive=math.ceil(connections.bounds.idle_seconds),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_SECONDS_MAX,
    )


class _Loop(uvloop.Loop):
    """An event loop whose servers end TLS handshakes that take too long: uvicorn does not ask."""

    def __init__(self, handshake_seconds: float) -> None:
        super().__init__()
        self._handshake_seconds = handshake_seconds

    async def create_server(self, *arguments: Any, **named: Any) -> Any:
        """As uvloop does."""
        if named.get("ssl") is not None:
            named["ssl_handshake_timeout"] = self._handshake_seconds
            named["ssl_shutdown_timeout"] = CLOSE_SECONDS
        return await super().create_server(*arguments, **named)


class _GrpcServer(Protocol):
    """DOQ's gRPC API (doq/door/server.py), which is not loaded unless it is wanted."""

    port: int

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def _grpc_server(
    service: Service, app: FastAPI, host: str, tls: ServerTls | None
) -> _GrpcServer | None:
    """The server of DOQ's gRPC API, if it is wanted. Raises BadRequest if its extra is missing."""
    settings = service.broker.settings.doq
    if not settings.enabled:
        return None
    for module in ("grpc", "google.protobuf"):
        load(module, "doq", "doq:")
    from dejaqueue.http.doq.door.calls import DoorState
    from dejaqueue.http.doq.door.server import GrpcServer

    shared = DoorState(service, app.state.doq, lambda: flow_at(app.state))
    return GrpcServer(shared, host, settings.port, tls)


class HttpServer:
    """Serves a broker over HTTP between `start` and `stop`.

    Attributes:
        port: where it listens; chosen by the system if 0 was asked for.
        connections: those that are open, and what happened to others.
    """

    def __init__(
        self,
        service: Service,
        host: str,
        port: int,
        bounds: Bounds | None = None,
        tls: ServerTls | None = None,
        shared: socket.socket | None = None,
    ) -> None:
        """Bind the port.

        Args:
            shared: listens already, in other processes, too: it is answered here as well.
            bounds: what connections may do; None = as the broker's settings say.
            tls: None = in plain text.

        Raises:
            OSError: the address cannot be bound.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self._sockets = [self._socket] if shared is None else [self._socket, shared]
        self.port: int = self._socket.getsockname()[1]
        bounds = bounds or Bounds.of(service.broker.settings.server)
        self.connections = Connections(bounds, service.broker.quotas)
        self._app = build_app(service)
        self._app.state.exposition.connections = self.connections
        self._broker = service.broker
        self.connections.lanes = self._lanes = Lanes(service.broker, service.gate)
        config = uvicorn_config(self._app, self.connections, self._app.short_lane)
        if tls is not None:
            config.load()
            config.ssl = tls.context
        self._server = uvicorn.Server(config)
        self._grpc = _grpc_server(service, self._app, host, tls)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started: Future[None] = Future()
        self._stops = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="dejaq-http", daemon=True)

    def _run(self) -> None:
        handshake_seconds = self.connections.bounds.head_seconds
        with asyncio.Runner(loop_factory=lambda: _Loop(handshake_seconds)) as runner:
            self._loop = runner.get_loop()
            runner.run(self._serve())

    async def _serve(self) -> None:
        if self._grpc is not None:
            try:
                await self._grpc.start()
            except DejaQError as error:
                self._started.set_exception(error)
                return
        self._started.set_result(None)
        ending = asyncio.create_task(self._end_grpc())
        await self._server.serve(sockets=self._sockets)
        self._stops.set()
        await ending

    async def _end_grpc(self) -> None:
        """Beside the HTTP server's own ending: both wait for their requests at the same time."""
        await self._stops.wait()
        if self._grpc is not None:
            await self._grpc.stop()

    @property
    def doq_port(self) -> int | None:
        """Where DOQ's gRPC API listens, once it is started; None = it is not served."""
        return None if self._grpc is None else self._grpc.port

    def _end_waits(self) -> None:
        """Those who wait for messages would wait for the rest of their time."""
        self._stops.set()
        flow: Flow | None = getattr(self._app.state, "flow", None)
        if flow is not None:
            flow.close()
        self._app.state.news.close()
        sharded: ShardedBrokers | None = getattr(self._app.state, "sharded", None)
        if sharded is not None:
            for flow in sharded.flows():
                flow.close()

    def start(self) -> None:
        """Begin to answer; connections that come before are kept by the system.

        Raises:
            BadRequest: the port of DOQ's gRPC API cannot be had.
        """
        self._thread.start()
        self._started.result()
        self._broker.lane = LaneAddress(self.port, self._lanes.name)

    def stop(self) -> None:
        """Finish what is being answered, then give the port back. Twice is fine."""
        self._broker.lane = None
        self._server.should_exit = True
        if self._loop is not None and self._thread.is_alive():
            call_soon(self._loop, self._end_waits)
        if self._thread.is_alive():
            self._thread.join()
        for one in self._sockets:
            one.close()
        if (sharded := getattr(self._app.state, "sharded", None)) is not None:
            sharded.close()
