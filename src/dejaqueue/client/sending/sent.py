"""Parts of sending that both clients share: one message as a row, and futures of answers.

Room: client. Waits for nothing.
See: gather.py and client/link.py.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Any, TypeVar

import numpy as np

from dejaqueue import limits
from dejaqueue.client.results import SendResult
from dejaqueue.client.sending import fields
from dejaqueue.client.sending.content import NOTHING, content_of
from dejaqueue.client.sending.gather import Gathered, Row
from dejaqueue.client.sending.inputs import delay_ms_of, due_ms_of, expires_ms_of
from dejaqueue.errors import BadRequest
from dejaqueue.wire.frames import Reply, SettleOp

T = TypeVar("T")


class AwaitableFuture(Future[T]):
    """A future of the client's threads, which a coroutine can await as well."""

    def __await__(self) -> Generator[Any, None, T]:
        import asyncio  # 20 ms, which a program without an event loop need not pay

        return asyncio.wrap_future(self).__await__()


class Sent:
    """A message on its way: a future of its id."""

    __slots__ = ("_gathered", "_index")

    def __init__(self, gathered: Gathered, index: int) -> None:
        self._gathered = gathered
        self._index = index

    def done(self) -> bool:
        """True if the answer is there."""
        future = self._gathered.future
        return future is not None and future.done()

    def result(self, timeout: float | None = None) -> int:
        """The id; waits for it, at most `timeout` seconds.

        Raises:
            DuplicateKey, BadRequest, ResourceExhausted, Unavailable: what was wrong.
            TimeoutError: no answer in time; it may still come.
        """
        assert self._gathered.future is not None
        self._gathered.future.result(timeout)
        return self._gathered.id_of(self._index)

    def __await__(self) -> Generator[Any, None, int]:
        import asyncio

        assert self._gathered.future is not None
        yield from asyncio.wrap_future(self._gathered.future).__await__()
        return self._gathered.id_of(self._index)


def row_of(
    payload: object,
    due: datetime | int | None,
    delay: timedelta | float | None,
    key: str | None,
    group: str,
    priority: int | None,
    tags: Sequence[str],
    headers: Mapping[str, str] | None,
    now_ms: int,
    expires: datetime | int | None = None,
    ttl: timedelta | float | None = None,
    json: object = NOTHING,
) -> tuple[Row, tuple[bool, bool]]:
    """A message as a row, and the kind of batch it goes into. Raises BadRequest.

    Args:
        now_ms: the broker's time; matters for a delay, and for a ttl without a due time.
    """
    content = content_of(payload, json)
    due_ms: int | None = None
    if due is not None:
        if delay is not None:
            raise BadRequest("delay", "due or delay, not both", delay)
        due_ms = due_ms_of(due)
    elif delay is not None:
        due_ms = now_ms + delay_ms_of(delay)
    if (
        key is None
        and not group
        and priority is None
        and not tags
        and not headers
        and expires is None
        and ttl is None
    ):
        return _plain(content, due_ms), (due_ms is not None, False)
    row = (
        content,
        due_ms,
        fields.key_of("key", key),
        fields.group_of("group", group),
        fields.priority_of("priority", priority),
        fields.tags_of("tags", tags),
        fields.headers_of("headers", headers),
        expires_ms_of(expires, ttl, now_ms if due_ms is None else due_ms),
    )
    return row, (due_ms is not None, True)


def _plain(content: bytes, due_ms: int | None) -> Row:
    """A message that is nothing but a payload, and maybe a due time."""
    return content, due_ms, None, "", limits.PRIORITY_DEFAULT, None, None, None


def result_of(replies: Sequence[Reply]) -> SendResult:
    """The answers to the pieces of one call, joined."""
    if len(replies) == 1:
        return SendResult(replies[0].all_ids(), replies[0].all_statuses())
    if not replies:
        return SendResult(np.zeros(0, np.int64), np.zeros(0, np.uint8))
    return SendResult(
        np.concatenate([reply.all_ids() for reply in replies]),
        np.concatenate([reply.all_statuses() for reply in replies]),
    )


def done_already(op: SettleOp, count: int) -> Future[Reply]:
    """The answer for messages that were acked when they were sent: they can be acked again, and
    nothing else. Raises BadRequest."""
    if op is not SettleOp.ACK:
        raise BadRequest(op.name.lower(), "a message that is leased; with auto_ack it is done")
    done: Future[Reply] = Future()
    done.set_result(Reply(0, count))
    return done


def joined(answers: list[Future[Reply]]) -> AwaitableFuture[SendResult]:
    """One future of many answers; it fails with the first error when all are there."""
    whole: AwaitableFuture[SendResult] = AwaitableFuture()
    left = len(answers)
    mutex = threading.Lock()

    def answered(_: Future[Reply]) -> None:
        nonlocal left
        with mutex:
            left -= 1
            if left:
                return
        for answer in answers:
            wrong = answer.exception()
            if wrong is not None:
                whole.set_exception(wrong)
                return
        whole.set_result(result_of([answer.result() for answer in answers]))

    if not answers:
        whole.set_result(result_of([]))
    for answer in answers:
        answer.add_done_callback(answered)
    return whole
