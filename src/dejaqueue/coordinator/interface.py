"""The coordinator contract: a few small facts with revisions, in numbered duties.

Room: coordinator. A backend is one file beside this one and knows keys and bytes; what they mean
(members, owners, the catalogue) is written once above it, in the broker's room.
Holds: nothing here fences. A journal's append does; the coordinator only keeps things moving.

Duties of a `Coordinator` (any thread may call any method):

 1. A fact has a key (text, at most 500 bytes of A-Z a-z 0-9 . _ - and /), a value (at most 1 MiB)
    and a revision: positive, and greater after each change of this fact, also across deletion.
 2. `put` and `delete` with a revision change the fact only if it still has that revision (0 = it is
    not there); comparison and change are one step of the server. Else Conflict.
 3. `get` and `list` see every change that was acknowledged to anybody before.
 4. A fact that was put with `ttl_ms` vanishes if it was not renewed for that long, not earlier
    than that after the last renewal; its vanishing is a change. Nothing else vanishes.
 5. `watch` rings the bell after every change of a fact below the prefix: at once where the server
    can say so, within `poll_ms` otherwise; too often is fine, never is not. It also rings when
    the server is back after it was away. `watch_keys` says which fact it was, where that is known.
 6. A call that got no answer raises Unavailable: its outcome is unknown.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """A key with its value.

    Attributes:
        revision: for `put` and `delete` that must not overwrite a change of somebody else.
    """

    key: str
    value: bytes
    revision: int


class Conflict(Exception):
    """The fact has another revision. Never leaves the broker's room."""


class Watch(ABC):
    """A bell that rings."""

    @abstractmethod
    def close(self) -> None:
        """No more ringing after this returns; twice is fine."""


class Coordinator(ABC):
    """A few small facts with revisions. See the duties on top of this file.

    Attributes:
        summary: for status: the server's name and version, without secrets.
        poll_ms: how late a bell may ring.
        request_weight: so many times more seldom brokers look without a bell, and do what they do
            now and then: where each request is paid for.
    """

    summary: str = ""
    poll_ms: int = 500
    request_weight: int = 1

    @abstractmethod
    def get(self, key: str) -> Fact | None:
        """A fact, None if it is not there. Raises Unavailable."""

    @abstractmethod
    def list(self, prefix: str) -> list[Fact]:
        """The facts whose keys begin so, sorted by key. Raises Unavailable."""

    @abstractmethod
    def put(
        self, key: str, value: bytes, revision: int | None = None, *, ttl_ms: int | None = None
    ) -> int:
        """Store a fact; return its new revision.

        Args:
            revision: that it must have now; 0 = none; None = whatever it has.
            ttl_ms: it vanishes unless `renew` is called within it, at least 500; None = it stays.

        Raises:
            Conflict. Unavailable: the outcome is unknown.
        """

    @abstractmethod
    def renew(self, key: str) -> bool:
        """Keep a fact with a ttl for another ttl; False if it has vanished. Raises Unavailable."""

    @abstractmethod
    def delete(self, key: str, revision: int | None = None) -> bool:
        """Delete a fact; False if it was not there. Raises Conflict, Unavailable."""

    @abstractmethod
    def watch(self, prefix: str, bell: Callable[[], None]) -> Watch:
        """Ring the bell, on a thread of the coordinator's, after changes below the prefix."""

    def watch_keys(self, prefix: str, bell: Callable[[str | None], None]) -> Watch:
        """As `watch`, and the bell is given the key of the fact that changed.

        Args:
            bell: None = any of them may have changed; of a backend that knows no keys, always.
        """
        return self.watch(prefix, lambda: bell(None))

    @abstractmethod
    def close(self) -> None:
        """Stop watching and release everything; facts with a ttl are left to vanish."""
