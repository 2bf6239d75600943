"""Which queues an exchange leads to: a topic whose messages are bindings and are never delivered.

A binding is one message. Of a queue that stays it is due at the end of time; of one that lives with
its consumer (remote control, events, replies) it is due within a minute, and is moved on by that
consumer for as long as it lives. One whose time has come belonged to a process that died: whoever
reads the table next removes it, with its queue's topic.

Room: celery.
Holds: a binding made elsewhere is seen within ROUTES_MS, and at once where there was none, or
the exchange is a fanout.
See: channel.py, which asks; docs/adr/0041-bindings-are-messages.md.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from dejaqueue.celery.link import Link, log
from dejaqueue.celery.names import topic_of
from dejaqueue.errors import DejaQError, TopicUnknown
from dejaqueue.limits import INSTANT_MS_MAX

ROUTES_MS = 1_000
"""How old the copy of the table may be."""
LIFE_MS = 60_000
"""How long a queue lives that nobody consumes any more, if it lives with its consumer."""
SETTINGS = {"on_duplicate": "keep"}


class Route(NamedTuple):
    """A binding.

    Attributes:
        exchange: "" = the one that knows every queue by its name.
        lasting: False = the queue lives with its consumer.
    """

    exchange: str
    routing_key: str
    queue: str
    lasting: bool

    @property
    def key(self) -> str:
        """What names it among the messages of the table."""
        name = json.dumps([self.exchange, self.routing_key, self.queue])
        return hashlib.sha256(name.encode()).hexdigest()


class Routes:
    """The table of a broker, as this process knows it."""

    def __init__(self, link: Link, topic: str) -> None:
        self._link = link
        self._topic = topic
        self._known: set[Route] = set()
        self._passing: set[str] = set()  # queues that live with their consumer
        self._read_at = float("-inf")
        self._mutex = threading.Lock()
        self._kept: dict[str, list[Route]] = {}
        self._keeper: threading.Thread | None = None
        self._stop = threading.Event()

    def add(self, route: Route) -> None:
        """Put a binding into the table, durably."""
        if route in self._known:
            return
        payload = json.dumps(route[:4]).encode()
        due_ms = INSTANT_MS_MAX if route.lasting else None
        self._with_topic(lambda: self._link.put(self._topic, route.key, payload, due_ms, LIFE_MS))
        if not route.lasting:  # one that was there already may have little time left
            self._link.renew(self._topic, [route.key], LIFE_MS)
        self._known.add(route)
        if not route.lasting:
            self._passing.add(route.queue)

    def _with_topic(self, call: Callable[[], object]) -> None:
        try:
            call()
        except TopicUnknown:
            self._link.declare(self._topic, SETTINGS)
            call()

    def remove(self, queue: str) -> None:
        """Take all bindings of a queue out of the table."""
        self.read(0)
        gone = [route for route in self._known if route.queue == queue]
        self._known.difference_update(gone)
        self._kept.pop(queue, None)
        if gone:
            self._link.cancel(self._topic, [route.key for route in gone])

    def unbind(self, route: Route) -> None:
        """Take one binding out of the table."""
        self._known.discard(route)
        self._with_topic(lambda: self._link.cancel(self._topic, [route.key]))

    def of(self, exchange: str, age_ms: int = ROUTES_MS) -> list[Route]:
        """The bindings of an exchange."""
        self.read(age_ms)
        return [route for route in self._known if route.exchange == exchange]

    def is_lasting(self, queue: str) -> bool:
        """False = the queue is known to live with its consumer."""
        return queue not in self._passing

    def lasting_queues(self) -> set[str]:
        """All queues that stay."""
        self.read(0)
        return {route.queue for route in self._known if route.lasting}

    def read(self, age_ms: int) -> None:
        """Read the table, if what is known is older."""
        now = time.monotonic()
        if now - self._read_at < age_ms / 1_000:
            return
        try:
            rows = self._link.rows(self._topic)
        except TopicUnknown:
            rows = []
        known: set[Route] = set()
        for key, due_ms, is_over, payload in rows:
            route = Route(*json.loads(payload))
            if is_over and not route.lasting and route.queue not in self._kept:
                self._bury(route, key, due_ms)
            else:
                known.add(route)
        self._known, self._read_at = known, now
        self._passing = {route.queue for route in known if not route.lasting}

    def _bury(self, route: Route, key: str, due_ms: int) -> None:
        """Remove what a dead process left, unless somebody has just renewed it."""
        if self._link.cancel(self._topic, [key], due_ms):
            log.debug("queue %s had no consumer any more and is deleted", route.queue)
            self._link.delete(topic_of(route.queue))

    # --- queues that live with their consumer --------------------------------------------------

    def keep(self, queue: str) -> None:
        """A queue has a consumer in this process."""
        mine = [route for route in self._known if route.queue == queue and not route.lasting]
        if not mine:
            return
        with self._mutex:
            self._kept[queue] = mine
            if self._keeper is None:
                self._keeper = threading.Thread(
                    target=self._renew, name="dejaq-routes", daemon=True
                )
                self._keeper.start()

    def _renew(self) -> None:
        while not self._stop.wait(LIFE_MS / 3_000):
            with self._mutex:
                routes = [route for kept in self._kept.values() for route in kept]
            if not routes:
                continue
            try:
                found = self._link.renew(self._topic, [route.key for route in routes], LIFE_MS)
                for route, is_there in zip(routes, found, strict=True):
                    if not is_there and route.queue in self._kept:
                        self._known.discard(route)
                        self.add(route)
            except DejaQError as error:
                log.debug("bindings were not renewed: %s", error)

    def release(self, queue: str) -> None:
        """A queue has no consumer in this process any more."""
        with self._mutex:
            self._kept.pop(queue, None)

    def close(self) -> None:
        """Renew no more."""
        self._stop.set()
