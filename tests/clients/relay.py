"""A connection between client and broker that can be cut, and can lose what the broker says."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from tests.patience import PATIENCE_SECONDS


class Relay:
    """Passes bytes on between a port of its own and a broker's.

    Attributes:
        port: where clients connect.
        target: the broker's port.
        mute: True = what the broker sends is lost.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.mute = False
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target), timeout=PATIENCE_SECONDS)
            except OSError:
                near.close()
                continue
            self._open += [near, far]
            for source, sink, answers in ((near, far, False), (far, near, True)):
                passing = (source, sink, answers)
                threading.Thread(target=self._pass, args=passing, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            source.settimeout(None)
            while content := source.recv(1 << 16):
                if not (answers and self.mute):
                    sink.sendall(content)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        """Break every connection that is open; new ones are taken."""
        ended, self._open = self._open, []
        for connection in ended:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def close(self) -> None:
        """End."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE_SECONDS)
        self.cut()
