"""Covers: who gets a slot of several that want it, and how it is given up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dejaqueue.broker.topic.threads import Threads
from dejaqueue.clock import SteadyClock
from dejaqueue.cluster.claims import Claims
from dejaqueue.cluster.ownership import PREFIX, Owner, owners_of
from dejaqueue.cluster.sight import Sight
from dejaqueue.coordinator.in_process import ProcessFacts


@pytest.fixture
def facts() -> Iterator[ProcessFacts]:
    made = ProcessFacts()
    yield made
    made.close()


def claims(node: str, facts: ProcessFacts) -> Claims:
    coordinator = facts.open()
    return Claims(node, coordinator, Threads(), Sight(coordinator, SteadyClock()).owners_facts)


def stored(facts: ProcessFacts) -> dict[int, Owner]:
    return owners_of(facts.open().list(PREFIX))


@pytest.mark.parametrize("count", [1, 20])
def test_who_is_alone_gets_everything(facts: ProcessFacts, count: int) -> None:
    seen: dict[int, Owner] = {}
    assert claims("a", facts).claim_all(range(count), "life", seen) == list(range(count))
    assert stored(facts) == seen
    assert {(one.node, one.session, one.epoch) for one in seen.values()} == {("a", "life", 1)}


def test_what_somebody_else_got_first_is_not_ours(facts: ProcessFacts) -> None:
    claims("b", facts).claim_all([1, 3], "other", {})
    seen: dict[int, Owner] = {}
    assert claims("a", facts).claim_all(range(5), "life", seen) == [0, 2, 4]
    assert sorted(seen) == [0, 2, 4]
    assert stored(facts)[1].node == stored(facts)[3].node == "b"


def test_what_was_given_up_is_claimed_with_the_next_epoch(facts: ProcessFacts) -> None:
    seen: dict[int, Owner] = {}
    here = claims("a", facts)
    here.claim_all([7], "life", seen)
    here.release(7, seen[7], seen[7].revision)
    assert (stored(facts)[7].node, stored(facts)[7].session) == ("", "")
    assert claims("b", facts).claim(7, "other", stored(facts))
    assert (stored(facts)[7].node, stored(facts)[7].epoch) == ("b", 2)


def test_what_was_taken_over_is_not_given_up(facts: ProcessFacts) -> None:
    seen: dict[int, Owner] = {}
    here = claims("a", facts)
    here.claim_all([7], "life", seen)
    claims("b", facts).claim(7, "other", stored(facts))
    here.release(7, seen[7], seen[7].revision)
    assert stored(facts)[7].node == "b"
