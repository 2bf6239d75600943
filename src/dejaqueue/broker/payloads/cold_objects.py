"""ColdObjects: stores and reads the objects of cold payloads, beside the workers.

Room: broker. Any thread; what it is asked is done on the threads that ask the payload store.
Holds: an object was read back, and is what was sent, before anybody is told that it is there; at
most AT_ONCE are under way, so that large payloads that somebody waits for come in between.
See: shard/cold_chore.py, which asks; payloads.py; docs/adr/0085.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, TypeVar

from dejaqueue.broker.payloads.payloads import THREADS, Payloads
from dejaqueue.errors import DejaQError, InternalError
from dejaqueue.schema.references import Reference

Answer = TypeVar("Answer")

AT_ONCE: Final = THREADS // 2
TURN_US: Final = 1_000_000
"""While producers send, an object that is stored takes from them what it costs: reading, hashing
twice, writing. As fast as it went, it halved what they sent; one a second costs some percent."""
PREFIX: Final = "cold-"
"""How the last part of an object's name begins."""


def is_cold_name(name: str) -> bool:
    """Whether an object of the payload store has cold payloads.

    >>> is_cold_name("5f0c/3-orders/cold-77aa"), is_cold_name("5f0c/3-cold-orders/77aa")
    (True, False)
    """
    return name.split("/")[2].startswith(PREFIX)


class ColdObjects:
    """The objects of all partitions of a broker."""

    def __init__(self, payloads: Payloads) -> None:
        self._payloads = payloads
        self._guard, self._turn_us = threading.Lock(), 0
        self._free = threading.BoundedSemaphore(AT_ONCE)

    @property
    def is_open(self) -> bool:
        """Whether the broker has a payload store."""
        return self._payloads.store is not None

    def takes_turn(self, now_us: int) -> bool:
        """Whether a partition to which messages come may store an object now: one of the broker's
        in a second."""
        with self._guard:
            if now_us < self._turn_us:
                return False
            self._turn_us = now_us + TURN_US
            return True

    def put(self, owner: str, content: bytes | memoryview) -> Future[Reference] | None:
        """Store an object, and read it back; None = too many are under way: ask again later.

        Args:
            owner: as for Payloads.new_name.

        Raises:
            Unavailable: the broker stops.
        """
        return self._beside(self._put, owner, content)

    def _put(self, owner: str, content: bytes | memoryview) -> Reference:
        payloads = self._payloads
        store, name = payloads.needed(), payloads.new_name(owner, PREFIX)
        try:
            whole = store.put(name, content, payloads.new_key())
            store.get(whole)  # what is here goes for it
        except DejaQError as error:
            payloads.count_failure(error)
            raise
        payloads.count(stored=1, stored_bytes=len(content))
        return whole

    def get(self, whole: Reference) -> Future[bytes] | None:
        """Read an object; None = too many are under way. Raises as `put`."""
        return self._beside(self._payloads.get, whole)

    def _beside(self, call: Callable[..., Answer], *values: object) -> Future[Answer] | None:
        if not self._free.acquire(blocking=False):
            return None

        def ask() -> Answer:
            try:
                return call(*values)
            except DejaQError:
                raise
            except Exception as wrong:  # our bug: the partition goes on without it
                raise InternalError(f"cold payloads: {type(wrong).__name__}: {wrong}") from wrong

        try:
            future = self._payloads.beside(ask)
        except DejaQError:
            self._free.release()
            raise
        future.add_done_callback(lambda _: self._free.release())
        return future

    def end(self, names: Sequence[str]) -> None:
        """Nobody needs these objects any more, but maybe a backup."""
        self._payloads.doom(names)

    def count(self, **more: int) -> None:
        """See Payloads.count."""
        self._payloads.count(**more)
