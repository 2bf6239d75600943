"""What a call needs, asked of the rules alone. Every call as every role: tests/integration."""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.access.roles import PEER, Grant, Principal, Role
from dejaqueue.access.rules import (
    ANY,
    BROKER,
    Rule,
    cron_topic,
    decided_topics,
    epoch_topics,
    letters_go_to,
    may_receive,
    named_or_selected,
    redriven_to,
    require_home,
    require_write,
    shown,
)
from dejaqueue.access.senders import Sender
from dejaqueue.errors import BadRequest, Forbidden
from dejaqueue.wire.descriptors import WriteStream

PRODUCE, CONSUME, MANAGE, OBSERVE = Role.PRODUCE, Role.CONSUME, Role.MANAGE, Role.OBSERVE


def who(*grants: tuple[Role, str], own: bool = False) -> Principal:
    return Principal("who", tuple(Grant(role, pattern, own=own) for role, pattern in grants))


def test_any_of_the_roles_is_enough__for_the_topic_that_is_named() -> None:
    rule = Rule((OBSERVE, MANAGE))
    rule.require(who((MANAGE, "a")), {"topic": "a"})
    rule.require(who((OBSERVE, "a")), {"topic": "a"})
    with pytest.raises(Forbidden, match="who: no role 'observe' or 'manage' for topic b"):
        rule.require(who((MANAGE, "a")), {"topic": "b"})


def test_a_rule_without_a_topic_is_about_the_broker__which_only_the_star_covers() -> None:
    for body in ({}, {"topic": 5}):
        assert list(Rule((MANAGE,)).needs(body)) == [((MANAGE,), BROKER)]
        Rule((MANAGE,)).require(who((MANAGE, "*")), body)
        with pytest.raises(Forbidden, match="for the broker"):
            Rule((MANAGE,)).require(who((MANAGE, "a*")), body)


def test_a_call_about_all_topics_needs_no_role__until_it_names_one() -> None:
    rule = Rule((OBSERVE,), optional=True)
    rule.require(who(), {})
    with pytest.raises(Forbidden):
        rule.require(who(), {"topic": "a"})


def test_what_else_a_call_needs_is_needed_too() -> None:
    rule = Rule((MANAGE,), also=redriven_to)
    rule.require(who((MANAGE, "a")), {"topic": "a"})
    with pytest.raises(Forbidden, match="for topic b"):
        rule.require(who((MANAGE, "a")), {"topic": "a", "to": "b"})
    rule.require(who((MANAGE, "a"), (PRODUCE, "b")), {"topic": "a", "to": "b"})


def test_only_brokers_say_what_brokers_say_to_one_another() -> None:
    rule = Rule(peers=True)
    rule.require(PEER, {})
    with pytest.raises(Forbidden, match="only brokers of the cluster"):
        rule.require(who((Role.ADMIN, "*")), {})


def test_a_grant_of_ones_own_is_enough_where_the_rule_says_so__and_limits_the_call() -> None:
    limited = who((MANAGE, "a"), own=True)
    with pytest.raises(Forbidden):
        Rule((MANAGE,)).require(limited, {"topic": "a"})
    rule = Rule((MANAGE,), own=True)
    rule.require(limited, {"topic": "a"})
    assert rule.sender(limited, {"topic": "a"}) == Sender("who", own=True)
    assert rule.sender(who((MANAGE, "a")), {"topic": "a"}) == Sender("who")


def test_a_role_that_reaches_others_messages_is_one_that_the_rule_names() -> None:
    mixed = Principal("who", (Grant(PRODUCE, "a"), Grant(MANAGE, "a", own=True)))
    assert Rule((PRODUCE, MANAGE)).sender(mixed, {"topic": "a"}).owner is None
    assert Rule((PRODUCE, MANAGE), whole=(MANAGE,)).sender(mixed, {"topic": "a"}).owner == "who"


def test_to_know_of_a_topic_takes_any_grant_for_it() -> None:
    Rule(ANY).require(who((CONSUME, "a"), own=True), {"topic": "a"})
    with pytest.raises(Forbidden):
        Rule(ANY).require(who((CONSUME, "b")), {"topic": "a"})


@pytest.mark.parametrize(
    ("also", "body", "expected"),
    [
        (letters_go_to, {"dead_letter": ""}, []),
        (letters_go_to, {"dead_letter": "d"}, [((MANAGE,), "d")]),
        (redriven_to, {}, []),
        (redriven_to, {"to": "b"}, [((PRODUCE, MANAGE), "b")]),
        (named_or_selected, {"topic": "a", "ids": [1]}, [((PRODUCE,), "a")]),
        (named_or_selected, {"topic": "a", "where": {}}, [((MANAGE,), "a")]),
        (cron_topic, {"entry": {}}, []),
        (cron_topic, {"topic": "a"}, [((MANAGE,), "a")]),
        (decided_topics, {"transaction": "h/0/1"}, [((PRODUCE, CONSUME), "h")]),
        (
            epoch_topics,
            {"topic": "h", "participants": ["b/1", "a/0", "b/0"]},
            [((PRODUCE, CONSUME), topic) for topic in ("h", "a", "b")],
        ),
    ],
)
def test_a_body_says_which_topics_it_needs(also: Any, body: dict[str, Any], expected: Any) -> None:
    assert list(also(body)) == expected


@pytest.mark.parametrize(
    ("also", "body", "field"),
    [
        (letters_go_to, {"dead_letter": 5}, "dead_letter"),
        (redriven_to, {"to": ["b"]}, "to"),
        (decided_topics, {}, "transaction"),
        (epoch_topics, {"topic": "h", "participants": "a/0"}, "participants"),
        (epoch_topics, {"topic": "h", "participants": [1]}, "participants"),
        (cron_topic, {}, "topic"),
    ],
)
def test_a_topic_that_is_no_name_is_refused(also: Any, body: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRequest, match=rf"^{field}\b"):
        list(also(body))


@pytest.mark.parametrize(
    ("op", "role"),
    [
        *((op, PRODUCE) for op in ("enqueue", "move", "cancel")),
        *((op, CONSUME) for op in ("ack", "nack", "extend")),
    ],
)
def test_a_stream_needs_the_role_of_what_it_does(op: Any, role: Role) -> None:
    stream = WriteStream(topic="a", op=op)
    assert require_write(who((role, "a")), stream) == Sender("who")
    other = CONSUME if role is PRODUCE else PRODUCE
    with pytest.raises(Forbidden, match=f"no role '{role.value}' for topic a"):
        require_write(who((other, "a"), (role, "b")), stream)


def test_a_transaction_takes_a_role_for_its_home() -> None:
    require_home(who(), "")
    require_home(who((CONSUME, "h")), "h/0/1-2-f")
    with pytest.raises(Forbidden, match="for topic h"):
        require_home(who((OBSERVE, "h"), (PRODUCE, "a")), "h/0/1-2-f")


def test_letters_go_where_the_caller_may_write() -> None:
    receives = may_receive(who((PRODUCE, "a"), (MANAGE, "b"), (CONSUME, "c")))
    assert [topic for topic in "abc" if receives(topic)] == ["a", "b"]


def test_answers_about_all_topics_show_what_the_caller_may_see() -> None:
    caller = who((OBSERVE, "a"), (CONSUME, "b"))
    named = [{"name": name} for name in "abc"]
    assert shown(caller, "list_topics", {"topics": named})["topics"] == named[:2]
    served = [{"topic": name} for name in "abc"]
    answer = shown(caller, "cluster", {"node": 1, "topics": served})
    assert answer == {"node": 1, "topics": served[:2]}
    assert shown(caller, "stats", {"topics": {"a": 1, "b": 2, "c": 3}}) == {"topics": {"a": 1}}
    assert shown(caller, "stats", {"topic": "c"}) == {"topic": "c"}
    refused = {"topics": {"b": 2}, "refused_lately": [{"principal": "shop"}]}
    assert shown(caller, "stats", refused) == {"topics": {}}
