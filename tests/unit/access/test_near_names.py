from __future__ import annotations

import time

import pytest

from dejaqueue.access.near_names import (
    COMPARED_MAX,
    everybody_sees,
    telling_near_names,
    with_near_name,
)
from dejaqueue.errors import BadRequest, TopicUnknown, Unavailable
from dejaqueue.model import Topic

TOPICS = [
    Topic("invoices"),
    Topic("orders", subscriptions={"billing": {}}),
    Topic("reminders"),
]


def told(name: str, sees: object = everybody_sees) -> str:
    return str(with_near_name(TopicUnknown(name), lambda: TOPICS, sees))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("order", "orders"),
        ("remainders", "reminders"),
        ("Invoices", "invoices"),
        ("orders@biling", "orders@billing"),
        ("order@billing", "orders@billing"),
    ],
)
def test_a_slip_of_the_finger_is_told(name: str, near: str) -> None:
    assert f"(did you mean {near}?), got: '{name}'" in told(name)


@pytest.mark.parametrize("name", ["xyz", "", "o", "orders" * 10, "billing"])
def test_what_is_near_to_nothing_is_told_as_it_was(name: str) -> None:
    assert told(name) == str(TopicUnknown(name))


def test_only_what_may_be_seen_is_told() -> None:
    assert "orders" not in told("order", lambda name: name != "orders")
    assert "billing?" not in told("orders@biling", lambda name: name != "orders")


def test_a_topic_that_is_gone_since_it_was_named_is_not_suggested_for_itself() -> None:
    assert "did you mean reminders?" not in told("reminders")


def test_other_errors_and_such_as_tell_a_name_already_stay_what_they_are() -> None:
    for error in (BadRequest("topic", "a name", "order"), TopicUnknown("order", "border")):
        assert with_near_name(error, lambda: TOPICS, everybody_sees) is error


def test_a_broker_that_does_not_run_tells_no_names() -> None:
    def stopped() -> list[Topic]:
        raise Unavailable("the broker is stopping", 1_000)

    error = TopicUnknown("order")
    assert with_near_name(error, stopped, everybody_sees) is error


def test_what_it_costs_is_bounded_by_many_topics() -> None:
    many = [Topic(f"zone-{number:05d}") for number in range(5_000)] + [Topic("a-zone-0")]
    asked: list[str] = []

    def sees(name: str) -> bool:
        asked.append(name)
        return True

    began = time.thread_time()
    error = with_near_name(TopicUnknown("a-zone-9"), lambda: many, sees)
    assert "did you mean a-zone-0?" in str(error)  # the same first letter comes first
    assert len(asked) <= COMPARED_MAX
    assert time.thread_time() - began < 1


def test_a_block_raises_it_with_the_name() -> None:
    block = telling_near_names(lambda: TOPICS, everybody_sees)
    with pytest.raises(TopicUnknown, match="did you mean orders"), block:
        raise TopicUnknown("order")


@pytest.mark.parametrize("error", [BadRequest("topic", "a name", "order"), KeyError("order")])
def test_a_block_leaves_other_errors_alone(error: Exception) -> None:
    block = telling_near_names(lambda: TOPICS, everybody_sees)
    with pytest.raises(type(error)) as found, block:
        raise error
    assert found.value is error
