"""Facts as a table, and the changes that make it: what the log of facts in a bucket is about.

Room: coordinator. Pure: no bucket, no clock.
Holds: the same changes in the same order give the same table, revisions too.
See: fact_log.py, where changes are stored; bucket.py.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dejaqueue.coordinator.interface import Fact

CHANGES_MAX: Final = 1_000
_STRIDE: Final = 1_024
"""Revisions of an entry: its number times this, and the place of the change in it."""
PUT, RENEW, DELETE = "put", "renew", "delete"


class Kept(NamedTuple):
    """A fact as it is kept; `ttl_ms` None = it stays."""

    fact: Fact
    ttl_ms: int | None


class Change(NamedTuple):
    """What becomes of one fact.

    Attributes:
        kind: PUT, RENEW, or DELETE.
        value, ttl_ms: of PUT.
    """

    kind: str
    key: str
    value: bytes = b""
    ttl_ms: int | None = None

    def facts(self) -> list[Any]:
        """For JSON."""
        if self.kind != PUT:
            return [self.kind, self.key]
        return [self.kind, self.key, base64.b64encode(self.value).decode(), self.ttl_ms]

    @staticmethod
    def of(facts: Sequence[Any]) -> Change:
        """From JSON."""
        kind, key, *rest = facts
        return Change(kind, key, base64.b64decode(rest[0]), rest[1]) if rest else Change(kind, key)


def revision_of(number: int, index: int) -> int:
    """The revision that a change gives to its fact.

    Args:
        number: of its entry.
        index: its place there.

    >>> revision_of(1, 0), revision_of(1, 1), revision_of(2, 0)
    (1024, 1025, 2048)
    """
    return number * _STRIDE + index


class FactTable:
    """The facts after some entries of the log."""

    def __init__(self, kept: dict[str, Kept] | None = None) -> None:
        self._kept = kept or {}

    def copy(self) -> FactTable:
        """One that may be changed while this one stays."""
        return FactTable(dict(self._kept))

    def get(self, key: str) -> Kept | None:
        """A fact; None if it is not there."""
        return self._kept.get(key)

    def below(self, prefix: str) -> list[Fact]:
        """The facts whose keys begin so, sorted by key."""
        return [self._kept[key].fact for key in sorted(self._kept) if key.startswith(prefix)]

    def keys(self) -> set[str]:
        """Of all facts."""
        return set(self._kept)

    def vanishing(self) -> set[str]:
        """Keys of the facts that have a ttl."""
        return {key for key, kept in self._kept.items() if kept.ttl_ms is not None}

    def apply(self, change: Change, revision: int) -> bool:
        """Make a change; whether the fact is another one now, which it is not when renewed."""
        if change.kind == PUT:
            fact = Fact(change.key, change.value, revision)
            self._kept[change.key] = Kept(fact, change.ttl_ms)
            return True
        return change.kind == DELETE and self._kept.pop(change.key, None) is not None

    # --- as JSON --------------------------------------------------------------------------------

    def facts(self) -> dict[str, list[Any]]:
        """For JSON: key -> [revision, ttl, value]."""
        return {
            key: [kept.fact.revision, kept.ttl_ms, base64.b64encode(kept.fact.value).decode()]
            for key, kept in self._kept.items()
        }

    @staticmethod
    def of(facts: dict[str, Sequence[Any]]) -> FactTable:
        """From JSON."""
        return FactTable(
            {
                key: Kept(Fact(key, base64.b64decode(value), revision), ttl_ms)
                for key, (revision, ttl_ms, value) in facts.items()
            }
        )
