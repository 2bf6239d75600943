"""Covers: where rows are given back, and how long somebody waits for it.

Not covered: which rows (test_consume_core.py).
"""

from __future__ import annotations

import threading

import numpy as np
import pytest

from dejaqueue.client.connection_watch import ConnectionWatch
from dejaqueue.client.consuming.holding import rows_of
from dejaqueue.client.consuming.release import RELEASE_MS_MAX, Release, releases_of
from dejaqueue.clock import SteadyClock
from dejaqueue.errors import BadRequest, DejaQError, Elsewhere, Unavailable
from dejaqueue.limits import SPIKE_AHEAD_MS_MAX
from dejaqueue.wire.descriptors import ConsumeStream
from dejaqueue.wire.frames import Reply, Settle, SettleOp
from tests.unit.client.fake_transport import FakeConsume, FakeTransport, ok

RELEASE = Settle(
    SettleOp.NACK,
    7,
    argument_ms=30,
    ids=np.array([1, 2]),
    attempts=np.array([1, 1], np.uint16),
    release=True,
)


def releases(transport: FakeTransport) -> Release:
    clock = SteadyClock()
    return Release(transport, "t", clock, ConnectionWatch("", clock))


def channel() -> FakeConsume:
    made = FakeConsume(ConsumeStream("t"), None, None, None)
    made.answers_settles = False
    return made


def test_a_broker_that_takes_them_is_the_only_one_asked() -> None:
    transport, there = FakeTransport(ok), channel()
    releases(transport).send(RELEASE, there)
    there.futures[0].set_result(Reply(7, 2))
    assert [one.number for one in there.settles] == [7]
    assert transport.writes == []


@pytest.mark.parametrize("wrong", [Elsewhere("it went away"), Unavailable("it broke")])
def test_one_that_does_not_is_passed_over(wrong: DejaQError) -> None:
    transport, there = FakeTransport(ok), channel()
    releases(transport).send(RELEASE, there)
    there.futures[0].set_result(Reply(7, 2, error=wrong))
    found = transport.wait_writes(1)
    found.wait_for(1)
    assert (found.stream.op, found.stream.argument_ms, found.stream.released) == ("nack", 30, True)
    assert found.sent[0][1].to_pydict() == {"id": [1, 2], "attempts": [1, 1]}


def test_a_refusal_is_not_repeated_elsewhere() -> None:
    transport, there = FakeTransport(ok), channel()
    releases(transport).send(RELEASE, there)
    there.futures[0].set_result(Reply(7, 2, error=BadRequest("ids", "at least one id", 0)))
    assert transport.writes == []


def test_the_stream_is_closed_when_it_is_answered() -> None:
    transport = FakeTransport(ok)
    releases(transport).send_elsewhere([RELEASE])
    found = transport.wait_writes(1)
    for _ in range(10_000):
        if found.is_closed:
            break
        threading.Event().wait(0.001)
    assert found.is_closed


def test_nobody_waits_longer_than_a_second_for_a_broker_that_says_nothing() -> None:
    transport, clock = FakeTransport(), SteadyClock()
    began_us = clock.now_us()
    releases(transport).send_elsewhere([RELEASE, RELEASE])
    assert clock.now_us() - began_us >= RELEASE_MS_MAX * 1_000
    for write in transport.writes:
        write.answer(0)


def ids_of(settle: Settle) -> list[int]:
    assert settle.ids is not None
    found: list[int] = settle.ids.tolist()
    return found


def test_each_row_goes_back_for_its_own_time__what_is_due_together_goes_together() -> None:
    """A row that is due now must not wait for one that is due in a second."""
    dues_ms = np.array([1_000, 900, 1_040, 1_990, 1_055], dtype=np.int64)
    rows = rows_of(np.arange(5), np.ones(5, dtype=np.uint16), dues_ms)
    found = releases_of(rows, 1_000_000)
    assert [(one.argument_ms, ids_of(one)) for one in found] == [
        (40, [0, 1, 2]),
        (55, [4]),
        (990, [3]),
    ]
    assert all(one.release and one.op is SettleOp.NACK for one in found)


def test_what_nobody_knows_the_time_of_is_put_off_by_as_much_as_it_may_be_early() -> None:
    rows = rows_of(np.arange(1), np.ones(1, dtype=np.uint16), np.array([1_700_000_000_000]))
    [found] = releases_of(rows, 0)
    assert found.argument_ms == SPIKE_AHEAD_MS_MAX
