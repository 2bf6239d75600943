"""A way to a server that can be cut at the worst moment: before a request, or before its answer.

    with CuttingProxy(server_port) as proxy:
        … connect to proxy.port …
        proxy.cut_next(answer=True)     the next request arrives, its answer does not

Room: testing; shipped, for whoever writes a backend.
Holds: a cut happens once, and closes that connection on both sides; others go on.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Final, Self

_CHUNK: Final = 1 << 16


class CuttingProxy:
    """Forwards connections to a port of 127.0.0.1.

    Attributes:
        port: where it listens.
        cuts: how often it has cut.
    """

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0
        self._armed: str | None = None
        self._guard = threading.Lock()
        self._sockets: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_next(self, *, answer: bool) -> None:
        """Cut the connection that has the next request: at its answer, or before it arrives."""
        with self._guard:
            self._armed = "answer" if answer else "request"

    def cut_all(self) -> None:
        """Cut every connection now."""
        with self._guard:
            sockets = list(self._sockets)
        for one in sockets:
            _end(one)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port), timeout=5)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._guard:
                self._sockets |= {client, server}
            asked = threading.Event()
            for source, target, is_request in ((client, server, True), (server, client, False)):
                arguments = (source, target, asked, is_request)
                threading.Thread(target=self._pump, args=arguments, daemon=True).start()

    def _pump(
        self, source: socket.socket, target: socket.socket, asked: threading.Event, is_request: bool
    ) -> None:
        """Forward one direction until it ends or is cut."""
        with contextlib.suppress(OSError):
            while True:
                chunk = source.recv(_CHUNK)
                if not chunk or self._cuts_here(asked, is_request):
                    break
                target.sendall(chunk)
        for one in (source, target):
            _end(one)
        with self._guard:
            self._sockets -= {source, target}

    def _cuts_here(self, asked: threading.Event, is_request: bool) -> bool:
        with self._guard:
            if is_request and self._armed == "request":
                self._armed = None
                self.cuts += 1
                return True
            if is_request and self._armed == "answer":
                self._armed = None
                asked.set()
            if not is_request and asked.is_set():
                self.cuts += 1
                return True
        return False

    def close(self) -> None:
        """End everything; twice is fine."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        one.close()
