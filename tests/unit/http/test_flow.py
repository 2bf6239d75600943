"""What requests share, and how much of it is kept."""

from __future__ import annotations

import asyncio
import gc
import weakref
from functools import partial

import pytest
from fastapi import Request

from dejaqueue.access.senders import NOBODY
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import TopicUnknown
from dejaqueue.http import flow as flows
from dejaqueue.http import gather
from dejaqueue.http.auditing import IS_CLOSING
from dejaqueue.http.gather import LOOK_AT
from dejaqueue.model import Topic
from dejaqueue.wire.descriptors import WriteStream


def test_a_connection_that_is_closed_has_nobody_who_waits() -> None:
    assert not flows.has_gone(Request({"type": "http"})), "whoever calls without a connection"
    for is_closing in (False, True):
        scope = {"type": "http", IS_CLOSING: partial(bool, is_closing)}
        assert flows.has_gone(Request(scope)) is is_closing


def test_gatherers_are_shared_and_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "GATHERS_MAX", 2)

    async def run() -> None:
        flow = flows.Flow(broker)
        first = flow.gather(WriteStream("t"), NOBODY)
        assert flow.gather(WriteStream("t"), NOBODY) is first
        waiting = first.put([{"payload": ""}])
        for delay_ms in range(5):
            flow.gather(WriteStream("t", "nack", argument_ms=delay_ms), NOBODY)
        assert flow.gather(WriteStream("t"), NOBODY) is first  # it was not idle
        assert (await waiting).ids == [0]
        with pytest.raises(TopicUnknown):
            flow.gather(WriteStream("other"), NOBODY)
        flow.close()

    asyncio.run(run())


def test_topics_that_are_gone_are_let_go_of(broker: Broker) -> None:
    """A client that makes and deletes topics had the broker keep a thousand of them."""
    served = []

    async def run() -> None:
        flow = flows.Flow(broker)
        for number in range(3 * LOOK_AT):
            name = f"for-a-while-{number}"
            broker.create_topic(Topic(name))
            await flow.gather(WriteStream(name), NOBODY).put([{"payload": ""}])
            served.append(weakref.ref(broker.runtime(name)))
            broker.delete_topic(name)
        gc.collect()
        assert sum(one() is not None for one in served) <= LOOK_AT + 1
        flow.close()

    asyncio.run(run())
