"""What requests share, and how much of it is kept."""

from __future__ import annotations

import asyncio

import pytest

from dejaqueue.access.senders import NOBODY
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import TopicUnknown
from dejaqueue.http import flow as flows
from dejaqueue.wire.descriptors import WriteStream


def test_gatherers_are_shared_and_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "GATHERS_MAX", 2)

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
