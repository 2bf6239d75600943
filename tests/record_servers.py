"""Real servers for tests: on free ports, in a directory of their own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dejaqueue.cli.ports import free_port
from dejaqueue.clock import SystemClock, Wake
from dejaqueue.cluster.jetstream import JetStreamServer
from dejaqueue.cluster.jetstream_settings import Node, NodeTls
from tests.patience import PATIENCE_SECONDS


def wait_for_port(
    port: int,
    timeout_ms: int = PATIENCE_SECONDS * 1_000,
    is_ready: Callable[[socket.socket], bool] = lambda connection: True,
) -> None:
    """Wait until somebody listens, and is ready by what it answers."""
    clock = SystemClock()
    until_ms = clock.now_ms() + timeout_ms
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as connection:
                if is_ready(connection):
                    return
        except OSError:
            if clock.now_ms() > until_ms:
                raise
        assert clock.now_ms() <= until_ms, f"{port} is not ready"
        clock.wait_until(clock.now_us() + 20_000, Wake())


def _has_loaded(redis: socket.socket) -> bool:
    redis.sendall(b"PING\r\n")  # one with TLS answers something else, or nothing
    return not redis.recv(100).startswith(b"-LOADING")


class RedisServer:
    """A Redis or Valkey that keeps what it acknowledged."""

    def __init__(self, program: str, directory: Path, *settings: str) -> None:
        self._program, self._directory, self._settings = program, directory, settings
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        # Its title would be written over the environment, by which the reaper knows it.
        durable += ["--set-proc-title", "no"]
        place = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._directory)]
        with (self._directory / "log").open("ab") as file:
            self._process = subprocess.Popen(
                [self._program, *place, *durable, *self._settings], stdout=file, stderr=file
            )
        wait_for_port(self.port, is_ready=_has_loaded)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def redis_program() -> str:
    """Path of redis-server; the test is skipped where there is none."""
    found = shutil.which("redis-server")
    if found is None:
        pytest.skip("there is no redis-server")
    return found


SECRET = "a secret of tests"


class NatsServers:
    """One JetStream server or three, as they run beside brokers."""

    def __init__(self, directory: Path, count: int = 1, tls: NodeTls | None = None) -> None:
        names = ["abcde"[place] for place in range(count)]
        self.nodes = [Node(name, "127.0.0.1", free_port(), free_port()) for name in names]
        self.servers = {
            name: JetStreamServer(name, self.nodes, directory / name, secret=SECRET, tls=tls)
            for name in names
        }
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def start(self) -> None:
        for server in self.servers.values():
            server.start(wait=False)
        for server in self.servers.values():
            server.wait_until_ready()

    @property
    def url(self) -> str:
        return next(iter(self.servers.values())).url

    def kill(self, name: str) -> None:
        """Kill a server as hard as can be; it is started again by who watches it."""
        server = self.servers[name]
        pid = server.pid
        assert pid is not None
        os.kill(pid, 9)
        clock = SystemClock()
        while server.pid in {pid, None}:
            clock.wait_until(clock.now_us() + 20_000, Wake())

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()
