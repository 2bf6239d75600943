"""Facts of the parent process, over a socket that this one has of it: `inherited:NUMBER`.

Room: coordinator, one backend.
Holds: duties 1 to 6. A parent that has ended is away for ever, and is heard of at once.
See: facts_server.py, the other end and what goes over the wire.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from multiprocessing.connection import Connection
from typing import Any

from dejaqueue.coordinator.bells import Bells, check_fact, check_key, check_prefix
from dejaqueue.coordinator.interface import Conflict, Coordinator, Fact, Watch
from dejaqueue.errors import BadRequest, Unavailable

ANSWER_S = 3.0
"""A parent that does not answer for so long is stopped, or its machine is."""


def open_url(url: str) -> ParentCoordinator:
    """The facts behind `inherited:NUMBER`. Raises BadRequest."""
    number = url.partition(":")[2]
    try:
        handle = int(number)
        os.set_inheritable(handle, False)
    except (ValueError, OSError):
        limit = "number of a socket that the parent process gave this one"
        raise BadRequest("coordinator", limit, url) from None
    return ParentCoordinator(Connection(handle))


class ParentCoordinator(Coordinator):
    """The facts of the parent process."""

    summary = "the parent process"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bells = Bells()
        self._guard = threading.Lock()
        """Held while something is sent, and over what is waited for."""
        self._waiting: dict[int, Future[Any]] = {}
        self._number = 0
        self._has_ended = self._closed = False
        self._rung: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._on_end: Callable[[], None] = lambda: None
        for work in (self._hear, self._ring):
            threading.Thread(target=work, name="dejaq-facts", daemon=True).start()

    def get(self, key: str) -> Fact | None:
        """A fact, None if it is not there. Raises Unavailable."""
        found = self._ask("get", check_key(key))
        return None if found is None else _fact(found)

    def list(self, prefix: str) -> list[Fact]:
        """The facts whose keys begin so, sorted by key. Raises Unavailable."""
        return [_fact(found) for found in self._ask("list", check_prefix(prefix))]

    def put(
        self, key: str, value: bytes, revision: int | None = None, *, ttl_ms: int | None = None
    ) -> int:
        """Store a fact; return its new revision. Raises Conflict, Unavailable."""
        check_fact(key, value, revision, ttl_ms)
        return int(self._ask("put", key, base64.b64encode(value).decode(), revision, ttl_ms))

    def renew(self, key: str) -> bool:
        """Keep a fact that this process put with a ttl; False if it is there no more."""
        return bool(self._ask("renew", check_key(key)))

    def delete(self, key: str, revision: int | None = None) -> bool:
        """Delete a fact; False if it was not there. Raises Conflict, Unavailable."""
        return bool(self._ask("delete", check_key(key), revision))

    def watch(self, prefix: str, bell: Callable[[], None]) -> Watch:
        """Ring the bell, on a thread of its own, after changes below the prefix."""
        watch = self._bells.add(prefix, bell)
        self._ask("watch", prefix)
        return watch

    def close(self) -> None:
        """Stop watching; facts with a ttl are left to vanish. The connection stays: it says that
        the parent lives, as long as this process does."""
        self._closed = True
        self._bells.close()

    def when_ended(self, call: Callable[[], None]) -> None:
        """What to do when the parent has ended the connection, or itself; at once if it has."""
        with self._guard:
            self._on_end = call
            has_ended = self._has_ended
        if has_ended:
            call()

    # --- the connection -------------------------------------------------------------------------

    def _ask(self, call: str, *arguments: Any) -> Any:
        answer: Future[Any] = Future()
        with self._guard:
            if self._has_ended or self._closed:
                raise Unavailable("the parent process has ended")
            self._number += 1
            number = self._number
            self._waiting[number] = answer
            try:
                self._connection.send_bytes(json.dumps([number, call, *arguments]).encode())
            except OSError as failure:
                del self._waiting[number]
                raise Unavailable(f"the parent process has ended: {failure}") from failure
        try:
            return answer.result(ANSWER_S)
        except TooLate:
            raise Unavailable("the parent process does not answer") from None
        finally:
            self._waiting.pop(number, None)

    def _hear(self) -> None:
        try:
            while True:
                number, *told = json.loads(self._connection.recv_bytes())
                if number:
                    self._settle(number, *told)
                else:
                    self._rung.put(told[0])
        except (OSError, EOFError):
            pass
        with self._guard:
            self._has_ended = True
            on_end = self._on_end
            waiting = list(self._waiting.values())
        for one in waiting:
            if not one.done():
                one.set_exception(Unavailable("the parent process has ended"))
        self._rung.put(None)
        on_end()

    def _settle(self, number: int, error: str, answer: Any) -> None:
        waiting = self._waiting.get(number)
        if waiting is None:  # it was given up
            return
        if error == "Conflict":
            waiting.set_exception(Conflict(answer))
        elif error:
            waiting.set_exception(Unavailable(f"{error}: {answer}"))
        else:
            waiting.set_result(answer)

    def _ring(self) -> None:
        """Bells may ask for facts, so whoever hears the answers does not ring them."""
        while (prefix := self._rung.get()) is not None:
            self._bells.ring_below(prefix)


def _fact(packed: Any) -> Fact:
    key, value, revision = packed
    return Fact(key, base64.b64decode(value), revision)
