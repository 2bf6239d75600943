"""Covers: what is kept of a call that ended, and for how long.

Not covered: who asks for it (test_handle.py).
"""

from __future__ import annotations

import threading

import pytest

import dejaqueue
from dejaqueue.clock import SystemClock
from dejaqueue.errors import BadRequest
from dejaqueue.tasks.results import Outcome, Results, check_life, failure_of
from tests.patience import PATIENCE_SECONDS, until

now_ms = SystemClock().now_ms


def test_outcomes_are_json_and_back() -> None:
    for outcome in (Outcome({"a": [1]}), Outcome(None)):
        assert Outcome.from_json(outcome.to_json()) == outcome
    failure = failure_of(ValueError("no  \n address"))
    back = Outcome.from_json(Outcome(failure=failure).to_json()).failure
    assert back is not None
    assert (back.kind, str(back), back.traceback) == (
        "ValueError",
        "ValueError: no address",
        failure.traceback,
    )


def test_a_traceback_is_cut_from_its_beginning() -> None:
    failure = failure_of(ValueError("x" * 100_000))
    assert len(failure.traceback) <= 16_384
    assert len(str(failure)) < 2_100


def test_the_last_result_of_a_call_counts__and_is_taken_away_after_its_life() -> None:
    with dejaqueue.open("memory:") as client:
        results = Results("r")
        assert results.get(client, "t", 5, now_ms()) is None
        results.create(client)
        results.put(client, "t", 5, Outcome(1), 60)
        results.put(client, "t", 5, Outcome(2), 60)
        results.put(client, "t", 6, Outcome(3), 0.01)
        assert results.get(client, "t", 5, now_ms()) == Outcome(2)
        sweeper = threading.Thread(target=results.sweep, args=(client,))
        sweeper.start()
        until(lambda: client.stats("r").acked >= 1 and client.stats("r").scheduled == 1)
        assert results.get(client, "t", 6, now_ms()) is None
        client.drain()
        sweeper.join(PATIENCE_SECONDS)
        assert not sweeper.is_alive()


@pytest.mark.parametrize("life_s", [0, -1, 400 * 86_400])
def test_lives_that_cannot_be(life_s: float) -> None:
    with pytest.raises(BadRequest, match="result"):
        check_life(life_s)
