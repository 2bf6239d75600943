"""Covers: brokers that append to one stream by turns, at random, while answers and appends are lost
or late: numbers of each partition stay dense, and what was acknowledged is there once.

Not covered: what a journal does with an unknown outcome (the writer's own tests).
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, cast

import pytest

from dejaqueue.connections.nats.answers import Reply
from dejaqueue.connections.nats.connection import Message, NatsConnection
from dejaqueue.errors import Fenced, ResourceExhausted, Unavailable
from dejaqueue.journal.records.nats.reading import NUMBER
from dejaqueue.journal.records.nats.shard import EXPECTED, SMALL_BYTES, Shard
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.unit.journal.records.nats.test_shard import NAME, PlayedStream

SEEDS, STEPS = 60, 120
SUBJECTS = ("p", "q", "r")
FULL = {"error": {"code": 500, "err_code": 10047, "description": "full"}}


class UnreliableStream(PlayedStream):
    """Its appends and answers are lost, or an append arrives later than what was sent after it."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self._late: list[list[Message]] = []

    def publish_each(self, messages: Sequence[Message], timeout_s: float = 1) -> list[Reply | None]:
        if messages[0].subject.startswith("$JS.API."):
            return super().publish_each(messages, timeout_s)
        if self._late and self._chance.random() < 0.5:
            self._arrive(self._late.pop(self._chance.randrange(len(self._late))))
        what = self._chance.random()
        if what < 0.1:
            return [None]  # it never arrives
        if what < 0.2:
            self._late.append(list(messages))
            return [None]
        if what < 0.25:
            return [Reply("", json.dumps(FULL).encode())]
        reply = super().publish_each(messages, timeout_s)
        return [None] if what < 0.4 else reply

    def _arrive(self, messages: list[Message]) -> None:
        super().publish_each(messages)


class Owner:
    """A broker that believes to know the last number of some partitions, rightly or not."""

    def __init__(self, stream: PlayedStream) -> None:
        connection = cast(NatsConnection, stream)
        self._shard = Shard(connection, NAME, VirtualClock(), takes_batches=True)
        self._lasts: dict[str, int] = {}

    def step(self, chance: random.Random, acknowledged: dict[tuple[str, int], bytes]) -> None:
        """Append some records of one partition behind what it believes to be the last one."""
        subject = chance.choice(SUBJECTS)
        if subject not in self._lasts:
            self._lasts[subject] = self._shard.last_of(subject)[0]
        after = self._lasts[subject]
        large = SMALL_BYTES + 1 if chance.random() < 0.1 else 0
        contents = [chance.randbytes(8).ljust(large) for _ in range(chance.choice((1, 1, 2, 5)))]
        try:
            self._shard.append(subject, after, contents)
        except (Fenced, Unavailable):
            del self._lasts[subject]  # another owner has it, or nobody knows
        except ResourceExhausted:
            pass  # nothing was stored: it may be tried again
        else:
            self._lasts[subject] = after + len(contents)
            for number, content in enumerate(contents, after + 1):
                assert acknowledged.setdefault((subject, number), content) is content


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_numbers_are_dense_and_what_was_acknowledged_is_there_once(first: int) -> None:
    counts = {"records": 0, "acknowledged": 0}
    for seed in range(first, first + 20):
        chance = random.Random(seed)
        stream = UnreliableStream(chance)
        owners = [Owner(stream) for _ in range(3)]
        acknowledged: dict[tuple[str, int], bytes] = {}
        for _ in range(STEPS):
            chance.choice(owners).step(chance, acknowledged)
        there = found_in(stream)
        for subject in SUBJECTS:
            numbers = stream.numbers(subject)
            assert numbers == list(range(1, len(numbers) + 1)), (seed, subject)
        for place, content in acknowledged.items():
            assert there.get(place) == content, (seed, place)
        counts["records"] += len(there)
        counts["acknowledged"] += len(acknowledged)
    assert counts["records"] > counts["acknowledged"] > 1_000, "answers are lost, and most come"


def found_in(stream: PlayedStream) -> dict[tuple[str, int], bytes]:
    """Contents by subject and number."""
    return {(one, int(headers[NUMBER])): content for one, headers, content in stream.messages}


def test_a_shard_that_does_not_compare_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the stream's own comparison, what is late lands behind what was sent after it."""

    def stored(self: PlayedStream, messages: Sequence[Message], timeout_s: float = 1) -> Any:
        if not messages[0].subject.startswith("$JS.API."):
            headers = messages[0].headers | {EXPECTED: str(len(self.messages))}
            messages = [messages[0]._replace(headers=headers), *messages[1:]]
        return whole(self, messages, timeout_s)

    whole = PlayedStream.publish_each
    monkeypatch.setattr(PlayedStream, "publish_each", stored)
    with pytest.raises(AssertionError):
        for first in range(0, SEEDS, 20):
            test_numbers_are_dense_and_what_was_acknowledged_is_there_once(first)
