"""What a backlog counts. The whole way is in rule 14's tests."""

from __future__ import annotations

import pytest

from dejaqueue.broker.shard.backlog import Backlog, check_backlog
from dejaqueue.errors import ResourceExhausted
from dejaqueue.model import Topic


def test_a_backlog_that_is_exactly_full_is_fine() -> None:
    topic = Topic("t", max_backlog_count=5, max_backlog_bytes=100)
    check_backlog(topic, Backlog(3, 60), 2, 40)
    with pytest.raises(ResourceExhausted, match="max_backlog_count is 5, 3 messages are live"):
        check_backlog(topic, Backlog(3, 60), 3, 40)
    with pytest.raises(ResourceExhausted, match="60 bytes are live and 41 want in"):
        check_backlog(topic, Backlog(3, 60), 2, 41)
    with pytest.raises(ResourceExhausted, match="3 messages are live in t@audit; retry"):
        check_backlog(topic, Backlog(3, 60), 3, 40, lambda: "audit")
