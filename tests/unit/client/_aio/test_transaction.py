"""The block of a transaction: how it ends, by its end or by an exception.

Not covered: what is staged and how a lost answer is asked for again
(tests/unit/client/test_transacting.py), the broker (tests/integration/test_transactions.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from dejaqueue.client import AsyncClient
from dejaqueue.client._aio.transaction import AsyncTransaction
from dejaqueue.errors import DuplicateKey, Refused
from dejaqueue.model import RowStatus
from dejaqueue.wire.frames import Reply
from tests.unit.client.fake_transport import FakeTransport, ok

Block = Callable[[AsyncTransaction], Awaitable[Any]]


class Failure(Exception):
    """What goes wrong in a block."""


def run(block: Block, answer: Callable[[int, Any], Reply] = ok) -> list[str]:
    """Run a block of a transaction; the calls that it made."""
    transport = FakeTransport(answer, actions={"begin_transaction": {"transaction": "x"}})

    async def main() -> None:
        async with AsyncClient(transport=transport) as client:
            transaction = client.transaction(timeout=1)
            try:
                async with transaction:
                    await block(transaction)
            except Failure:
                pass

    asyncio.run(main())
    return [name for name, _ in transport.calls]


def test_the_end_of_the_block_commits() -> None:
    async def block(transaction: AsyncTransaction) -> None:
        assert transaction.name == ""
        assert await transaction.send("t", b"a") == 1_000
        assert transaction.name == "x"

    assert run(block) == ["begin_transaction", "commit_transaction"]


def test_an_exception_aborts_and_goes_on() -> None:
    async def block(transaction: AsyncTransaction) -> None:
        await transaction.send("t", b"a")
        raise Failure

    assert run(block) == ["begin_transaction", "abort_transaction"]


def test_a_block_that_stages_nothing_asks_nothing() -> None:
    async def block(_transaction: AsyncTransaction) -> None:
        return None

    assert run(block) == []


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_what_was_decided_in_the_block_is_not_decided_again(end: str) -> None:
    async def block(transaction: AsyncTransaction) -> None:
        await transaction.send_batch("t", [b"a", b"b"])
        await getattr(transaction, end)()
        await getattr(transaction, end)()

    assert run(block) == ["begin_transaction", f"{end}_transaction"]


def test_after_a_commit_it_cannot_be_aborted() -> None:
    async def block(transaction: AsyncTransaction) -> None:
        await transaction.send("t", b"a")
        await transaction.commit()
        with pytest.raises(Refused, match="committed"):
            await transaction.abort()

    run(block)


def test_a_key_that_is_taken_is_an_error_of_that_message_alone() -> None:
    def duplicate(number: int, batch: Any) -> Reply:
        statuses = np.array([RowStatus.DUPLICATE], dtype=np.uint8)
        return Reply(number, batch.num_rows, ids=np.array([5]), statuses=statuses)

    async def block(transaction: AsyncTransaction) -> None:
        with pytest.raises(DuplicateKey):
            await transaction.send("t", b"a", key="k")

    assert run(block, duplicate) == ["begin_transaction", "commit_transaction"]
