"""Replies by number. With real streams: test_flight_transport.py, test_lane.py."""

from __future__ import annotations

import pytest

from dejaqueue.client.replies import Replies
from dejaqueue.errors import InternalError, Refused, Unavailable
from dejaqueue.wire.frames import Reply


def test_each_future_ends_with_its_own_reply() -> None:
    replies = Replies()
    first, second = replies.register(1), replies.register(2)
    replies.answer(Reply(2, 1, 20))
    assert (second.result(0).first_id, first.done()) == (20, False)
    assert replies.waits_since_us() is not None
    replies.answer(Reply(1, 1, 10))
    assert first.result(0).first_id == 10
    assert replies.waits_since_us() is None


def test_what_was_not_asked_is_a_fault_of_the_broker() -> None:
    with pytest.raises(InternalError, match="number 7"):
        Replies().answer(Reply(7))


def test_the_end_is_everybodys_and_that_of_who_comes_later() -> None:
    replies = Replies()
    waiting = replies.register(1)
    replies.ended(Refused("no"))
    for future in (waiting, replies.register(2)):
        assert isinstance(future.exception(0), Refused)
    silent = Replies()
    silent.ended(None)
    assert isinstance(silent.register(1).exception(0), Unavailable)
