"""The proxy that plays a network that fails, before a server that says back what it hears."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from dejaqueue.testing.cutting_proxy import CuttingProxy

WAIT_S = 10


class Echo:
    """A server that says back what it hears."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.heard: list[bytes] = []
        self.came = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(caller,), daemon=True).start()

    def _answer(self, caller: socket.socket) -> None:
        with caller:
            while content := caller.recv(1 << 16):
                with self.came:
                    self.heard.append(content)
                    self.came.notify_all()
                try:
                    caller.sendall(content)
                except OSError:
                    return

    def hears(self, content: bytes) -> bool:
        with self.came:
            return self.came.wait_for(lambda: content in self.heard, WAIT_S)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[CuttingProxy]:
    with CuttingProxy(echo.port) as made:
        yield made


def connected(proxy: CuttingProxy) -> socket.socket:
    return socket.create_connection(proxy.address, WAIT_S)


def ends(connection: socket.socket) -> bool:
    try:
        return connection.recv(10) == b""
    except ConnectionError:
        return True


def test_what_is_said_passes_until_it_is_cut(proxy: CuttingProxy) -> None:
    with connected(proxy) as connection:
        connection.sendall(b"one")
        assert connection.recv(10) == b"one"
        proxy.cut()
        assert ends(connection)
    with connected(proxy) as refused:
        assert ends(refused)
    proxy.mend()
    with connected(proxy) as again:
        again.sendall(b"two")
        assert again.recv(10) == b"two"


def test_an_answer_that_is_lost_was_asked_for(proxy: CuttingProxy, echo: Echo) -> None:
    proxy.lose_answers()
    with connected(proxy) as connection:
        connection.sendall(b"one")
        assert ends(connection)
    assert echo.hears(b"one")


def test_one_cut_is_one_cut(proxy: CuttingProxy, echo: Echo) -> None:
    proxy.cut_next("request")
    with connected(proxy) as connection:
        connection.sendall(b"one")
        assert ends(connection)
    assert echo.heard == []
    with connected(proxy) as again:
        again.sendall(b"two")
        assert again.recv(10) == b"two"
        proxy.cut_next("answer")
        again.sendall(b"three")
        assert ends(again)
    assert echo.hears(b"three")


def test_what_hangs_arrives_when_it_is_mended(proxy: CuttingProxy, echo: Echo) -> None:
    with connected(proxy) as connection:
        proxy.hang()
        connection.sendall(b"one")
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(10)
        assert echo.heard == []
        proxy.mend()
        connection.settimeout(WAIT_S)
        assert connection.recv(10) == b"one"


def test_a_delay_holds_every_piece_both_ways(proxy: CuttingProxy) -> None:
    with connected(proxy) as connection:
        proxy.delay(60)
        began = time.monotonic()
        connection.sendall(b"one")
        assert connection.recv(10) == b"one"
        assert time.monotonic() - began >= 0.12
        proxy.mend()
        connection.sendall(b"two")
        assert connection.recv(10) == b"two"


def test_the_server_sees_the_address_that_was_chosen(echo: Echo) -> None:
    with (
        CuttingProxy(("127.0.0.1", echo.port), source="127.0.0.77") as proxy,
        connected(proxy) as connection,
    ):
        connection.sendall(b"one")
        assert connection.recv(10) == b"one"
