"""The design of shards, tried in every order of events before it is built (ADR 30, 57).

Each of its rules is turned off, and what that breaks is found by the shortest way.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial

import pytest

from tests.formal import homes_that_go, shard_transactions, shards, topic_home
from tests.formal.explore import Explored, explore

GONE = "acknowledged in a topic that is gone"
TORN = "one half counts, the other does not"
TWO = "two consumers have a partition"
MORE = "more is kept than the limit"

TURNED = {
    "fences": (False, GONE),
    "compares": (False, "a change was written over"),
    "waits": (False, GONE),
    "journal_says": (False, GONE),
    "lease_is_enough": (True, GONE),
    "reads_after_epoch": (False, GONE),
    "reads_first": (True, GONE),
    "numbers_once": (False, "messages of a topic that is gone are shown"),
    "opens_again": (False, "a change is never answered"),
    "ids_go_on": (False, "acked by whom it was not given to"),
    "unknown_is_asked": (False, "a living topic was called unknown"),
}
DECISIONS = {
    "written_first": TORN,
    "silence_is_written": TORN,
    "kept_by_shard": TORN,
    "asks": "a participant waits for ever",
    "told_first": "a commit was answered, and is not seen",
}
HOMES_THAT_GO = {
    "closed_keeps": TORN,
    "closed_behind_epoch": TORN,
    "waits_for_closed": TORN,
    "no_in_time": TORN,
    "by_every_clock": TORN,
    "told_first": TORN,
    "commit_again": "a commit that counts was denied",
}
EXCLUSIVE = {
    "waits_for_leases": TWO,
    "keeps_leases": TWO,
    "repeats": "the owner goes by an older decision",
}
ALLOTMENTS = (
    "written_by_home",
    "lowers_first",
    "lowered_in_journal",
    "raised_in_journal",
    "empties_first",
)


def shard(rules: shards.Rules) -> Explored[shards.State]:
    steps = partial(shards.steps, rules=rules)
    return explore(shards.State(), steps, shards.wrong, shards.at_rest)


def transaction(rules: shard_transactions.Rules) -> Explored[shard_transactions.State]:
    first, steps = shard_transactions.State(), partial(shard_transactions.steps, rules=rules)
    return explore(first, steps, shard_transactions.wrong, shard_transactions.at_rest)


def home_that_goes(rules: homes_that_go.Rules) -> Explored[homes_that_go.State]:
    steps = partial(homes_that_go.steps, rules=rules)
    return explore(homes_that_go.State(), steps, homes_that_go.wrong, homes_that_go.at_rest)


def exclusive(rules: topic_home.ExclusiveRules) -> Explored[topic_home.Exclusive]:
    steps = partial(topic_home.exclusive_steps, rules=rules)
    wrong, at_rest = topic_home.wrong_exclusive, topic_home.exclusive_at_rest
    return explore(topic_home.Exclusive(), steps, wrong, at_rest)


def allotments(rules: topic_home.AllotmentRules) -> Explored[topic_home.Allotments]:
    steps = partial(topic_home.allotment_steps, rules=rules)
    return explore(topic_home.Allotments(), steps, topic_home.wrong_allotments)


def test_a_topic_in_a_shard_keeps_what_is_acknowledged_and_nothing_of_before() -> None:
    found = shard(shards.Rules(changes_max=4, ends_max=3))
    assert (found.wrong, found.way) == ("", ())
    assert found.state_count > 10_000


@pytest.mark.parametrize("name", TURNED)
def test_each_rule_of_shards_is_needed(name: str) -> None:
    turned, wrong = TURNED[name]
    found = shard(shards.with_rules(shards.Rules(), **{name: turned}))
    assert found.wrong == wrong
    assert found.way


def test_a_transaction_over_shards_is_whole() -> None:
    found = transaction(shard_transactions.Rules())
    assert (found.wrong, found.way) == ("", ())
    assert found.state_count > 100


@pytest.mark.parametrize("name", DECISIONS)
def test_each_rule_of_decisions_is_needed(name: str) -> None:
    found = transaction(replace(shard_transactions.Rules(), **{name: False}))
    assert found.wrong == DECISIONS[name]


def test_a_transaction_is_whole_when_the_topic_of_its_home_is_deleted_and_made_again() -> None:
    found = home_that_goes(homes_that_go.Rules())
    assert (found.wrong, found.way) == ("", ())
    assert found.state_count > 100


@pytest.mark.parametrize("name", HOMES_THAT_GO)
def test_each_rule_of_homes_that_go_is_needed(name: str) -> None:
    found = home_that_goes(replace(homes_that_go.Rules(), **{name: False}))
    assert found.wrong == HOMES_THAT_GO[name]


def test_a_partition_has_one_consumer() -> None:
    found = exclusive(topic_home.ExclusiveRules())
    assert (found.wrong, found.way) == ("", ())
    assert found.state_count > 100


@pytest.mark.parametrize("name", EXCLUSIVE)
def test_each_rule_of_exclusive_assignment_is_needed(name: str) -> None:
    assert exclusive(replace(topic_home.ExclusiveRules(), **{name: False})).wrong == EXCLUSIVE[name]


def test_allotments_together_never_exceed_the_limit() -> None:
    found = allotments(topic_home.AllotmentRules())
    assert (found.wrong, found.way) == ("", ())
    assert found.state_count > 200


@pytest.mark.parametrize("name", ALLOTMENTS)
def test_each_rule_of_allotments_is_needed(name: str) -> None:
    assert allotments(replace(topic_home.AllotmentRules(), **{name: False})).wrong == MORE


def test_no_rule_is_left_untried() -> None:
    tried = {*TURNED, *DECISIONS, *HOMES_THAT_GO, *EXCLUSIVE, *ALLOTMENTS}
    rules = (
        shards.Rules,
        shard_transactions.Rules,
        homes_that_go.Rules,
        topic_home.ExclusiveRules,
        topic_home.AllotmentRules,
    )
    there = {field.name for one in rules for field in fields(one) if field.type == "bool"}
    assert tried == there
