"""Covers: one broker of a cluster takes a backup at a time, and who serves what is told as facts
have it now."""

from __future__ import annotations

import pytest

from dejaqueue.cluster import members, ownership
from dejaqueue.cluster.backup_turns import KEY, BackupTurns
from dejaqueue.cluster.members import Member
from dejaqueue.cluster.ownership import Owner
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.errors import Refused
from dejaqueue.testing.virtual_clock import VirtualClock


def test_one_broker_at_a_time() -> None:
    facts, clock = ProcessFacts(), VirtualClock()
    first, second = (BackupTurns(name, facts.open(), clock) for name in "ab")
    with first.turn() as keep:
        keep()
        refused = pytest.raises(Refused, match="node a is taking a backup of the cluster: one at a")
        with refused, second.turn():
            pass
    with second.turn():
        assert facts.open().get(KEY) is not None
    facts.close()


def test_owners_are_told_with_their_facts__and_whether_all_live() -> None:
    facts = ProcessFacts()
    coordinator = facts.open()
    turns = BackupTurns("a", coordinator, VirtualClock())
    assert (turns.owners().slots, turns.owners().is_whole) == ({}, True)
    member = Member("a", "s1", "dejaq://a:1", "", "1")
    coordinator.put(members.PREFIX + "a", member.to_bytes())
    revision = coordinator.put(ownership.key_of(3), Owner("a", "s1", 1, 0).to_bytes())
    found = turns.owners()
    assert (found.urls, found.is_whole) == ({"a": "dejaq://a:1"}, True)
    assert found.slots == {3: ("a", "s1", revision)}
    coordinator.put(ownership.key_of(4), Owner("b", "s2", 1, 0).to_bytes())
    assert not turns.owners().is_whole
    facts.close()
