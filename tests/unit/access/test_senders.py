"""Names that senders' producers have in a broker. What they are good for is in
tests/integration/test_senders.py."""

from __future__ import annotations

from itertools import combinations

from dejaqueue.access.roles import EVERYBODY, Principal
from dejaqueue.access.senders import NOBODY, THE_BROKER, Sender


def test_no_two_senders_share_a_producer__whatever_they_are_called() -> None:
    named = [
        ("", "b"),
        ("a", "b"),
        ("a:b", ""),
        ("a", "b:c"),
        ("a:b", "c"),
        ("1:a", "b"),
        ("", "1:a:b"),
        ("dead", "t/0"),
    ]
    names = {Sender(who).producer(name) for who, name in named if name}
    assert len(names) == len([name for _, name in named if name])


def test_who_has_no_name_for_its_producer_is_not_remembered() -> None:
    assert Sender("a").producer("") == NOBODY.producer("") == ""


def test_nobody_outside_can_name_what_the_broker_sends() -> None:
    ours = THE_BROKER.producer("dead/t/0")
    assert ours == "dead/t/0"
    for who in ("", "dead", "dead/t/0"):
        assert Sender(who).producer("dead/t/0") != ours
        assert Sender(who).producer("x")[0].isdigit()


def test_a_principal_is_its_name__not_its_key() -> None:
    assert Principal("shop", (), "1").sender == Principal("shop", (), "2").sender == Sender("shop")
    assert EVERYBODY.sender == NOBODY
    marks = [Sender(name).mark for name in ("", "a", "b")]
    assert all(len(mark) == 16 for mark in marks)
    assert all(one != other for one, other in combinations(marks, 2))
