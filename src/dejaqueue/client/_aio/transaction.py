"""The transaction of the asynchronous client: sends and acks that count together, or not at all.

Room: client. The source of _sync/transaction.py (scripts/generate_sync_client.py): change this one.
Holds: leaving the block commits; leaving it with an exception aborts.
See: client/transacting.py for everything but the waiting.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any

from dejaqueue.client._aio import waiting
from dejaqueue.client._aio.consumer import AsyncMessage, AsyncMessageBatch
from dejaqueue.client.results import SendResult, Settled
from dejaqueue.client.transacting import TransactionCore


class AsyncTransaction:
    """Sends and acks in any topics that count together, or not at all (rule 12).

    Use it as a context manager: the end of the block commits, an exception aborts. Nothing of it
    is seen by anybody before the commit; when that has returned, all of it is. What is not
    committed in time is aborted.
    """

    def __init__(self, core: TransactionCore) -> None:
        self._core = core

    @property
    def name(self) -> str:
        """What the broker calls it; "" before anything was staged."""
        return self._core.name

    def __repr__(self) -> str:
        state = {None: "open", True: "committed", False: "aborted"}[self._core.outcome]
        return f"<{type(self).__name__} {self.name or 'without a name yet'}, {state}>"

    async def __aenter__(self) -> AsyncTransaction:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            await waiting.run(self._core.leave)
        elif self._core.outcome is None:
            await self.commit()

    async def send(self, topic: str, payload: bytes | str | None = None, **fields: Any) -> int:
        """Stage one message; its id. `fields` are the arguments of the client's `send`.

        Each call is a batch of its own: for many messages `send_batch` is faster by far.

        Raises:
            DuplicateKey: a live or staged message has this key; the others still count.
            BadRequest, ResourceExhausted, Unavailable, Refused: now the whole can't be committed.
        """
        message = fields if payload is None else {"payload": payload, **fields}
        result = await waiting.run(self._core.send_batch, topic, [message])
        result.raise_for_status()
        return int(result.ids[0])

    async def send_batch(self, topic: str, messages: object) -> SendResult:
        """Stage many messages, given as to the client's `send_batch`; ids and statuses.

        When this returns they are durable, and nobody sees them before the commit.
        """
        return await waiting.run(self._core.send_batch, topic, messages)

    async def ack(
        self,
        received: AsyncMessage | AsyncMessageBatch | Iterable[AsyncMessage | AsyncMessageBatch],
    ) -> Settled:
        """Stage acks of messages or batches, of whatever topics: done when it is committed.

        Until then they are nobody's, also if that takes longer than their lease; after an abort
        they are delivered again.

        Raises:
            Refused: a message had lost its lease, somebody else may have it: the transaction can't
                be committed any more.
        """
        return await waiting.run(self._core.ack, received)

    async def commit(self) -> None:
        """Commit: all of it counts. Twice is fine.

        Raises:
            Refused: it was aborted: its time was over, or something could not be staged.
            Unavailable: no broker in time; the outcome is unknown, and the same call tells it.
        """
        await waiting.run(self._core.commit)

    async def abort(self) -> None:
        """Abort: none of it counts. Twice is fine. Raises Refused if it was committed."""
        await waiting.run(self._core.abort)
