"""Senders: under which name a caller's messages, producers and transactions are kept; requesters.

Room: access. Pure values; the doors ask the caller's principal for one, the broker uses it.
Holds: two principals never share a producer or a transaction, whatever names they choose; nobody
    outside can name what the broker sends by itself; nothing here is a secret.
See: docs/reference/semantics.md, "Senders"; docs/adr/0021.

A principal is its name, not the id of its key: a key that is replaced by one of the same name finds
its batches remembered and its messages its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

MARK_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Sender:
    """Who calls, as far as messages are concerned.

    Attributes:
        name: of the principal; "" = nobody: while no key is needed, all callers are one.
        own: what it may do reaches what it sent itself, and no other message.
        is_broker: the broker itself, which carries other senders' messages.
    """

    name: str = ""
    own: bool = False
    is_broker: bool = False

    @property
    def owner(self) -> str | None:
        """Whose messages its calls reach; None = anybody's."""
        return self.name if self.own else None

    def producer(self, name: str) -> str:
        """The name by which partitions remember this sender's producer; "" stays "".

        >>> Sender("billing").producer("night-run")
        '7:billing:night-run'
        """
        # The length in front: no choice of names makes one sender's name look like another's, and
        # none begins like the broker's own (dead/…, redrive/…).
        return name if self.is_broker or not name else f"{len(self.name)}:{self.name}:{name}"

    @property
    def mark(self) -> str:
        """16 hexadecimal digits that stand for the sender in names of transactions."""
        return _mark(self.name)


@lru_cache(maxsize=1_024)
def _mark(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=MARK_DIGITS // 2).hexdigest()


NOBODY = Sender()
"""Whoever calls while no key is needed, and a program that runs a broker in itself."""
THE_BROKER = Sender(is_broker=True)
"""For what travels from topic to topic."""


@dataclass(frozen=True, slots=True)
class Requester:
    """The caller, as far as the call itself needs to know; its rule was asked before.

    Attributes:
        sender: whose messages the call is about.
        may_receive: says whether the caller may send dead letters to a topic.
        is_near: the caller is on this machine, and so may make the first API key.
    """

    sender: Sender = NOBODY
    may_receive: Callable[[str], bool] = lambda _topic: True
    is_near: bool = False


ANYBODY = Requester()
"""A program that calls the broker in its own process."""
