"""What brokers say to one another about topics and transactions, as Flight actions.

Room: flight. Knows addresses, no topics.
Holds: a broker that hangs keeps nobody waiting who speaks to another one; what is said carries the
cluster's own key, so that it needs no client's.
See: broker/topic/peers.py (the port); docs/guides/security.md.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow.flight as flight

from dejaqueue.errors import InternalError, Unavailable
from dejaqueue.flight.forwarding import Forwarding, Onward

ANSWER_SECONDS_MAX = 5.0
"""Then it is not known what came of it, and it is said again."""
SAID_AT_ONCE = 4


class FlightPeers:
    """The way to other brokers, by the connections that calls are passed on by.

    Args:
        key: the cluster's own; None = it is not known yet.
    """

    def __init__(self, forwarding: Forwarding, key: Callable[[], str | None]) -> None:
        self._forwarding, self._key = forwarding, key
        self._lock = threading.Lock()
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._closed = False

    def ask(self, url: str, action: str, body: dict[str, Any]) -> Future[dict[str, Any]]:
        """See Peers.ask."""
        with self._lock:
            if self._closed:
                failed: Future[dict[str, Any]] = Future()
                failed.set_exception(Unavailable("the broker is stopping", 1_000))
                return failed
            if url not in self._threads:
                self._threads[url] = ThreadPoolExecutor(SAID_AT_ONCE, "dejaq-peers")
            return self._threads[url].submit(self._ask, url, action, body)

    def _ask(self, url: str, action: str, body: dict[str, Any]) -> dict[str, Any]:
        content = body.get("content")
        sent = json.dumps({name: v for name, v in body.items() if name != "content"}).encode()
        asked = flight.Action(action, sent if content is None else b"\n".join((sent, content)))
        onward = Onward(url, self._key())
        [result] = self._forwarding.action(onward, asked, ANSWER_SECONDS_MAX)
        answer = json.loads(result.body.to_pybytes())
        if not isinstance(answer, dict):
            raise InternalError(f"{url} answered {action} with {answer!r:.100}")
        return answer

    def drop(self, url: str) -> None:
        """A broker is gone: nobody waits for it any more."""
        with self._lock:
            threads = self._threads.pop(url, None)
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Say nothing more; twice is fine. What was not said yet, the next owner says."""
        with self._lock:
            self._closed = True
            urls = list(self._threads)
        for url in urls:
            self.drop(url)
