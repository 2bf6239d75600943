"""What is retained: until it is forgotten, whatever the views do, and of what counts alone."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.engine import commands
from dejaqueue.engine.commands import Cancel, Decide, Forget, Stage
from dejaqueue.engine.retention import Retention
from dejaqueue.engine.rules import Rules
from dejaqueue.errors import InternalError
from dejaqueue.model import RowStatus
from tests.unit.engine.test_views import Partition, array


def retaining() -> tuple[Partition, Retention]:
    """A partition that retains from now on, and what it retains."""
    partition = Partition()
    rules = Rules(keeps=True).to_text()
    partition.apply(commands.OpenView, 1, "", 0, rules, False, False, partition.now_ms)
    assert partition.views.retained is not None
    return partition, partition.views.retained


def test_a_row_is_freed_when_it_is_done_and_forgotten() -> None:
    partition, kept = retaining()
    one, two, three = partition.send(5, 5, 9_000)
    locators = partition.views.locators(array(one, two, three)).tolist()
    assert partition.ack(0, partition.lease(0)) == []
    assert kept.count == 3
    assert kept.oldest(three, 10).tolist() == [one, two]
    assert kept.oldest(100, 1).tolist() == [one]
    # What a view still has stays stored.
    freed = partition.apply(Forget, three + 1).freed_locators
    assert sorted(freed.tolist()) == locators[:2]
    assert partition.apply(Cancel, array(three)).freed_locators.tolist() == locators[2:]
    assert kept.count == 0
    partition.views.check()


def test_what_all_are_done_with_is_nobodys_to_change() -> None:
    partition, kept = retaining()
    [sequence] = partition.send(5)
    partition.ack(0, partition.lease(0))
    cancelled = partition.apply(Cancel, array(sequence))
    assert cancelled.statuses.tolist() == [RowStatus.NOT_FOUND]
    assert kept.count == 1
    assert partition.views.live_in(0, 100, 10).tolist() == [sequence]  # compaction keeps it


def test_keys_and_lives_are_nothing_to_it() -> None:
    partition, kept = retaining()
    [sequence] = partition.send(5, key_hashes=array(11), expires_ms=array(partition.now_ms + 100))
    assert partition.views.find_keys(array(11))[1].tolist() == [sequence]
    partition.ack(0, partition.lease(0))
    assert partition.views.find_keys(array(11))[1].tolist() == []
    partition.now_ms += 1_000
    partition.lease(0)
    assert kept.count == 1
    assert not kept.engine.dead
    partition.views.check()


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_counts_when_it_is_committed(commit: bool) -> None:
    partition = Partition()
    early = Stage("early", partition.now_ms + 10_000)
    partition.send(5, stage=early)  # staged before anything was retained
    rules = Rules(keeps=True).to_text()
    partition.apply(commands.OpenView, 1, "", 0, rules, False, False, partition.now_ms)
    kept = partition.views.retained
    assert kept is not None
    partition.send(5, stage=Stage("late", partition.now_ms + 10_000))
    partition.apply(Forget, 2)  # what is not decided stays
    assert kept.count == 0
    for name in ("early", "late"):
        partition.apply(Decide, name, commit)
    assert kept.count == (2 if commit else 0)
    partition.views.check()


def test_a_replaced_message_is_not_retained() -> None:
    partition, kept = retaining()
    done, waiting = partition.send(5, 9_000)
    partition.ack(0, partition.lease(0))
    partition.send(9_000, replaced=array(done, waiting))
    assert kept.oldest(10, 10).tolist() == [done, 2]  # what was done was not replaced
    partition.views.check()


def test_the_end_of_retention_frees_what_nobody_has() -> None:
    partition, kept = retaining()
    partition.send(5, 9_000)
    freed = partition.ack(0, partition.lease(0))
    assert freed == []
    assert partition.apply(commands.DropView, kept.number).freed_locators.size == 1
    assert partition.views.retained is None
    with pytest.raises(InternalError, match="nothing is retained"):
        partition.apply(Forget, 1)
    assert partition.views.unnamed.state.finished is None  # plain again


def test_it_knows_how_often_a_message_was_delivered_at_most() -> None:
    partition, kept = retaining()
    view = partition.open("a")
    partition.send(5)
    for number in (0, view, view):
        partition.lease(number)
        partition.now_ms += 2_000  # the lease ends
    assert kept.engine.attempts(np.array([0])).tolist() == [2]


def test_how_far_too_much_reaches() -> None:
    partition, kept = retaining()
    sizes = np.array([10, 20, 30], dtype=np.uint32)
    partition.send(1, 2, 3, payload_sizes=sizes, payload_bytes=60)
    assert [kept.too_much(most, 100, 0) for most in (60, 59, 50, 49, 0)] == [0, 1, 1, 2, 3]
    assert kept.too_much(0, 2, 0) == 2  # no further than it was asked to look
    partition.send(4, 5)  # their sizes were not noted
    assert [kept.too_much(most, 100, 7) for most in (74, 73, 13)] == [0, 1, 4]


def test_single_messages_are_forgotten() -> None:
    partition, kept = retaining()
    partition.send(1, 2, 3, 4, key_hashes=array(5, 0, 6, 5))
    assert [part.tolist() for part in kept.keyed(0, 9, 9)] == [[0, 2, 3], [5, 6, 5]]
    assert [part.tolist() for part in kept.keyed(1, 9, 1)] == [[2], [6]]
    partition.ack(0, partition.lease(0))
    freed = partition.apply(Forget, 1, sequences=array(2, 2, 77)).freed_locators
    assert freed.size == 2
    assert kept.has(array(0, 1, 2, 3, 99)).tolist() == [False, True, False, True, False]
    partition.views.check()
