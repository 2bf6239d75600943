"""When API keys were used last: in memory at once, and stored now and then for all brokers.

Room: access. Any thread; what notes a use takes no lock and never waits.
Holds: a use that is stored stays until its key is gone, and is never moved back; what is stored is
KEEP_MS old at most while keys are used, and whole after a broker was stopped; it says nothing that
lets anybody in, so one that cannot be read is begun anew.
See: key_ring.py, which notes; docs/adr/0065-uses-of-keys-are-stored-now-and-then.md.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container
from typing import Protocol

from dejaqueue.clock import Clock
from dejaqueue.errors import DejaQError

DOCUMENT = "key-uses"
USE_MS = 60_000
"""How exactly it is told when a key was used: to the minute that it was in."""
KEEP_MS = 300_000
"""A broker stores its uses at most this often."""
_VERSION = 1

log = logging.getLogger("dejaqueue.access")

Minutes = dict[str, int]
"""By the id of a key the minute of its last use, counted since 1970."""


class UseDocuments(Protocol):
    """Where uses are stored: beside the keys (key_ring.Documents)."""

    def load_document(self, name: str) -> str | None: ...  # noqa: D102

    def change_document(  # noqa: D102
        self, name: str, change: Callable[[str | None], str | None]
    ) -> None: ...


class KeyUses:
    """Of one broker.

    Attributes:
        since_ms: uses at this broker are known from then on.
    """

    def __init__(self, clock: Clock) -> None:
        self.since_ms = clock.utc_ms()
        self._clock = clock
        self._used_ms: dict[str, int] = {}
        self._kept: Minutes = {}
        self._next_ms = 0

    def note(self, key_id: str, now_ms: int) -> bool:
        """A key is used.

        Returns:
            True once in KEEP_MS: `keep` is to be called, by somebody who may wait.
        """
        self._used_ms[key_id] = now_ms
        if now_ms < self._next_ms:
            return False
        self._next_ms = now_ms + KEEP_MS
        return True

    def forget(self, known: Container[str]) -> None:
        """Only keys of these ids are there now."""
        for key_id in [one for one in tuple(self._used_ms) if one not in known]:
            self._used_ms.pop(key_id, None)

    def keep(self, documents: UseDocuments, known: Container[str]) -> None:
        """Store what is not stored yet. Raises nothing: it is tried again the next time.

        Two at once store the same twice: no lock is held while a store is waited for.

        Args:
            known: ids of the keys that there are; others are dropped.
        """
        own = self._minutes()
        if own == self._kept:
            return

        def with_own(text: str | None) -> str | None:
            since_ms, stored = _read(text)
            both = _later(stored, own)
            if both == stored:
                return None
            left = {key_id: minute for key_id, minute in both.items() if key_id in known}
            since_ms = self.since_ms if since_ms is None else min(since_ms, self.since_ms)
            return json.dumps({"version": _VERSION, "since_ms": since_ms, "minutes": left})

        try:
            documents.change_document(DOCUMENT, with_own)
        except DejaQError as error:
            log.warning("when API keys were used could not be stored: %s", error)
            return
        self._kept = own

    def told(self, documents: UseDocuments | None) -> tuple[int, dict[str, int]]:
        """Since when uses are known, and when each key was used last, to the minute below.

        Args:
            documents: where other brokers, and this one in earlier lives, have stored theirs; None,
                or if they cannot be read: those of this broker since it started are told alone.
        """
        since_ms: int | None = None
        stored: Minutes = {}
        if documents is not None:
            try:
                since_ms, stored = _read(documents.load_document(DOCUMENT))
            except DejaQError as error:
                log.warning("when API keys were used elsewhere could not be read: %s", error)
        latest = _later(stored, self._minutes())
        since_ms = self.since_ms if since_ms is None else min(since_ms, self.since_ms)
        return since_ms, {key_id: minute * USE_MS for key_id, minute in latest.items()}

    def _minutes(self) -> Minutes:
        return {key_id: used_ms // USE_MS for key_id, used_ms in tuple(self._used_ms.items())}


def _later(one: Minutes, other: Minutes) -> Minutes:
    return one | {key_id: max(minute, one.get(key_id, 0)) for key_id, minute in other.items()}


def _read(text: str | None) -> tuple[int | None, Minutes]:
    """What is stored; None and nothing, if it is not there, or not to be read."""
    try:
        values = json.loads(text or "null")
        if values["version"] != _VERSION:
            return None, {}
        since_ms, minutes = values["since_ms"], values["minutes"]
        if type(since_ms) is int and all(type(minute) is int for minute in minutes.values()):
            return since_ms, minutes
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    return None, {}
