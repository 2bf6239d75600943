"""Names of topics, shards and subscriptions: one name says which is meant."""

from __future__ import annotations

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.topic_names import (
    check_served_name,
    check_topic_name,
    parse_shard,
    parse_subscription,
    shard_name,
    subscription_name,
    topic_of,
)


@pytest.mark.parametrize("name", ["a", "Reminders.v2", "_x-1", "9" * 255, "a..b"])
def test_a_good_topic_name_is_returned(name: str) -> None:
    assert check_topic_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a b", "ä", "x" * 256, "a\n", "a\x00", None, 7, b"a"]
)
def test_a_bad_topic_name_is_refused_with_its_value(name: object) -> None:
    with pytest.raises(BadRequest, match=r"^topic\.name: 1 to 255 characters"):
        check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("a", ("a", "")),
        ("a@b", ("a", "b")),
        ("a=1-3", ("a=1-3", "")),
        (shard_name(subscription_name("a", "b"), 1, 3), ("a=1-3", "b")),
    ],
)
def test_a_name_says_what_is_meant(name: str, parts: tuple[str, str]) -> None:
    assert parse_subscription(name) == parts
    assert check_served_name(name) == name
    assert topic_of(parts[0]) == "a"
    assert (parse_shard(parts[0]) is None) == ("=" not in name)


@pytest.mark.parametrize("name", ["", "a@", "@b", "a=3-3", "a=1-999", "a b", 7])
def test_what_nothing_can_be_called_is_refused(name: object) -> None:
    with pytest.raises(BadRequest):
        check_served_name(name)
