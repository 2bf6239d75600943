from __future__ import annotations

import pytest

from dejaqueue.cluster.turn import KEY, RENEW_US, Turn
from dejaqueue.coordinator.in_process import ProcessFacts
from dejaqueue.errors import Refused
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
