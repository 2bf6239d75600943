"""The same calls get the same answers here and at DOQ.

Not covered: what is known to differ (test_differences.py).
"""

from __future__ import annotations

import random

import pytest

from tests.doq.calls import Call, Generated, Side

CALLS = 120
SEEDS = 5
FAIR = "/API/v1/queues/fair"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_generated_calls_of_a_delayed_queue(seed: int, ours: Side, theirs: Side) -> None:
    calls = Generated(random.Random(seed))
    told = []
    for number in range(CALLS):
        call = calls.first() if number == 0 else calls.next()
        here, there = ours.call(call), theirs.call(call)
        told.append(f"{call} -> {here[0]}")
        assert here == there, "\n".join(["here, then there, of the last of these:", *told])
        calls.note(call, here)
    assert len(calls.gone) >= 5, "it came far enough to prove something"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_groups_of_a_fair_queue_take_turns(seed: int, ours: Side, theirs: Side) -> None:
    dice = random.Random(seed)
    settings = {"strategy": "ROUND_ROBIN", "max_unacked": dice.choice((0, 100))}
    made = Call("POST", "/API/v1/queues", {"name": "fair", "type": "fair", "settings": settings})
    assert ours.call(made)[0] == theirs.call(made)[0] == 200
    for number in range(dice.randint(1, 40)):
        body = {"content": str(number), "priority": 1, "group": dice.choice("abcd")}
        call = Call("POST", f"{FAIR}/messages", body, f"m{number}")
        assert ours.call(call) == theirs.call(call)
    here = there = (200, None)
    while here[0] == 200:
        call = Call("GET", f"{FAIR}/messages?ack={dice.choice(('true', 'false'))}")
        here, there = ours.call(call), theirs.call(call)
        assert here == there
    assert ours.call(Call("GET", FAIR)) == theirs.call(Call("GET", FAIR))
