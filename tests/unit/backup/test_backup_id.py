"""Covers: ids of backups: their order, and what they say."""

from __future__ import annotations

from dejaqueue.backup.backup_id import id_facts, new_id

STORE = "9f0c51d2a7e4b836"


def test_ids_of_backups_go_up_though_the_clock_goes_back() -> None:
    first = new_id(1_790_000_000_007, STORE, "")
    assert first.startswith("20260921T")
    assert first[16:21] == "007Z-"
    behind = [new_id(1, STORE, first)]
    behind.append(new_id(2, STORE, behind[-1]))
    assert sorted(behind) == behind
    assert first < behind[0]
    assert new_id(1_790_000_000_007, STORE, "20260921T000000.000Z-ffe1")[:37] == first[:37]


def test_an_id_says_when_and_of_which_store() -> None:
    first = new_id(1_790_000_000_007, STORE, "")
    for backup in (first, new_id(1, STORE, first)):
        assert id_facts(backup) == (STORE, 1_790_000_000_007)
    for other in ("20261124T031629.219Z-ffe1", "1-a", ""):
        assert id_facts(other) is None
