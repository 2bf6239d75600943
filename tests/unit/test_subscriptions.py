"""The words of subscriptions."""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.model import Assignment, Topic, TopicKind
from dejaqueue.subscriptions import (
    OWN_SETTINGS,
    Order,
    changed_subscriptions,
    check_subscription_name,
    check_subscriptions,
    has_ephemeral,
    own_settings,
)


@pytest.mark.parametrize("name", ["", "a b", "a@b", "x" * 65, None, "a=b"])
def test_a_name_that_no_subscription_can_have(name: object) -> None:
    with pytest.raises(BadRequest):
        check_subscription_name(name)


@pytest.mark.parametrize(
    "given",
    [
        [],
        {"a": 1},
        {"a": {"order": "random"}},
        {"a": {"start": "yesterday"}},
        {"a": {"partitions": 3}},
        {"a": {"ephemeral_ms": 999}},
        {"a": {"ephemeral_ms": True}},
        {"a": {"ephemeral_ms": "1m"}},
        {"a": {"ephemeral_ms": 31 * 86_400_000}},
        {f"s{number}": {} for number in range(65)},
    ],
)
def test_what_is_no_subscription_is_refused(given: object) -> None:
    with pytest.raises(BadRequest):
        check_subscriptions(given, Order.DUE)


@pytest.mark.parametrize(
    ("kind", "order"), [("timeline", "due"), ("priority", "priority"), ("fair", "groups")]
)
def test_the_order_is_the_topics_unless_it_is_said(kind: Any, order: str) -> None:
    topic = Topic("t", kind=kind, subscriptions={"a": {}, "b": {"order": "arrival"}}).check()
    assert topic.subscriptions["a"] == {"order": order, "start": "new"}
    assert topic.subscribed("a").kind is topic.kind
    assert topic.subscribed("b").kind is TopicKind.TIMELINE


def test_settings_of_its_own_are_those_of_a_topic() -> None:
    values = {"lease_ms": 500, "assignment": "exclusive", "order": "due"}
    assert own_settings(values) == {"lease_ms": 500, "assignment": "exclusive"}
    seen = Topic("t", lease_ms=7_000, subscriptions={"a": values}).check().subscribed("a")
    assert (seen.name, seen.lease_ms, seen.dead_letter_name) == ("t@a", 500, "t.a.dead")
    assert seen.assignment is Assignment.EXCLUSIVE
    assert all(hasattr(seen, name) for name in OWN_SETTINGS)
    with pytest.raises(BadRequest):
        Topic("t", subscriptions={"a": {"lease_ms": 1}}).check()
    with pytest.raises(BadRequest):
        Topic("t", kind=TopicKind.CRON, unnamed=False).check()


def test_what_ends_by_itself() -> None:
    topic = Topic("t", subscriptions={"a": {"ephemeral_ms": 0}}).check()
    assert not has_ephemeral(topic.subscriptions)
    assert has_ephemeral({"a": {}, "b": {"ephemeral_ms": 1_000}})


def test_a_change_names_single_subscriptions() -> None:
    known: dict[str, dict[str, Any]] = {
        "a": {"order": "due", "start": "new", "born": 1},
        "b": {"born": 2},
    }
    after = changed_subscriptions(known, {"a": {"lease_ms": 500}, "c": {}}, 9)
    assert after == {"a": known["a"] | {"lease_ms": 500}, "b": {"born": 2}, "c": {"born": 9}}
    assert changed_subscriptions(known, {"b": None}, 9) == {"a": known["a"]}
    own = {"a": known["a"] | {"lease_ms": 500}}
    assert changed_subscriptions(own, {"a": {"lease_ms": None}}, 9) == {"a": known["a"]}
    for wrong in (
        {"a": {"order": "arrival"}},
        {"a": {"start": "live"}},
        {"x": None},
        {"a": {"born": 5}},
        {"a": {"order": None}},
        {"a": {"nothing": None}},
        {"x": {"born": 5}},
        {"a": 3},
        None,
    ):
        with pytest.raises(BadRequest):
            changed_subscriptions(known, wrong, 9)
