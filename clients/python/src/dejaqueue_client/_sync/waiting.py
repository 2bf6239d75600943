"""How the synchronous client waits: the thread stands still.

Room: client. The counterpart of _aio/waiting.py: same names, same meaning.
Holds: what is started is a daemon: the end of a program waits for close_all alone.
"""

from __future__ import annotations

import atexit
import socket
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import httpx

from dejaqueue_client.errors import DejaQError

T = TypeVar("T")

Mutex = threading.Lock
Ongoing = threading.Thread
POLL_MS = 1_000
"""So long one request waits for messages: nobody can end the wait of a thread, so a drain takes a
second at most."""
EXIT_SECONDS_MAX = 5.0


class Http(httpx.Client):
    """One whose connections to a server can be closed while threads read from them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._sockets: dict[str, list[socket.socket]] = {}
        self._mutex = threading.Lock()

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Send a request. Raises httpx.RequestError."""
        request.extensions["trace"] = partial(self._note, _origin(request.url))
        return super().send(request, **options)

    def hang_up(self, url: str) -> None:
        """Close all connections to a server: a thread that waits for an answer there ends."""
        with self._mutex:
            found = self._sockets.pop(_origin(httpx.URL(url)), [])
        for one in found:
            with suppress(OSError):  # closed already, or TLS has taken it over
                # Not by SSLSocket.shutdown: it would have others write without TLS for a moment.
                socket.socket.shutdown(one, socket.SHUT_RDWR)

    def _note(self, origin: str, event: str, about: dict[str, Any]) -> None:
        """See https://www.encode.io/httpcore/extensions/#trace."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            found = about["return_value"].get_extra_info("socket")
            with self._mutex:
                others = [one for one in self._sockets.get(origin, []) if one.fileno() >= 0]
                self._sockets[origin] = [*others, found]


def _origin(url: httpx.URL) -> str:
    return f"{url.scheme}://{url.host}:{url.port}"


def close_http(http: httpx.Client) -> None:
    """Close its connections."""
    http.close()


def hang_up(http: Http, url: str) -> None:
    """Leave what was asked there, so that the server knows that nobody waits for the answer."""
    http.hang_up(url)


def pause(seconds: float) -> None:
    """Let time pass before a call is tried again."""
    # tidy: allow sleep, because nothing tells when a broker is there again
    time.sleep(seconds)


class Bell:
    """Wakes one thread that waits for it. Anybody may ring, from any thread."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def ring(self) -> None:
        """Wake who waits, or who will wait next."""
        self._event.set()

    def ring_anywhere(self) -> None:
        """As `ring`; from a signal's handler, too, whose thread may hold the event's lock."""
        with suppress(RuntimeError):  # the program ends, and who waits with it
            threading.Thread(target=self._event.set, name="dejaq-leases", daemon=True).start()

    def wait(self, seconds: float | None = None) -> None:
        """Return when it rings, or after so long."""
        self._event.wait(seconds)
        self._event.clear()


def start(call: Callable[..., None], *args: Any) -> threading.Thread:
    """Have a call go on beside the caller."""
    thread = threading.Thread(target=call, args=args, name="dejaq-leases", daemon=True)
    thread.start()
    return thread


def join(ongoing: threading.Thread) -> None:
    """Return when what was started has ended."""
    if ongoing is not threading.current_thread():
        ongoing.join()


_OPEN: weakref.WeakSet[Any] = weakref.WeakSet()


def close_at_exit(leases: Any) -> None:
    """Close them when the program ends, if they are still open: acks that wait are sent."""
    _OPEN.add(leases)


def close_all() -> None:
    """Close what is open. Waits EXIT_SECONDS_MAX at most."""
    closers = [start(_close, leases) for leases in list(_OPEN)]
    until_s = time.monotonic() + EXIT_SECONDS_MAX
    for closer in closers:
        closer.join(max(0.0, until_s - time.monotonic()))


def _close(leases: Any) -> None:
    with suppress(DejaQError):
        leases.close()


atexit.register(close_all)


def unless(_bell: Bell, call: Callable[..., T], *args: Any) -> T | None:
    """The result of a call. A thread cannot be called away: the call takes POLL_MS at most."""
    return call(*args)


def unless_silent(
    call: Callable[[], T], patience: Callable[[], float], is_silent: Callable[[], bool]
) -> T | None:
    """The result of a call; None = it was left, as whoever is to answer gave no sign of life.

    Nobody can break off a thread that reads, so the call has one of its own, which ends with its
    connection or its timeout.

    Args:
        patience: how long to wait before that one is asked, seconds; each time anew.
        is_silent: asks.
    """
    answer: Future[T] = Future()

    def calling() -> None:
        try:
            answer.set_result(call())
        except BaseException as wrong:  # noqa: BLE001 - who waits gets it
            answer.set_exception(wrong)

    try:
        threading.Thread(target=calling, name="dejaq-request", daemon=True).start()
    except RuntimeError:  # the program ends, or there are too many
        return call()
    while not _ended(answer, patience()):
        if is_silent() and not answer.done():
            return None
    return answer.result()


def _ended(answer: Future[T], seconds: float) -> bool:
    return answer in wait([answer], seconds).done


class Pool:
    """Calls that work at the same time on threads of their own, `concurrency` of them at most."""

    def __init__(self, concurrency: int) -> None:
        self._places = threading.Semaphore(concurrency)
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="dejaq-work")

    def place(self) -> None:
        """Return when one more may start."""
        self._places.acquire()

    def start(self, call: Callable[..., None], *args: Any) -> None:
        """Start one in the place that `place` gave."""
        self._threads.submit(call, *args).add_done_callback(self._ended)

    def _ended(self, _call: Future[None]) -> None:
        self._places.release()

    def cancel(self) -> None:
        """A thread cannot be ended: `join` waits for those that work."""

    def join(self) -> None:
        """Return when none works any more."""
        self._threads.shutdown(wait=True)
