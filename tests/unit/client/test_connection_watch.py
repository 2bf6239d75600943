"""Covers: a connection that is lost and found is told once each, in order, in the log and by call.

Not covered: who notices it (test_link.py, consuming/test_consume_core.py), and a real broker that
goes and comes (tests/integration/test_connection.py).
"""

from __future__ import annotations

import logging
import threading

import pytest

from dejaqueue.client.connection_watch import ConnectionChange, ConnectionWatch
from dejaqueue.clock import SystemClock
from dejaqueue.testing import VirtualClock
from tests.patience import PATIENCE_SECONDS, until

ONE, OTHER = object(), object()


class Told:
    """Changes that were told, in order."""

    def __init__(self) -> None:
        self.changes: list[ConnectionChange] = []
        self._condition = threading.Condition()

    def __call__(self, change: ConnectionChange) -> None:
        with self._condition:
            self.changes.append(change)
            self._condition.notify_all()

    def wait(self, count: int) -> list[ConnectionChange]:
        with self._condition:
            enough = self._condition.wait_for(lambda: len(self.changes) >= count, PATIENCE_SECONDS)
        assert enough, self.changes
        return self.changes


def test_several_streams_of_one_client_are_one_loss() -> None:
    told, clock = Told(), VirtualClock()
    watch = ConnectionWatch("dejaq://b", clock, told)
    watch.lost(ONE, "t", "gone\n  away")
    watch.lost(OTHER, "u", "gone")
    watch.lost(ONE, "t", "still gone")
    clock.advance(ms=70)
    watch.found(ONE, "t")
    assert told.wait(1) == [ConnectionChange(False, "t", "gone away")]
    watch.found(OTHER, "u")
    watch.found(OTHER, "u")
    assert told.wait(2)[1:] == [ConnectionChange(True, "u", lost_ms=70)]


def test_a_stream_that_is_closed_holds_nothing_up() -> None:
    told = Told()
    watch = ConnectionWatch("dejaq://b", SystemClock(), told)
    watch.lost(ONE, "t", "gone")
    watch.lost(OTHER, "u", "gone")
    watch.forget(OTHER)
    watch.found(ONE, "t")
    assert [change.is_connected for change in told.wait(2)] == [False, True]


def test_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    watch = ConnectionWatch("dejaq://b", clock)
    with caplog.at_level(logging.INFO, "dejaqueue.client"):
        watch.lost(ONE, "t", "refused")
        clock.advance(ms=1_500)
        watch.found(ONE, "t")
    assert caplog.messages == [
        "dejaq://b: connection lost (topic t): refused",
        "dejaq://b: connection found again after 1.5 s (topic t)",
    ]


def test_a_function_that_raises_is_called_again_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = Told()

    def raises(change: ConnectionChange) -> None:
        told(change)
        raise ValueError("of the user")

    watch = ConnectionWatch("dejaq://b", SystemClock(), raises)
    for _ in range(3):
        watch.lost(ONE, "t", "gone")
        watch.found(ONE, "t")
    assert [change.is_connected for change in told.wait(6)] == [False, True] * 3

    def logged() -> int:
        return sum(text.startswith("on_connection raised") for text in caplog.messages)

    # The last is logged after it was told, and must not be found in the log of another test.
    until(lambda: logged() == 6, "each is logged")
