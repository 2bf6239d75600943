"""A proxy that cuts connections where it hurts: after a request came, before its answer does.

Room: testing; shipped, for whoever writes a backend that speaks to a server.
Holds: one thread for each direction of each connection; all end with `close`.
See: record_conformance.py.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Literal

Cut = Literal["", "request", "answer"]


class CutProxy:
    """Passes everything on to a server, until it is told to cut.

    Attributes:
        address: (host, port) to connect to instead of the server's.
    """

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()[:2]
        self._guard = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._cut: Cut = ""
        self._away = self._closed = False
        self._start(self._accept)

    def _start(self, run: object, *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def cut_next(self, where: Cut) -> None:
        """Cut all connections once: "request" = before the next request reaches the server,
        "answer" = after the server's next answer, which is not passed on."""
        with self._guard:
            self._cut = where

    def go_away(self) -> None:
        """Cut everything and let nobody in until `come_back`."""
        self._away = True
        self._cut_all()

    def come_back(self) -> None:
        """Let everybody in again."""
        self._away = False

    def close(self) -> None:
        """Cut everything and end; twice is fine."""
        self._closed = self._away = True
        # A thread that waits in accept is woken by a last connection.
        with suppress(OSError):
            socket.create_connection(self.address, 1).close()
        self._listening.close()
        self._cut_all()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self._away:
                client.close()
                continue
            try:
                server = socket.create_connection(self._server, 5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._guard:
                self._open |= {client, server}
            self._start(self._pass, client, server, "request")
            self._start(self._pass, server, client, "answer")

    def _pass(self, source: socket.socket, sink: socket.socket, what: Cut) -> None:
        try:
            while chunk := source.recv(1 << 16):
                with self._guard:
                    cut = self._cut == what
                    if cut:
                        self._cut = ""
                if cut:
                    self._cut_all()
                    return
                sink.sendall(chunk)
        except OSError:
            pass
        finally:
            self._drop(source, sink)

    def _cut_all(self) -> None:
        with self._guard:
            every = list(self._open)
        self._drop(*every)

    def _drop(self, *sockets: socket.socket) -> None:
        with self._guard:
            self._open.difference_update(sockets)
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def __enter__(self) -> CutProxy:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()
