"""Moves and cancels by name: what is sent of them.

Not covered: the columns (tests/unit/client/test_changes.py), what a broker answers
(tests/integration/test_comfort.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dejaqueue.client._aio.client import AsyncClient
from dejaqueue.errors import BadRequest, Unavailable
from dejaqueue.wire.frames import Reply
from tests.unit.client._aio.test_client import run
from tests.unit.client.fake_transport import FakeTransport, ok


def test_a_million_rows_are_pipelined() -> None:
    transport = FakeTransport(ok)

    async def main(client: AsyncClient) -> Any:
        ids = np.arange(20_000)
        assert (await client.cancel("t", ids=ids)).ok
        return await client.move("t", ids=ids, due=ids + 1_800_000_000_000)

    assert len(run(transport, main)) == 20_000
    cancel, move = transport.writes
    assert (cancel.stream.op, move.stream.op) == ("cancel", "move")
    assert [batch.num_rows for _, batch, _ in move.sent] == [8_192, 8_192, 3_616]
    assert move.sent[1][1].column("due")[0].as_py() == 8_192 + 1_800_000_000_000
    assert move.sent[0][1].schema.names == ["id", "due"]


def test_moves_and_cancels_by_key() -> None:
    transport = FakeTransport(ok)

    async def main(client: AsyncClient) -> None:
        assert (await client.move("t", key="a", due=1_800_000_000_000)).ok
        assert (await client.cancel("t", keys=["a", "b"])).ok
        assert (await client.cancel("t", id=5)).ok

    run(transport, main)
    sent = [write.sent[0][1].to_pydict() for write in transport.writes]
    assert sent == [{"key": ["a"], "due": [1_800_000_000_000]}, {"key": ["a", "b"]}, {"id": [5]}]


def test_conditions_travel_with_the_names() -> None:
    transport = FakeTransport(ok)

    async def main(client: AsyncClient) -> None:
        assert (await client.move("t", id=5, by=-2, if_due=1_800_000_000_000)).ok
        assert (await client.cancel("t", id=5, if_due=1_800_000_000_000)).ok

    run(transport, main)
    move, cancel = [write.sent[0][1].to_pydict() for write in transport.writes]
    assert move == {"id": [5], "by_ms": [-2_000], "if_due": [1_800_000_000_000]}
    assert cancel == {"id": [5], "if_due": [1_800_000_000_000]}


def test_a_shift_is_sent_once__over_a_stream_of_its_own__when_a_broker_answers() -> None:
    transport = FakeTransport(ok)

    async def main(client: AsyncClient) -> None:
        assert (await client.move("t", id=5, by=2)).ok
        assert (await client.move("t", id=5, by=2)).ok

    run(transport, main)
    assert [len(write.sent) for write in transport.writes] == [1, 1]
    assert [name for name, _ in transport.calls] == ["clock", "clock"]


def test_a_shift_whose_connection_breaks_is_not_sent_again() -> None:
    transport = FakeTransport(lambda number, batch: Reply(number, error=Unavailable("broken")))

    async def main(client: AsyncClient) -> None:
        with pytest.raises(Unavailable, match="not sent again"):
            await client.move("t", id=5, by=2)

    run(transport, main)
    assert len(transport.writes) == 1


def test_deliveries_of_another_consumer_are_given_back_by_id_and_attempt() -> None:
    transport = FakeTransport(ok)

    async def main(client: AsyncClient) -> None:
        given = await client.nack("t", ids=[5, 6], attempts=[1, 3], delay=2, reason="it died")
        assert given.ok
        assert (await client.nack("t", ids=[5], attempts=[1], dead=True)).ok
        for ids, attempts in (([5], [1, 2]), ([5], [70_000])):
            with pytest.raises(BadRequest, match="attempts"):
                await client.nack("t", ids=ids, attempts=attempts)

    run(transport, main)
    later, dead = transport.writes
    assert (later.stream.argument_ms, later.stream.reason) == (2_000, "it died")
    assert later.sent[0][1].to_pydict() == {"id": [5, 6], "attempts": [1, 3]}
    assert (dead.stream.argument_ms, dead.stream.dead) == (-1, True)
