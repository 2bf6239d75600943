"""Nobody waits for it: it takes any reply."""

from __future__ import annotations

from dejaqueue.broker.replies import ReplyTo, no_reply
from dejaqueue.wire.frames import Reply


def test_a_reply_that_nobody_waits_for_is_dropped() -> None:
    reply_to: ReplyTo = no_reply
    assert reply_to(Reply(1)) is None  # type: ignore[func-returns-value]
