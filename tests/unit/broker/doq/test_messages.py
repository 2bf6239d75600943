"""Covers: work at a partition by a message's name; what is wrong with one piece touches no other.

Not covered: what DOQ's clients see of it (tests/unit/http/doq).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from dejaqueue.broker.doq import messages as doq
from dejaqueue.broker.doq.messages import Name
from dejaqueue.errors import BadRequest
from dejaqueue.limits import INSTANT_MS_MIN
from dejaqueue.model import RowStatus
from tests.rules.broker_fixture import TOPIC, BrokerFixture

NO_ID = 7_777
"""No message has it here."""
NOWHERE = Name(NO_ID, ("nowhere",))


@pytest.fixture
def broker() -> Iterator[BrokerFixture]:
    fixture = BrokerFixture()
    yield fixture
    fixture.stop()


def done(broker: BrokerFixture, *works: Any) -> list[Any]:
    """What pieces of work that are submitted together return."""
    found: list[Any] = []
    replied: Future[Any] = Future()
    doq.submit(broker.broker.runtime(TOPIC), 0, works, found, replied.set_result)
    assert replied.result(10).error is None
    return found


def sent(broker: BrokerFixture, *keys: str) -> list[Name]:
    broker.send([key.encode() for key in keys], keys=list(keys))
    return [Name(NO_ID, (key,)) for key in keys]


def test_a_message_that_nobody_has_is_not_acked_touched_or_put_back(broker: BrokerFixture) -> None:
    [name] = sent(broker, "a")
    works = [partial(doq.ack, name=name), partial(doq.touch, name=name)]
    works.append(partial(doq.put_back, name=name, priority=0))
    assert done(broker, *works) == [RowStatus.LEASE_LOST] * 3
    assert [row["payload"] for row in broker.peek()] == [b"a"]


def test_a_message_that_is_taken_is_acked_once(broker: BrokerFixture) -> None:
    [name] = sent(broker, "a")
    done(broker, partial(doq.take, lapses=None, done=False))
    ack = partial(doq.ack, name=name)
    assert done(broker, ack, ack) == [RowStatus.OK, RowStatus.NOT_FOUND]
    assert broker.counts()["acked"] == 1


def test_what_is_wrong_with_one_piece_touches_no_other(broker: BrokerFixture) -> None:
    """A key that is another message's id names two messages, and so none."""
    [first] = broker.send([b"a"]).all_ids()
    broker.send([b"b"], keys=[str(first)])
    sent(broker, "c")
    both = Name(int(first), (str(first),))
    delete = partial(doq.delete, owner=None)
    found = done(
        broker,
        partial(delete, name=both),
        partial(delete, name=NOWHERE),
        partial(delete, name=Name(NO_ID, ("c",))),
    )
    assert isinstance(found[0], BadRequest)
    assert found[1:] == [RowStatus.NOT_FOUND, RowStatus.OK]
    assert sorted(row["payload"] for row in broker.peek()) == [b"a", b"b"]


def test_another_priority_is_another_due_time(broker: BrokerFixture) -> None:
    [name] = sent(broker, "a")
    change = partial(doq.set_priority, name=name, owner=None)
    assert done(broker, partial(change, priority=5)) == [RowStatus.OK]
    [row] = broker.peek()
    assert (row["due"], row["group"]) == (doq.due_ms_of(5), f"{doq.CHANGED}5")
    assert doq.priority_of("9", row["group"], 0) == 5
    for wrong in ("9" * 5_000, str(doq.PRIORITY_MAX + 1), "²", "-1", ""):
        assert doq.priority_of(wrong, "", 7) == 7
    done(broker, partial(doq.take, lapses=None, done=False))
    assert done(broker, partial(change, priority=6)) == [RowStatus.LEASED]


def test_small_priorities_are_overdue_and_keep_their_order() -> None:
    assert doq.due_ms_of(0) == 0
    assert INSTANT_MS_MIN < doq.due_ms_of(1) < doq.due_ms_of(2)
    with pytest.raises(BadRequest, match="priority"):
        doq.due_ms_of(doq.PRIORITY_MAX + 1)
