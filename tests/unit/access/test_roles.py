"""Roles on topic patterns."""

from __future__ import annotations

import pytest

from dejaqueue.access.roles import EVERYBODY, Grant, Principal, Role
from dejaqueue.access.senders import Sender
from dejaqueue.errors import Forbidden


def who(*grants: tuple[Role, str]) -> Principal:
    return Principal("who", tuple(Grant(role, pattern) for role, pattern in grants))


def test_no_role_includes_another_but_admin() -> None:
    for role in Role:
        allowed = {other for other in Role if who((role, "a")).may(other, "a")}
        assert allowed == (set(Role) if role is Role.ADMIN else {role})


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*", ["", "a", "a.b"], []),
        ("orders.*", ["orders.", "orders.eu"], ["orders", "Orders.eu", "my.orders.eu", ""]),
        ("a?", ["ab"], ["a", "abc", ""]),
        ("a.b", ["a.b"], ["axb", "a.b\n", "a.bc"]),
    ],
)
def test_a_pattern_covers_whole_names(pattern: str, yes: list[str], no: list[str]) -> None:
    grant = Grant(Role.PRODUCE, pattern)
    assert [name for name in [*yes, *no] if grant.covers(name)] == yes
    assert [name for name in [*yes, *no] if who((Role.CONSUME, pattern)).sees(name)] == yes


def test_a_refusal_names_role_and_topic() -> None:
    with pytest.raises(Forbidden, match="who: no role 'consume' for topic b"):
        who((Role.CONSUME, "a"), (Role.PRODUCE, "b")).require(Role.CONSUME, "b")
    with pytest.raises(Forbidden, match="no role 'admin' for the broker"):
        who((Role.ADMIN, "a*")).require(Role.ADMIN, "")


def test_a_grant_of_ones_own_reaches_ones_own() -> None:
    limited = Principal(
        "who", (Grant(Role.MANAGE, "a", own=True), Grant(Role.PRODUCE, "a", own=True))
    )
    assert limited.may(Role.PRODUCE, "a")
    assert not limited.may(Role.MANAGE, "a")
    assert limited.may(Role.MANAGE, "a", own=True)
    assert not limited.may(Role.MANAGE, "b", own=True)
    assert limited.sees("a")
    for role in (Role.PRODUCE, Role.MANAGE):
        assert limited.sender_for("a", role) == Sender("who", own=True)
    whole = Principal("who", (*limited.grants, Grant(Role.PRODUCE, "*")))
    assert whole.sender_for("a", Role.PRODUCE) == Sender("who")
    assert whole.sender_for("a", Role.MANAGE).owner == "who"
    assert whole.sender_for("a", Role.MANAGE, Role.PRODUCE).owner is None
    assert EVERYBODY.sender_for("a", Role.PRODUCE).owner is None


def test_everybody_may_everything_while_there_are_no_keys() -> None:
    assert all(EVERYBODY.may(role, name) for role in Role for name in ("", "a"))


def test_a_long_pattern_of_stars_is_quick() -> None:
    assert not Grant(Role.PRODUCE, "*a" * 120).covers("a" * 119 + "b" * 136)
