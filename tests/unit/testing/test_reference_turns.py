"""Covers: turns worked out by hand from rule 8, not against the engine (tests/model)."""

from __future__ import annotations

from dejaqueue.testing.reference_turns import Turns


def turns_of(*names: str, **weights: int) -> Turns:
    turns = Turns()
    turns.weights = weights
    for name in names:
        turns.name(name)
    turns.relist(dict.fromkeys(names, 9))
    return turns


def serve(turns: Turns, names: set[str], count: int) -> list[str]:
    return [turns.next(names) for _ in range(count)]


def test_equal_groups_take_turns__in_the_order_they_came() -> None:
    assert serve(turns_of("b", "a"), {"a", "b"}, 4) == ["b", "a", "b", "a"]


def test_a_weight_is_a_share() -> None:
    assert sorted(serve(turns_of("a", "b", b=2), {"a", "b"}, 6)) == ["a"] * 2 + ["b"] * 4


def test_levels_share_what_the_level_above_gets() -> None:
    names = {"a.x", "a.y", "b"}
    served = serve(turns_of("a.x", "a.y", "b"), names, 8)
    assert [served.count(name) for name in ("a.x", "a.y", "b")] == [2, 2, 4]


def test_who_had_nothing_begins_with_the_others() -> None:
    turns = turns_of("a", "b")
    turns.relist({"a": 9})
    assert serve(turns, {"a"}, 5) == ["a"] * 5
    turns.relist({"a": 4, "b": 9})
    assert sorted(serve(turns, {"a", "b"}, 4)) == ["a", "a", "b", "b"], "it does not catch up"
