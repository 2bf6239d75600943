"""Covers: requests to an object store: what is stored and read, what is no answer, connections that
are used again, are new, or are broken off.

Not covered: parts and their URLs (test_direct_transfer.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import SplitResult, urlsplit

import pytest

from dejaqueue.client.store_connections import StoreConnections
from dejaqueue.errors import Unavailable
from tests.patience import PATIENCE_SECONDS, until

HERE = "127.0.0.1"


class Store:
    """An object store on this machine.

    Attributes:
        objects: by their path.
        connections: how many there were.
        headers: of the last request.
        closes: it closes each connection after its answer, and says nothing of it.
        hold: answers wait for it.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.headers: dict[str, str] = {}
        self.connections = 0
        self.closes = False
        self.status = 200
        self.begun = threading.Semaphore(0)
        self.hold = threading.Event()
        self.hold.set()
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                store.connections += 1
                super().setup()

            def _answer(self, body: bytes) -> None:
                store.headers = dict(self.headers.items())
                store.begun.release()
                store.hold.wait(PATIENCE_SECONDS)
                self.send_response(store.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = store.closes

            def do_PUT(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                store.objects[self.path] = content
                self._answer(b"")

            def do_GET(self) -> None:
                self._answer(store.objects.get(self.path, b""))

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer((HERE, 0), Handler)
        self.server.daemon_threads = True
        self.port = int(self.server.server_address[1])
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self.hold.set()
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@contextmanager
def running() -> Iterator[Store]:
    made = Store()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def store() -> Iterator[Store]:
    with running() as made:
        yield made


@pytest.fixture
def connections() -> Iterator[StoreConnections]:
    made = StoreConnections()
    yield made
    for _ in range(2):
        made.break_off()
        made.close()


def url_of(store: Store, name: str) -> SplitResult:
    return urlsplit(f"http://{HERE}:{store.port}/{name}?signed")


def test_one_connection_does_one_request_after_the_other(
    store: Store, connections: StoreConnections
) -> None:
    connections.put(url_of(store, "a"), {"X-Wanted": "yes"}, b"of a")
    assert (store.objects, store.headers["X-Wanted"]) == ({"/a?signed": b"of a"}, "yes")
    assert connections.get(url_of(store, "a"), {}, 4) == b"of a"
    with pytest.raises(Unavailable, match=f"GET at the payload store at {HERE}.* 200, 4 bytes"):
        connections.get(url_of(store, "a"), {}, 3)
    assert connections.get(url_of(store, "a"), {}, 4) == b"of a"
    assert store.connections == 2, "what was not read is on the first one"


def test_a_connection_that_the_store_closed_is_made_anew(
    store: Store, connections: StoreConnections
) -> None:
    store.closes = True
    for number in range(3):
        connections.put(url_of(store, str(number)), {}, b"x")
    assert (len(store.objects), store.connections) == (3, 3)


def test_who_waits_for_an_answer_is_broken_off(store: Store, connections: StoreConnections) -> None:
    store.hold.clear()
    told: list[Unavailable] = []

    def put() -> None:
        try:
            connections.put(url_of(store, "a"), {}, b"x")
        except Unavailable as wrong:
            told.append(wrong)

    thread = threading.Thread(target=put)
    thread.start()
    assert store.begun.acquire(timeout=PATIENCE_SECONDS)
    connections.break_off()
    thread.join(PATIENCE_SECONDS)
    assert len(told) == 1
    until(lambda: not connections._in_use)
    with pytest.raises(Unavailable, match="the transfer was closed"):
        connections.get(url_of(store, "a"), {}, 1)
