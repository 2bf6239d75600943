"""Facts of this process for its children, each over a pair of sockets that only it inherits.

    server = FactsServer(facts)
    end = server.connect()                 the child's end: pass its number on, then close it here

    child   → [number, call, arguments …]
    parent  → [number, "", answer]                  it was done
              [number, "Conflict", text]            it was not
              [0, prefix]                           something below it may have changed

Room: coordinator.
Holds: a child that does not read what it is told holds nobody: what it has not heard of a prefix is
told once; what a child put with a ttl is renewed by that child alone, and vanishes after it.
See: parent_facts.py, the other end; in_process.py, where the facts are.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final

from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.coordinator.interface import Conflict, Coordinator, Fact
from dejaqueue.errors import DejaQError


class FactsServer:
    """Serves facts until `close`."""

    def __init__(self, facts: ProcessFacts) -> None:
        self._facts = facts
        self._children: list[_Child] = []

    def connect(self) -> socket.socket:
        """A child's end of a new connection."""
        mine, theirs = socket.socketpair()
        self._children = [one for one in self._children if one.is_taken]
        self._children.append(_Child(Connection(mine.detach()), self._facts.open()))
        return theirs

    def close(self) -> None:
        """End all connections. Twice is fine."""
        children, self._children = self._children, []
        for one in children:
            one.close()


class _Child:
    """One child's connection."""

    def __init__(self, connection: Connection, coordinator: Coordinator) -> None:
        self._connection, self._coordinator = connection, coordinator
        self._calls: Final[dict[str, Callable[..., Any]]] = {
            "get": self._get,
            "list": self._list,
            "put": self._put,
            "renew": coordinator.renew,
            "delete": coordinator.delete,
            "watch": self._watch,
        }
        self._says = threading.Condition()
        self._replies: list[bytes] = []
        """At most one for each call that the child waits for."""
        self._rung: set[str] = set()
        self._watched: set[str] = set()
        self.is_taken = True
        for work in (self._hear, self._say):
            threading.Thread(target=work, name="dejaq-facts", daemon=True).start()

    def close(self) -> None:
        """The child hears no more."""
        with self._says:
            self.is_taken = False
            self._says.notify()
        self._coordinator.close()
        # Whoever waits for the other end is woken by this, and not by closing alone.
        with suppress(OSError), socket.socket(fileno=self._connection.fileno()) as end:
            end.shutdown(socket.SHUT_RDWR)
            end.detach()

    # --- what the child asks ----------------------------------------------------------------------

    def _hear(self) -> None:
        with suppress(OSError, EOFError):
            while True:
                number, call, *arguments = json.loads(self._connection.recv_bytes())
                self._tell([number, *self._answer(call, arguments)])
        self.close()

    def _answer(self, call: str, arguments: list[Any]) -> tuple[str, Any]:
        try:
            return "", self._calls[call](*arguments)
        except (DejaQError, Conflict) as refused:
            return type(refused).__name__, str(refused)

    def _get(self, key: str) -> list[Any] | None:
        fact = self._coordinator.get(key)
        return None if fact is None else _packed(fact)

    def _list(self, prefix: str) -> list[list[Any]]:
        return [_packed(fact) for fact in self._coordinator.list(prefix)]

    def _put(self, key: str, value: str, revision: int | None, ttl_ms: int | None) -> int:
        return self._coordinator.put(key, base64.b64decode(value), revision, ttl_ms=ttl_ms)

    def _watch(self, prefix: str) -> None:
        if prefix not in self._watched:
            self._watched.add(prefix)
            self._coordinator.watch(prefix, lambda: self._ring(prefix))

    # --- what it is told --------------------------------------------------------------------------

    def _ring(self, prefix: str) -> None:
        with self._says:
            self._rung.add(prefix)
            self._says.notify()

    def _tell(self, reply: list[Any]) -> None:
        with self._says:
            self._replies.append(json.dumps(reply).encode())
            self._says.notify()

    def _say(self) -> None:
        with suppress(OSError):
            while self.is_taken:
                with self._says:
                    while self.is_taken and not (self._replies or self._rung):
                        self._says.wait()
                    replies, self._replies = self._replies, []
                    rung, self._rung = self._rung, set()
                for prefix in sorted(rung):
                    self._connection.send_bytes(json.dumps([0, prefix]).encode())
                for reply in replies:
                    self._connection.send_bytes(reply)


def _packed(fact: Fact) -> list[Any]:
    return [fact.key, base64.b64encode(fact.value).decode(), fact.revision]
