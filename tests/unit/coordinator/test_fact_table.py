"""Covers: what changes make of a table of facts, and that JSON gives both back."""

from __future__ import annotations

import json

from dejaqueue.coordinator.fact_table import (
    DELETE,
    PUT,
    RENEW,
    Change,
    FactTable,
    revision_of,
)
from dejaqueue.coordinator.interface import Fact


def test_changes_are_made_in_their_order__a_renewal_changes_nothing() -> None:
    table = FactTable()
    assert table.apply(Change(PUT, "a", b"1", 700), revision_of(1, 0))
    assert not table.apply(Change(RENEW, "a"), revision_of(1, 1))
    assert table.apply(Change(PUT, "b", b"2"), revision_of(1, 2))
    assert table.below("") == [Fact("a", b"1", 1_024), Fact("b", b"2", 1_026)]
    assert table.vanishing() == {"a"}
    before = table.copy()
    assert table.apply(Change(DELETE, "a"), revision_of(2, 0))
    assert not table.apply(Change(DELETE, "a"), revision_of(2, 1))
    assert table.keys() == {"b"}
    assert before.keys() == {"a", "b"}


def test_json_gives_back_changes_and_tables() -> None:
    every_byte = bytes(range(256))
    for change in (
        Change(PUT, "a", every_byte, 700),
        Change(PUT, "b", b""),
        Change(RENEW, "a"),
        Change(DELETE, "a"),
    ):
        assert Change.of(json.loads(json.dumps(change.facts()))) == change
    table = FactTable()
    table.apply(Change(PUT, "a", every_byte, 700), 5)
    table.apply(Change(PUT, "b", b""), 6)
    again = FactTable.of(json.loads(json.dumps(table.facts())))
    assert again.below("") == table.below("")
    assert again.vanishing() == {"a"}
