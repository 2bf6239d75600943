"""A TCP proxy that cuts: in front of a real server, it plays the network that fails.

    with CuttingProxy(server_port) as proxy:
        connect(proxy.port)
        proxy.lose_answers()    # requests arrive, answers do not, then the connection ends
        proxy.mend()

Room: testing.
Holds: bytes that pass are never altered; what is lost is lost from some byte on to the end of the
connection, as with a real one.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from enum import Enum
from types import TracebackType


class Mode(Enum):
    """What happens to bytes."""

    PASS = "pass"
    LOSE_ANSWERS = "requests arrive; the connection ends where an answer would come"
    HANG = "nothing arrives anywhere, and nobody is told"
    CUT = "connections are ended and refused"


class CuttingProxy:
    """Forwards connections to a port of this machine, as long as it is let.

    Attributes:
        port: where it listens.
    """

    def __init__(self, target_port: int, host: str = "127.0.0.1") -> None:
        self._target = (host, target_port)
        self._mode = Mode.PASS
        self._lock = threading.Lock()
        self._passes = threading.Condition(self._lock)
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server((host, 0))
        self.port: int = self._listener.getsockname()[1]
        self._closed = False
        self._spawn(self._accept)

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def retarget(self, port: int) -> None:
        """New connections go to another port: the server came back there."""
        self._target = (self._target[0], port)

    def lose_answers(self) -> None:
        """Requests arrive from now on; where an answer would come, the connection ends."""
        self._become(Mode.LOSE_ANSWERS)

    def hang(self) -> None:
        """Bytes stay where they are from now on, until `mend`."""
        self._become(Mode.HANG)

    def cut(self) -> None:
        """End every connection and every new one, until `mend`."""
        self._become(Mode.CUT)
        self._end_all()

    def mend(self) -> None:
        """Pass everything again; connections that hung go on."""
        self._become(Mode.PASS)

    def close(self) -> None:
        """End everything."""
        self._closed = True
        self._become(Mode.CUT)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._end_all()
        for thread in list(self._threads):
            thread.join()

    def _become(self, mode: Mode) -> None:
        with self._passes:
            self._mode = mode
            self._passes.notify_all()

    def _spawn(self, run: object, *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _end_all(self) -> None:
        with self._lock:
            sockets = list(self._sockets)
        for one in sockets:
            _end(one)

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self._mode is Mode.CUT:
                    raise OSError("cut")
                server = socket.create_connection(self._target, timeout=5)
                server.settimeout(None)
            except OSError:
                caller.close()
                continue
            for one in (caller, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets |= {caller, server}
            self._spawn(self._carry, caller, server, False)
            self._spawn(self._carry, server, caller, True)

    def _carry(self, source: socket.socket, sink: socket.socket, are_answers: bool) -> None:
        try:
            while True:
                content = source.recv(1 << 16)
                with self._passes:
                    while self._mode is Mode.HANG:
                        self._passes.wait()
                    mode = self._mode
                if not content or mode is Mode.CUT:
                    break
                if are_answers and mode is Mode.LOSE_ANSWERS:
                    break
                sink.sendall(content)
        except OSError:
            pass  # the other end is gone: so is this one
        for one in (source, sink):
            _end(one)
        with self._lock:
            self._sockets -= {source, sink}


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    if one.fileno() != -1:
        one.close()
