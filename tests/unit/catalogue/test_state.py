"""Covers: the state machine of the catalogue: numbers, ids, tombstones, snapshots.

Not covered: where it is kept (test_log.py).
"""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.catalogue import state as state_module
from dejaqueue.catalogue.changes import (
    AlteredTopic,
    Change,
    ClosedTopic,
    DeletedTopic,
    DeletingTopic,
    FoundedCluster,
    MadeTopic,
    UsedTopic,
)
from dejaqueue.catalogue.state import CatalogueState
from dejaqueue.errors import JournalDamaged
from dejaqueue.model import Topic


def after(*changes: Change) -> CatalogueState:
    state = CatalogueState()
    for change in changes:
        state.apply(change, state.revision + 1)
    return state


def ended(name: str, ids_from: int) -> list[Change]:
    return [
        MadeTopic(Topic(name)),
        UsedTopic(name),
        DeletingTopic(name),
        ClosedTopic(name, ids_from),
        DeletedTopic(name),
    ]


def test_a_number_is_given_once() -> None:
    state = after(*ended("a", 0), MadeTopic(Topic("b")), MadeTopic(Topic("a")))
    assert {name: row.number for name, row in state.rows.items()} == {"b": 6, "a": 7}


def test_counts_of_partitions_are_kept() -> None:
    state = after(
        MadeTopic(Topic("a", partitions=2)), AlteredTopic(Topic("a", partitions=2, lease_ms=9_000))
    )
    assert not state.rows["a"].counts
    for partitions in (3, 7):
        state.apply(AlteredTopic(Topic("a", partitions=partitions)), state.revision + 1)
    assert (state.rows["a"].counts, state.rows["a"].number) == ((2, 3, 7), 1)


def test_ids_go_on_behind_those_of_every_topic_of_the_name() -> None:
    state = after(*ended("a", 500), *ended("a", 3), MadeTopic(Topic("a")), MadeTopic(Topic("b")))
    assert (state.rows["a"].ids_from, state.rows["b"].ids_from) == (500, 0)
    assert state.tombstones == {}


def test_of_tombstones_that_are_too_many_the_ids_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "TOMBSTONES_MAX", 2)
    changes = [*ended("a", 500), *ended("b", 20), *ended("c", 30)]
    state = after(*changes, MadeTopic(Topic("b")), MadeTopic(Topic("new")), MadeTopic(Topic("a")))
    assert {name: row.ids_from for name, row in state.rows.items()} == {
        "b": 20,
        "new": 500,
        "a": 500,
    }
    assert (state.tombstones, state.ids_from) == ({"c": 30}, 500)


@pytest.mark.parametrize(
    "changes",
    [
        [MadeTopic(Topic("a")), MadeTopic(Topic("a"))],
        [AlteredTopic(Topic("a"))],
        [UsedTopic("a")],
        [DeletingTopic("a")],
        [MadeTopic(Topic("a")), ClosedTopic("a", 1)],
        [MadeTopic(Topic("a")), DeletedTopic("a")],
        [MadeTopic(Topic("a")), DeletingTopic("a"), MadeTopic(Topic("a"))],
        [MadeTopic(Topic("a")), UsedTopic("a"), DeletingTopic("a"), DeletedTopic("a")],
    ],
)
def test_a_change_that_does_not_fit_is_damage(changes: list[Change]) -> None:
    state = after(*changes[:-1])
    before = state.copy()
    with pytest.raises(JournalDamaged):
        state.apply(changes[-1], len(changes))
    assert state == before


def test_revisions_are_dense() -> None:
    with pytest.raises(JournalDamaged, match="change 2 after 0"):
        CatalogueState().apply(MadeTopic(Topic("a")), 2)


def test_a_topic_that_was_never_used_ends_without_being_closed() -> None:
    state = after(MadeTopic(Topic("a")), DeletingTopic("a"), DeletedTopic("a"))
    assert (state.leaving, state.tombstones) == ({}, {"a": 0})


@pytest.mark.parametrize("seed", range(3))
def test_a_snapshot_and_the_changes_after_it_make_the_same_state(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "TOMBSTONES_MAX", 3)
    random, state, changes = np.random.default_rng(seed), CatalogueState(), list[Change]()
    snapshots = [(0, state.to_bytes())]
    for _ in range(400):
        change = any_change(state, random)
        state.apply(change, state.revision + 1)
        changes.append(change)
        if random.random() < 0.05:
            snapshots.append((state.revision, state.to_bytes()))
    kinds = {type(change) for change in changes}
    assert kinds == {MadeTopic, AlteredTopic, UsedTopic, DeletingTopic, ClosedTopic, DeletedTopic}
    for revision, text in snapshots:
        again = CatalogueState.from_bytes(text)
        for change in changes[revision:]:
            again.apply(change, again.revision + 1)
        assert again == state
        assert again.to_bytes() == state.to_bytes()


def any_change(state: CatalogueState, random: np.random.Generator) -> Change:
    """One that fits."""
    name = f"t{random.integers(8)}"
    if name in state.rows:
        row = state.rows[name]
        more = Topic(name, partitions=row.topic.partitions + int(random.integers(2)))
        return (AlteredTopic(more), UsedTopic(name), DeletingTopic(name))[random.integers(3)]
    if name not in state.leaving:
        return MadeTopic(Topic(name, partitions=int(random.integers(1, 4))))
    row = state.leaving[name]
    if row.is_used and not row.is_closed:
        return ClosedTopic(name, int(random.integers(1_000)))
    return DeletedTopic(name)


def test_a_topic_in_shards_is_closed_when_all_of_them_are() -> None:
    topic = Topic("a", spread=2, partitions=2)
    state = CatalogueState()
    founded = FoundedCluster("0123456789abcdef", 8)
    changes: list[Change] = [founded, MadeTopic(topic, 3), UsedTopic("a"), DeletingTopic("a")]
    for revision, change in enumerate(changes, 1):
        assert state.in_shards == ({"a"} if 3 <= revision <= 4 else set())
        state.apply(change, revision)
    assert (state.in_shards, state.leaving["a"].start) == (set(), 3)
    waits = []
    for revision, shard in enumerate(topic.shards, 5):
        waits.append(state.leaving["a"].waits)
        state.apply(ClosedTopic("a", 10 * revision, shard), revision)
        again = CatalogueState.from_bytes(state.to_bytes())
        assert again == state == state.copy()
        assert again.cluster == founded
    assert waits == [("a=0-2", "a=1-2"), ("a=1-2",)]
    row = state.leaving["a"]
    assert (row.waits, row.is_closed, row.ids_from) == ((), True, 60)


def test_a_cluster_is_founded_before_anything_else() -> None:
    state = CatalogueState()
    state.apply(MadeTopic(Topic("a")), 1)
    with pytest.raises(JournalDamaged, match="first change"):
        state.apply(FoundedCluster("0123456789abcdef", 8), 2)


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"revision":1,"topics":[{}]}'])
def test_a_damaged_snapshot_is_refused(text: bytes) -> None:
    with pytest.raises(JournalDamaged):
        CatalogueState.from_bytes(text)
