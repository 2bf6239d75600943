"""Uses of keys: several brokers and lives are put together, the later one wins; nothing is fatal.

Not covered: who notes and when it is stored (test_key_ring.py); real brokers (tests/cluster).
"""

from __future__ import annotations

import pytest

from dejaqueue.access.key_ring import Change, InMemory
from dejaqueue.access.key_uses import DOCUMENT, KEEP_MS, KeyUses
from dejaqueue.errors import Unavailable
from dejaqueue.testing.virtual_clock import VirtualClock

KNOWN = {"a", "b", "c"}


class Away(InMemory):
    """A server that does not answer."""

    def load_document(self, name: str) -> str | None:
        raise Unavailable("away")

    def change_document(self, name: str, change: Change) -> None:
        raise Unavailable("away")


def test_the_later_of_two_brokers_is_told__and_what_an_earlier_life_knew() -> None:
    documents, clock = InMemory(), VirtualClock(start_ms=60_000)
    one, other = KeyUses(clock), KeyUses(clock)
    one.note("a", 120_000)
    one.note("b", 700_000)
    one.keep(documents, KNOWN)
    other.note("a", 360_000)
    other.note("b", 360_000)
    assert other.told(documents) == (60_000, {"a": 360_000, "b": 660_000})
    other.keep(documents, KNOWN)
    clock.advance(ms=5_000_000)
    again = KeyUses(clock)
    assert again.told(documents) == (60_000, {"a": 360_000, "b": 660_000})
    assert again.told(None) == (5_060_000, {})


def test_uses_of_keys_that_are_gone_are_dropped() -> None:
    documents, uses = InMemory(), KeyUses(VirtualClock())
    uses.note("a", 60_000)
    uses.note("b", 60_000)
    uses.keep(documents, KNOWN)
    uses.note("b", 120_000)
    uses.forget({"b"})
    uses.keep(documents, {"b"})
    assert KeyUses(VirtualClock()).told(documents)[1] == {"b": 120_000}


def test_what_is_stored_is_not_stored_again() -> None:
    documents, uses = InMemory(), KeyUses(VirtualClock())
    uses.keep(documents, KNOWN)
    assert documents.load_document(DOCUMENT) is None
    uses.note("a", 60_000)
    uses.keep(documents, KNOWN)
    documents.store_document(DOCUMENT, "mine")
    uses.note("a", 61_000)  # the same minute
    uses.keep(documents, KNOWN)
    assert documents.load_document(DOCUMENT) == "mine"


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "7", '{"version": 2}', '{"version": 1, "since_ms": 1, "minutes": [1]}',
     '{"version": 1, "since_ms": 1, "minutes": {"a": "1"}}'],
)  # fmt: skip
def test_what_cannot_be_read_is_begun_anew(text: str) -> None:
    documents, uses = InMemory(), KeyUses(VirtualClock(start_ms=5))
    documents.store_document(DOCUMENT, text)
    uses.note("a", 60_000)
    assert uses.told(documents) == (5, {"a": 60_000})
    uses.keep(documents, KNOWN)
    assert KeyUses(VirtualClock(start_ms=5)).told(documents) == (5, {"a": 60_000})


def test_a_server_that_is_away_costs_what_it_knows_alone() -> None:
    uses = KeyUses(VirtualClock(start_ms=5))
    assert uses.note("a", 60_000)
    uses.keep(Away(), KNOWN)
    assert uses.told(Away()) == (5, {"a": 60_000})
    documents = InMemory()
    uses.keep(documents, KNOWN)  # tried again
    assert KeyUses(VirtualClock()).told(documents)[1] == {"a": 60_000}
    assert not uses.note("a", 60_000 + KEEP_MS - 1)
    assert uses.note("a", 60_000 + KEEP_MS)
