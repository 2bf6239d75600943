"""What partitions may hold together, of a whole topic and of a shard of one."""

from __future__ import annotations

import pytest

from dejaqueue.broker.shard.allotment import Allotment
from dejaqueue.broker.shard.backlog import Backlog
from dejaqueue.errors import ResourceExhausted
from dejaqueue.model import Topic
from tests.unit.broker.cores import Served


def test_what_is_let_in_counts_at_once_for_the_next() -> None:
    core = Served(Topic("t", max_backlog_count=10)).core
    allotment = Allotment(lambda: Backlog(4, 0) + core.backlog)
    allotment.let_in(core, 6, 6)
    assert core.backlog == Backlog(6, 6)
    other = Served(Topic("t", max_backlog_count=10)).core
    with pytest.raises(ResourceExhausted, match="10 messages are live"):
        allotment.let_in(other, 1, 1)


def test_a_shard_takes_nothing_before_it_was_given_something() -> None:
    core = Served(Topic("t", max_backlog_count=10)).core
    shard = Allotment(lambda: core.backlog, is_shard=True)
    assert shard.lacks(core.topic(), 1, 1)
    with pytest.raises(ResourceExhausted, match="over all shards"):
        shard.let_in(core, 1, 1)
    shard.part = Backlog(3, 0)
    assert not shard.lacks(core.topic(), 3, 1)
    shard.let_in(core, 3, 1)
    assert shard.lacks(core.topic(), 1, 1)


def test_less_is_kept_but_not_less_than_what_is_live() -> None:
    shard = Allotment(lambda: Backlog(4, 40), is_shard=True)
    shard.part = Backlog(10, 50)
    shard.lower(Backlog(3, 3))
    assert shard.part == Backlog(7, 47)
    shard.lower(Backlog(99, 99))
    assert shard.part == Backlog(4, 40)


def test_a_topic_without_limits_asks_for_nothing() -> None:
    core = Served(Topic("t")).core
    shard = Allotment(lambda: core.backlog, is_shard=True)
    assert not shard.lacks(core.topic(), 1_000, 1)
    shard.let_in(core, 1_000, 1)
    assert core.backlog == Backlog()
