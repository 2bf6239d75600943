"""Covers: closing a connection that is just being made anew. All else: tests/conformance."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.connections.nats.url import read_url
from tests.record_servers import NatsServers


def test_who_comes_back_while_it_is_closed_is_closed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = NatsServers(tmp_path)
    try:
        connection = NatsConnection(read_url(servers.url))
        connects, made = connection._connect_one, threading.Event()
        clients: list[Any] = []

        async def connect(client: Any, server: str) -> None:
            await connects(client, server)
            clients.append(client)
            made.set()
            while not connection._closing:
                await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0.01)

        monkeypatch.setattr(connection, "_connect_one", connect)
        first = connection._client
        connection._loop.call_soon_threadsafe(first._transport._io_writer.transport.abort)
        assert made.wait(20)
        connection.close()
        assert [client.is_closed for client in (first, *clients)] == [True, True]
    finally:
        servers.stop()
