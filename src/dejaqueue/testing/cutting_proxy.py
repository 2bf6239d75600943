"""A TCP proxy that cuts, delays and loses: before a real server, it plays the network that fails.

    with CuttingProxy(server_port) as proxy:
        connect(proxy.port)
        proxy.cut_next("answer")  # once: the request arrives, its answer does not
        proxy.lose_answers()      # requests arrive, answers do not, then the connection ends
        proxy.delay(50)           # every piece takes so many milliseconds longer
        proxy.mend()

Room: testing; shipped, for whoever writes a backend that speaks to a server.
Holds: bytes that pass are never altered; what is lost is lost from some byte on to the end of the
connection, as with a real one. One thread for each direction of each connection; all end with
`close`.
See: record_conformance.py, coordinator_conformance.py.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from enum import Enum
from types import TracebackType
from typing import Literal

Cut = Literal["", "request", "answer"]


class Mode(Enum):
    """What happens to bytes."""

    PASS = "pass"
    LOSE_ANSWERS = "requests arrive; the connection ends where an answer would come"
    HANG = "nothing arrives anywhere, and nobody is told"
    CUT = "connections are ended and refused"


class CuttingProxy:
    """Passes connections on to a server, as long as it is let.

    Args:
        target: (host, port) of the server, or its port on this machine.
        listen: where to listen; port 0 = any.
        source: address that the server sees it come from; "" = as the system chooses.

    Attributes:
        address: (host, port) to connect to instead of the server's.
        port: of it.
    """

    def __init__(
        self,
        target: int | tuple[str, int],
        *,
        listen: tuple[str, int] = ("127.0.0.1", 0),
        source: str = "",
    ) -> None:
        self._target = ("127.0.0.1", target) if isinstance(target, int) else target
        self._source = (source, 0) if source else None
        self._mode = Mode.PASS
        self._cut_next: Cut = ""
        self._delay_ms = 0
        self._passes = threading.Condition()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(listen)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self.port = self.address[1]
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

    def cut_next(self, where: Cut) -> None:
        """Cut all connections once: "request" = before the next request reaches the server,
        "answer" = after the server's next answer, which is not passed on."""
        with self._passes:
            self._cut_next = where

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

    def delay(self, delay_ms: int) -> None:
        """Hold every piece for so long, each way, until `mend`; what comes meanwhile waits too."""
        with self._passes:
            self._delay_ms = delay_ms
            self._passes.notify_all()

    def mend(self) -> None:
        """Pass everything again, at once; connections that hung go on."""
        with self._passes:
            self._delay_ms, self._cut_next = 0, ""
        self._become(Mode.PASS)

    def close(self) -> None:
        """End everything; twice is fine."""
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

    def _spawn(self, run: object, *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads = [one for one in self._threads if one.is_alive()]
        self._threads.append(thread)
        thread.start()

    def _end_all(self) -> None:
        with self._passes:
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
                server = socket.create_connection(self._target, 5, self._source)
                server.settimeout(None)
            except OSError:
                caller.close()
                continue
            for one in (caller, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._passes:
                self._sockets |= {caller, server}
            self._spawn(self._carry, caller, server, "request")
            self._spawn(self._carry, server, caller, "answer")

    def _carry(self, source: socket.socket, sink: socket.socket, what: Cut) -> None:
        try:
            while content := source.recv(1 << 16):
                if not self._may_pass(what):
                    break
                sink.sendall(content)
        except OSError:
            pass  # the other end is gone: so is this one
        for one in (source, sink):
            _end(one)
        with self._passes:
            self._sockets -= {source, sink}

    def _may_pass(self, what: Cut) -> bool:
        """Wait as long as bytes are held; False = they are lost, and the connection ends."""
        with self._passes:
            if self._cut_next == what:
                self._cut_next = ""
                cut_now = True
            else:
                cut_now = False
                if self._delay_ms:
                    self._passes.wait_for(lambda: not self._delay_ms, self._delay_ms / 1_000)
                self._passes.wait_for(lambda: self._mode is not Mode.HANG)
            mode = self._mode
        if cut_now:
            self._end_all()
            return False
        return mode is Mode.PASS or (mode is Mode.LOSE_ANSWERS and what == "request")


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    if one.fileno() != -1:
        one.close()
