"""Whose turn it is. With credit and filters: test_dispatch.py."""

from __future__ import annotations

from collections.abc import Callable

from dejaqueue.broker.consumers.turns import RUN_MAX, Turns


def taken(
    turns: Turns[str],
    count: int,
    takers: str = "abc",
    can_take: Callable[[str], bool] = lambda _: True,
    *,
    in_a_row: bool = True,
) -> str:
    found = [turns.next(0, takers, can_take, in_a_row=in_a_row) for _ in range(count)]
    return "".join(one or "-" for one in found)


def test_the_turn_goes_round__and_in_a_backlog_each_gets_several() -> None:
    turns = Turns[str]()
    assert taken(turns, 9) == "abcabcaab"
    assert "a" * RUN_MAX in taken(turns, 300)
    assert "a" * (RUN_MAX + 1) not in taken(turns, 300)


def test_when_there_was_nothing_more_it_goes_one_by_one_again() -> None:
    turns = Turns[str]()
    taken(turns, 300)
    turns.ended(0)
    assert sorted(taken(turns, 3)) == ["a", "b", "c"]


def test_who_can_take_nothing_is_passed_over() -> None:
    turns = Turns[str]()
    assert taken(turns, 4, can_take=lambda one: one != "b") == "acac"
    assert taken(turns, 2, can_take=lambda _: False) == "--"
    assert taken(turns, 1, "") == "-"


def test_where_each_has_partitions_of_its_own_nobody_gets_any_in_a_row() -> None:
    turns = Turns[str]()
    assert taken(turns, 30, "ab", in_a_row=False) == "ab" * 15
