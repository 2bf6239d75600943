from __future__ import annotations

import pytest

from dejaqueue.cluster.turn import KEY, RENEW_US, TTL_MS, Turn
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.errors import Refused, Unavailable
from dejaqueue.testing.virtual_clock import VirtualClock


def test_one_at_a_time() -> None:
    facts = ProcessFacts()
    first, second = Turn("a", facts.open()), Turn("b", facts.open())
    with first(), pytest.raises(Refused, match="node a is changing"), second():
        pass
    with second():
        pass
    facts.close()


def test_who_has_lost_its_turn_is_told_before_it_goes_on() -> None:
    facts, clock = ProcessFacts(), VirtualClock()
    with Turn("a", facts.open(), clock)() as keep:
        keep()
        facts.open().delete(KEY)
        keep()  # it was asked a moment ago
        clock.advance(us=RENEW_US)
        with pytest.raises(Refused, match="another node has begun"):
            keep()
    facts.close()


def test_who_slept_through_its_turn_leaves_that_of_the_next_one() -> None:
    clock = VirtualClock()
    facts = ProcessFacts(clock)
    sleeper, second, third = (Turn(name, facts.open(), clock) for name in "abc")
    with pytest.raises(Refused, match="another node has begun"), sleeper() as keep:
        clock.advance(us=TTL_MS * 1_000)
        second_turn = second()
        second_turn.__enter__()
        keep()
    with pytest.raises(Refused, match="node b is changing"), third():
        pass
    second_turn.__exit__(None, None, None)
    facts.close()


def test_a_turn_is_over_that_was_not_renewed_in_time__while_the_coordinator_is_away() -> None:
    clock = VirtualClock()
    facts = ProcessFacts(clock)
    coordinator = facts.open()
    with Turn("a", coordinator, clock)() as keep:
        coordinator.cut()
        clock.advance(us=RENEW_US)
        keep()  # a moment without a coordinator is nothing
        clock.advance(us=TTL_MS * 1_000)
        with pytest.raises(Unavailable, match="turn"):
            keep()
        coordinator.mend()
    facts.close()


def test_turns_of_another_kind_are_apart__and_say_what_is_done() -> None:
    facts = ProcessFacts()
    other = {"key": "changes/x", "doing": "doing x", "begun": "do x", "ttl_ms": 1_000}
    first, second = (Turn(name, facts.open(), **other) for name in "ab")  # type: ignore[arg-type]
    refused = pytest.raises(Refused, match="node a is doing x: one at a time")
    with Turn("a", facts.open())(), first(), refused, second():
        pass
    facts.close()
