"""Turns at a partition: what several requests want of it at once is done in one go.

Room: http. On the event loop; what is wanted runs on the partition's worker.
Holds: each request gets the answer to what it wanted, once, when that is durable; what is wrong
with one does not touch another's.

A request for each message costs two changes of thread, and those cost more than the work itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import ref

from dejaqueue.broker.doq.messages import Work, submit
from dejaqueue.broker.streams import (
    Push,
    ServedTopic,
    stored_batches,
    waits_for_store,
    whole_batch,
)
from dejaqueue.errors import DejaQError, InternalError
from dejaqueue.http.gather import call_soon
from dejaqueue.wire.frames import Reply

TOGETHER_MAX = 16
"""In one turn: about a millisecond, which is what others wait meanwhile."""
TURNS_MAX = 4
"""Turns that are on their way."""


@dataclass(slots=True, eq=False)
class _Request:
    wanted: Work
    future: asyncio.Future[Any]


class Turns:
    """Those at one partition."""

    def __init__(self, topic: ServedTopic, number: int) -> None:
        # Weakly: these turns are kept by the topic, which must be forgotten once it is deleted.
        self._topic = ref(topic)
        self._number = number
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Request] = []
        self._in_flight = 0
        self._is_planned = False

    async def run(self, wanted: Work) -> Any:
        """What `wanted` returns, when what it applied is durable. A push comes with its batch.

        Raises:
            BadRequest, Refused, TryLater: as `wanted` does. InternalError.
        """
        request = _Request(wanted, self._loop.create_future())
        self._waiting.append(request)
        self._plan()
        return await request.future

    def _plan(self) -> None:
        if self._waiting and not self._is_planned and self._in_flight < TURNS_MAX:
            self._is_planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_planned = False
        while self._waiting and self._in_flight < TURNS_MAX:
            requests = self._waiting[:TOGETHER_MAX]
            del self._waiting[:TOGETHER_MAX]
            self._in_flight += 1
            answers: list[Any] = []
            topic = self._topic()
            assert topic is not None  # whoever waits holds it
            works = [request.wanted for request in requests]
            submit(topic, self._number, works, answers, partial(self._replied, requests, answers))

    def _replied(self, requests: list[_Request], found: list[Any], reply: Reply) -> None:
        """On the thread that made it durable. Must not raise."""
        error = reply.error
        if error is None:
            # What is done at once is read here: its row is freed in a moment.
            error = _read(found, done=True)
        call_soon(self._loop, self._answer, requests, found, error)

    def _answer(self, requests: list[_Request], found: list[Any], error: DejaQError | None) -> None:
        self._in_flight -= 1
        error = error or _read(found, done=False)
        if error is None and any(isinstance(one, Push) and _waits(one) for one in found):
            fetched = self._loop.run_in_executor(None, _fetch, found)
            fetched.add_done_callback(lambda future: self._tell(requests, found, future.result()))
        else:
            self._tell(requests, found, error or _fetch(found))
        self._plan()

    def _tell(self, requests: list[_Request], found: list[Any], error: DejaQError | None) -> None:
        for index, request in enumerate(requests):
            answer = found[index] if error is None else error
            if request.future.done():
                continue  # its client has gone
            if isinstance(answer, DejaQError):
                request.future.set_exception(answer)
            else:
                request.future.set_result(answer)


def _waits(push: Push) -> bool:
    return any(waits_for_store(batch) for batch in push.kept)


def _fetch(found: list[Any]) -> DejaQError | None:
    """Have the payloads themselves in all pushes; waits for the payload store. Does not raise."""
    try:
        for index, answer in enumerate(found):
            if isinstance(answer, Push) and answer.kept:
                whole = [whole_batch(answer, batch) for batch in answer.kept]
                found[index] = replace(answer, kept=whole)
    except DejaQError as error:
        return error
    except Exception as wrong:  # noqa: BLE001 - the askers get it, the partition goes on
        return InternalError(f"{type(wrong).__name__}: {wrong}")
    return None


def _read(found: list[Any], *, done: bool) -> DejaQError | None:
    """Read the rows of all pushes of a kind, in one go; what went wrong with all of them.

    In the place of a push that cannot be read there is its error.
    """
    indices = [
        index
        for index, answer in enumerate(found)
        if isinstance(answer, Push) and answer.is_done is done
    ]
    if not indices:
        return None
    try:
        batches = stored_batches([found[index] for index in indices])
    except DejaQError as error:
        if len(indices) == 1:
            found[indices[0]] = error
        else:  # perhaps but one of them is damaged: it is of one request
            for index in indices:
                alone = [found[index]]
                wrong = _read(alone, done=done)
                [found[index]] = alone if wrong is None else [wrong]
        return None
    except Exception as wrong:  # noqa: BLE001 - the askers get it, the partition goes on
        return InternalError(f"{type(wrong).__name__}: {wrong}")
    for index, batch in zip(indices, batches, strict=True):
        found[index] = replace(found[index], kept=[batch])
    return None
