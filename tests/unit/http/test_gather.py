"""Requests share batches, and each gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.access.senders import NOBODY
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import BadRequest, TopicUnknown
from dejaqueue.http.columns import send_batch
from dejaqueue.http.gather import Answered, Gather, write
from dejaqueue.model import RowStatus, Topic
from dejaqueue.wire.descriptors import WriteStream


class Batches:
    """Notes how many rows each batch has."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def __call__(self, messages: Sequence[Any]) -> pa.RecordBatch:
        self.rows.append(len(messages))
        return send_batch(messages, 0)


def test_requests_of_one_turn_share_a_batch(broker: Broker) -> None:
    batches = Batches()

    async def run() -> list[Answered]:
        gather = Gather(broker, WriteStream("t"), NOBODY, batches)
        futures = [gather.put([{"payload": str(number)}] * number) for number in (1, 2, 3)]
        assert not gather.is_idle
        found = await asyncio.gather(*futures)
        assert gather.is_idle
        return list(found)

    found = asyncio.run(run())
    assert batches.rows == [6]
    assert [answered.ids for answered in found] == [[0], [1, 2], [3, 4, 5]]


def test_a_wrong_request_is_refused_alone(broker: Broker) -> None:
    batches = Batches()

    async def run() -> list[Any]:
        gather = Gather(broker, WriteStream("t"), NOBODY, batches)
        rows: list[dict[str, Any]] = [{"payload": "a"}, {"payload": 1}, {"payload": "c"}]
        futures = [gather.put([row]) for row in rows]
        return list(await asyncio.gather(*futures, return_exceptions=True))

    first, second, third = asyncio.run(run())
    assert isinstance(second, BadRequest)
    assert second.field == "payload of row 0"
    assert [first.ids, third.ids] == [[0], [1]]
    assert batches.rows == [3, 1, 1, 1]


def test_rows_have_their_own_statuses(broker: Broker) -> None:
    async def run() -> list[Answered]:
        gather = Gather(broker, WriteStream("t"), NOBODY, lambda rows: send_batch(rows, 0))
        futures = [gather.put([{"payload": "", "key": key}]) for key in "aba"]
        return list(await asyncio.gather(*futures))

    found = asyncio.run(run())
    statuses = [status for answered in found for status in answered.statuses]
    assert statuses == [RowStatus.OK, RowStatus.OK, RowStatus.DUPLICATE]
    assert found[2].ids == found[0].ids


def test_a_topic_made_anew_is_written_to(broker: Broker) -> None:
    async def run() -> None:
        gather = Gather(broker, WriteStream("t"), NOBODY, lambda rows: send_batch(rows, 0))
        assert (await gather.put([{"payload": ""}])).ids == [0]
        broker.delete_topic("t")
        with pytest.raises(TopicUnknown):
            await gather.put([{"payload": ""}])
        broker.create_topic(Topic("t"))
        assert (await gather.put([{"payload": ""}])).ids == [1], "ids go on"

    asyncio.run(run())
    assert broker.call("stats", {"topic": "t"})["scheduled"] == 1


def test_a_batch_by_itself_says_what_is_wrong(broker: Broker) -> None:
    async def run() -> None:
        batch = pa.record_batch({"payload": [b"x"], "other": [1]})
        with pytest.raises(BadRequest, match="other"):
            await write(broker, WriteStream("t"), NOBODY, batch)
        assert (await write(broker, WriteStream("t"), NOBODY, batch.select(["payload"]))).ids == [0]

    asyncio.run(run())
