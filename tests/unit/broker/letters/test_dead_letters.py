"""A partition's dead: what is sent, buried, and waited for.

Not covered: the whole way of a letter (tests/rules/test_rule_18_dead_letters.py), crashes
(tests/rules/test_rule_18_crashes.py).
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from dejaqueue.broker.letters import dead_letters
from dejaqueue.broker.letters.carrier import Arrived
from dejaqueue.broker.letters.dead_letters import DeadLetters
from dejaqueue.broker.letters.parcel import Parcel, RowsDamagedError
from dejaqueue.engine.commands import Depart
from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    Fenced,
    ResourceExhausted,
    Unavailable,
)
from dejaqueue.model import Topic
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.unit.broker.cores import Served, sequences


class Waiting:
    """What a lane asks of a partition that has to wait."""

    number = 0

    def __init__(self) -> None:
        self.clock = VirtualClock()

    def topic(self) -> Topic:
        return Topic("t")


@pytest.mark.parametrize(
    ("error", "first_ms", "most_ms"),
    [
        (Unavailable("the journal is away", 50), 50, 5_000),
        (ResourceExhausted("the disk is full", 100), 100, 5_000),
        (Fenced("another owner wrote"), 1_000, 5_000),
        (BadRequest("payload", "at most 10 bytes", 11), 1_000, 60_000),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, DejaQError) else None,
)
def test_what_passes_by_itself_is_looked_at_more_often(
    error: DejaQError, first_ms: int, most_ms: int
) -> None:
    waiting, lane = Waiting(), dead_letters._Lane()
    pauses_ms = []
    for _ in range(40):
        dead_letters.DeadLetters._pause(cast(Any, waiting), "", lane, error)
        pauses_ms.append((lane.until_us - waiting.clock.now_us()) // 1_000)
    assert pauses_ms[0] == first_ms
    assert pauses_ms == sorted(pauses_ms)
    assert pauses_ms[-1] == most_ms


class Post:
    """A carrier that arrives when the test says so."""

    def __init__(self) -> None:
        self.carried: list[tuple[Parcel, Arrived]] = []

    def carry(self, parcel: Parcel, _journal: object, arrived: Arrived) -> None:
        self.carried.append((parcel, arrived))


def step(served: Served, chore: DeadLetters) -> None:
    chore.before_append(served.core)
    served.core.commits.commit_all()
    assert not chore.after_append(served.core, is_idle=True)


def leaving(served: Served, destination: str, *numbers: int) -> None:
    served.core.apply(Depart(served.core.now_ms(), sequences(*numbers), destination))


def test_a_message_is_buried_when_its_letter_arrived__and_not_before() -> None:
    served, post = Served(), Post()
    chore = DeadLetters(cast(Any, post))
    chore.loaded(served.core)
    served.send([b"a", b"b"])
    leaving(served, "other", 0, 1)
    chore.after_append(served.core, is_idle=True)
    assert post.carried == []  # that they leave is not durable yet
    step(served, chore)
    [(parcel, arrived)] = post.carried
    assert (parcel.destination, parcel.sequences.tolist()) == ("other", [0, 1])
    step(served, chore)
    assert len(post.carried) == 1
    arrived(1, None)
    step(served, chore)
    assert served.core.engine.counts.dead == 2
    [_, (rest, arrived)] = post.carried
    assert rest.sequences.tolist() == [1]
    arrived(1, None)
    assert served.rings
    step(served, chore)
    assert (served.core.engine.counts.dead, served.core.engine.counts.buried) == (0, 2)


def test_a_destination_that_fails_waits__another_one_does_not() -> None:
    served, post = Served(), Post()
    chore = DeadLetters(cast(Any, post))
    chore.loaded(served.core)
    served.send([b"a", b"b"])
    leaving(served, "away", 0)
    step(served, chore)
    post.carried[0][1](0, Unavailable("away", 50))
    leaving(served, "there", 1)
    step(served, chore)
    assert [parcel.destination for parcel, _ in post.carried] == ["away", "there"]
    assert chore.next_us(served.core) == served.clock.now_us() + 50_000
    served.clock.advance(ms=50)
    step(served, chore)
    assert [parcel.destination for parcel, _ in post.carried] == ["away", "there", "away"]


def test_what_arrives_after_the_partition_was_read_again_is_sent_once_more() -> None:
    served, post = Served(), Post()
    chore = DeadLetters(cast(Any, post))
    chore.loaded(served.core)
    served.send([b"a"])
    leaving(served, "other", 0)
    step(served, chore)
    chore.loaded(served.core)
    post.carried[0][1](1, None)
    step(served, chore)
    assert len(post.carried) == 2  # it is recognised where it arrived
    assert served.core.engine.counts.dead == 1


def test_damaged_messages_stay_dead_and_are_tried_again__the_others_go() -> None:
    served, post = Served(), Post()
    chore = DeadLetters(cast(Any, post))
    chore.loaded(served.core)
    served.send([b"a", b"b", b"c", b"d", b"e"])
    leaving(served, "other", 0, 1, 2, 3)
    damaged = RowsDamagedError("entry 7 is not what was written", 2)
    for rows, error, left in ((1, None, [1, 2, 3]), (2, damaged, [3])):
        step(served, chore)
        post.carried[-1][1](rows, error)
        step(served, chore)
        assert post.carried[-1][0].sequences.tolist() == left
    post.carried[-1][1](1, None)
    leaving(served, "other", 4)
    step(served, chore)
    assert post.carried[-1][0].sequences.tolist() == [4], "another group does not wait"
    post.carried[-1][1](1, None)
    step(served, chore)
    assert (served.core.engine.counts.dead, served.core.engine.counts.buried) == (4, 1)
    count = len(post.carried)
    again_us = chore.next_us(served.core)
    assert again_us == served.clock.now_us() + dead_letters.DAMAGED_US
    step(served, chore)
    assert len(post.carried) == count
    served.clock.advance(ms=dead_letters.DAMAGED_US // 1_000)
    step(served, chore)
    assert chore.next_us(served.core) is None
    assert post.carried[-1][0].sequences.tolist() == [1, 2]
    post.carried[-1][1](2, None)
    step(served, chore)
    assert (served.core.engine.counts.dead, served.core.engine.counts.buried) == (0, 5)
