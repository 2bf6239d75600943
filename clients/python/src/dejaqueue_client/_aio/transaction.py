"""The transaction of the asynchronous client: sends and acks that count together, or not at all.

Room: client. The source of _sync/transaction.py (scripts/generate_sync_client.py): change this one.
Holds: leaving the block commits; leaving it with an exception aborts; after something that was not
staged for sure nothing can be committed.
See: docs/guides/transactions.md.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from dejaqueue_client import limits
from dejaqueue_client._aio import waiting
from dejaqueue_client._aio.connection import AsyncConnection, lines_of
from dejaqueue_client._aio.consumer import AsyncMessage, AsyncMessageBatch
from dejaqueue_client.errors import BadRequest, DejaQError, Refused
from dejaqueue_client.filters import topic_path
from dejaqueue_client.held import Leased
from dejaqueue_client.inputs import delay_ms_of, pieces, pieces_of
from dejaqueue_client.model import RowStatus
from dejaqueue_client.results import SendResult, Settled, sent_rows, statuses_in
from dejaqueue_client.topic_names import check_topic_name, parse_subscription

DECISION_SECONDS = 60.0
"""So long a broker waits until a decision is durable everywhere."""


class AsyncTransaction:
    """Sends and acks in any topics that count together, or not at all (rule 12).

    Use it as a context manager: the end of the block commits, an exception aborts. Nothing of it
    is seen by anybody before the commit; when that has returned, all of it is. What is not
    committed in time is aborted.
    """

    def __init__(self, connection: AsyncConnection, timeout: object) -> None:
        self._timeout_ms = delay_ms_of(timeout, "timeout")
        if not 1 <= self._timeout_ms <= limits.TRANSACTION_MS_MAX:
            most = limits.TRANSACTION_MS_MAX / 1_000
            limit = f"from 0.001 to {most:g} seconds"
            raise BadRequest("timeout", limit, self._timeout_ms / 1_000)
        self._connection = connection
        self._mutex = waiting.Mutex()
        self._name = ""
        self._outcome: bool | None = None
        self._participants: set[str] = set()
        self._wrong: DejaQError | None = None

    @property
    def name(self) -> str:
        """What the broker calls it; "" before anything was staged."""
        return self._name

    def __repr__(self) -> str:
        state = {None: "open", True: "committed", False: "aborted"}[self._outcome]
        return f"<{type(self).__name__} {self._name or 'without a name yet'}, {state}>"

    async def __aenter__(self) -> AsyncTransaction:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._outcome is not None:
            return
        if kind is None:
            await self.commit()
            return
        async with self._mutex:
            await self._abort_quietly()

    async def send(self, topic: str, payload: bytes | str | None = None, **fields: Any) -> int:
        """Stage one message; its id. `fields` are the arguments of the client's `send`.

        Each call is a request of its own: for many messages `send_batch` is faster by far.

        Raises:
            DuplicateKey: a live or staged message has this key; the others still count.
            BadRequest, ResourceExhausted, Unavailable, Refused: now the whole can't be committed.
        """
        message = fields if payload is None else {"payload": payload, **fields}
        result = await self.send_batch(topic, [message])
        result.raise_for_status()
        return result.ids[0]

    async def send_batch(self, topic: str, messages: object) -> SendResult:
        """Stage many messages, given as to the client's `send_batch`; ids and statuses.

        When this returns they are durable, and nobody sees them before the commit.
        """
        path = f"{topic_path(check_topic_name(topic))}/messages"
        whole = SendResult([], [])
        async with self._mutex:
            self._check_open()
            try:
                for piece in pieces_of(messages):
                    await self._begin(topic)
                    answer = await self._connection.ask(
                        "POST",
                        path,
                        lines_of(piece),
                        parameters={"transaction": self._name},
                        name=uuid.uuid4().hex,
                    )
                    self._participants.update(answer["participants"])
                    result = sent_rows(answer["messages"])
                    whole = SendResult(whole.ids + result.ids, whole.statuses + result.statuses)
            except DejaQError as wrong:
                self._wrong = wrong
                raise
        return whole

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
        is_one = isinstance(received, AsyncMessage | AsyncMessageBatch)
        several: list[Any] = [received] if is_one else list(received)  # type: ignore[arg-type]
        parts = [_origin(one) for one in several]
        statuses: list[RowStatus] = []
        async with self._mutex:
            self._check_open()
            try:
                for core, rows in parts:
                    core.held.forget(rows)
                    for piece in pieces(rows):
                        statuses += await self._stage_ack(core.options.source, list(piece))
            except DejaQError as wrong:
                self._wrong = wrong
                raise
            lost = statuses.count(RowStatus.LEASE_LOST)
            if any(statuses):
                text = f"{lost} of {len(statuses)} acked messages had lost their lease"
                self._wrong = Refused(text)
        settled = Settled(statuses)
        settled.raise_for_status()
        return settled

    async def _stage_ack(self, source: str, rows: list[Leased]) -> list[RowStatus]:
        await self._begin(parse_subscription(source)[0])
        # Sent once: a second one would find the leases gone.
        answer = await self._connection.ask(
            "POST",
            f"{topic_path(source)}/ack",
            {"messages": [one.named() for one in rows]},
            parameters={"transaction": self._name},
            repeats=False,
        )
        # The partitions of a topic are those of all its subscriptions.
        for participant in answer["participants"]:
            place, _, number = participant.rpartition("/")
            self._participants.add(f"{parse_subscription(place)[0]}/{number}")
        return statuses_in(answer["messages"])

    async def _begin(self, topic: str) -> None:
        if not self._name:
            body = {"topic": topic, "timeout_ms": self._timeout_ms}
            answer = await self._connection.ask("POST", "/v1/transactions", body)
            self._name = str(answer["transaction"])

    def _check_open(self) -> None:
        if self._outcome is not None:
            word = "committed" if self._outcome else "aborted"
            raise Refused(f"the transaction is over: it was {word}")

    async def commit(self) -> None:
        """Commit: all of it counts. Twice is fine.

        Raises:
            Refused: it was aborted: its time was over, or something could not be staged.
            Unavailable: no broker in time; the outcome is unknown, and the same call tells it.
        """
        async with self._mutex:
            if self._outcome:
                return
            self._check_open()
            if self._wrong is not None:
                await self._abort_quietly()
                text = f"the transaction was aborted, as it is not whole: {self._wrong}"
                raise Refused(text)
            try:
                await self._decide("commit")
            except Refused:
                self._outcome = False
                raise
            self._outcome = True

    async def abort(self) -> None:
        """Abort: none of it counts. Twice is fine. Raises Refused if it was committed."""
        async with self._mutex:
            if self._outcome is False:
                return
            self._check_open()
            self._outcome = False
            await self._decide("abort")

    async def _abort_quietly(self) -> None:
        self._outcome = False
        try:
            await self._decide("abort")
        except DejaQError:
            return  # its time will be over

    async def _decide(self, decision: str) -> None:
        if self._name:
            body = {"transaction": self._name, "participants": sorted(self._participants)}
            path = f"/v1/transactions/{decision}"
            await self._connection.ask("POST", path, body, wait_seconds=DECISION_SECONDS)


def _origin(received: object) -> tuple[Any, list[Leased]]:
    if not isinstance(received, AsyncMessage | AsyncMessageBatch):
        raise BadRequest("received", "messages or batches of a consumer", received)
    core, rows = received.origin()
    if core.options.auto_ack:
        raise BadRequest("received", "messages of a consumer without auto_ack", received)
    return core, rows
