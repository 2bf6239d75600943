"""Sends of one message each, from many threads or coroutines, gathered into batches.

Room: client. Knows the columns of a batch and the calls that wait for it; not connections.
Holds: while a batch is on its way the next ones collect (nobody waits for a timer); a message is
refused for its own fault only; each batch wakes its waiters once.
See: client/link.py for the way out; waiting.py of _sync and of _aio for the two kinds of waiting.

Cost: what counts is the processor's time per send with 64 threads. So a waiting thread sleeps on a
plain lock of its own (kept from send to send), and a future exists per batch only.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from dejaqueue.client.link import WriteLink
from dejaqueue.client.row_batch import More, RowBatch, record_batch, schema_of
from dejaqueue.errors import BadRequest, DejaQError, DuplicateKey, InternalError, Refused
from dejaqueue.model import RowStatus
from dejaqueue.wire.frames import Reply

if TYPE_CHECKING:  # 20 ms, which a program without an event loop need not pay
    import asyncio

ROWS_MAX = 4_096
"""Rows at which a batch of single messages is closed."""
BYTES_MAX = 4 << 20
"""Payload bytes at which it is closed."""
ROWS_EARLY = 256
"""Waiting rows with which a batch goes out although another is on its way."""
BATCHES_MAX = 8
"""Batches on their way at most."""

_NO_VALUES = (pa.ArrowException, OverflowError, TypeError, ValueError, struct.error)
"""What is raised for values that a message cannot have."""

Row = tuple[bytes, int | None, str | None, str, int, Any, Any, int | None]
"""payload, due, key, group, priority, tags, headers, expires."""


class Variant:
    """Which columns a batch of single messages has: those streams do not mix.

    Attributes:
        has_due: rows have their own due time; otherwise they are due on arrival.
        has_more: key, group, priority, tags, headers and expires are there too.
    """

    def __init__(self, has_due: bool, has_more: bool) -> None:
        self.has_due, self.has_more = has_due, has_more
        self.schema = schema_of(has_due=has_due, has_more=has_more)

    def values(self, rows: list[Row]) -> tuple[list[bytes], list[int] | None, More | None]:
        """The rows' values, field by field."""
        dues_ms = [row[1] for row in rows] if self.has_due else None
        more = None
        if self.has_more:
            more = cast("More", tuple(zip(*(row[2:] for row in rows), strict=True)))
        return [row[0] for row in rows], cast("list[int] | None", dues_ms), more

    def batch(self, rows: list[Row]) -> pa.RecordBatch:
        """The record batch of these rows."""
        return record_batch(*self.values(rows))


VARIANTS = {(due, more): Variant(due, more) for due in (False, True) for more in (False, True)}


class Gathered:
    """Messages that share a batch, and the calls that wait for it."""

    __slots__ = ("byte_count", "future", "locks", "loops", "outcomes", "reply", "rows")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.byte_count = 0
        self.locks: list[Any] = []
        self.loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        self.future: Future[None] | None = None
        self.reply: Reply | DejaQError | None = None
        self.outcomes: dict[int, Reply | DejaQError] | None = None  # when sent one by one

    def id_of(self, index: int) -> int:
        """The id of a row; raises what was wrong with it."""
        reply = self.reply if self.outcomes is None else self.outcomes[index]
        at = index if self.outcomes is None else 0
        if not isinstance(reply, Reply):
            # Each waiter raises an error object of its own: a traceback belongs to one thread.
            raise copy_error(reply)
        message_id = reply.first_id + at if reply.ids is None else int(reply.ids[at])
        if reply.statuses is not None and reply.statuses[at]:
            status = RowStatus(int(reply.statuses[at]))
            if status is RowStatus.DUPLICATE:
                raise DuplicateKey(self.rows[index][2] or "", message_id)
            if status is not RowStatus.KEPT:
                raise Refused(f"the message was refused: {status.name}")
        return message_id

    def wake(self) -> None:
        """The outcome is there: wake everybody who waits for it."""
        if self.future is not None:
            self.future.set_result(None)
        for lock in self.locks:
            lock.release()
        for loop, futures in self.loops.items():
            loop.call_soon_threadsafe(_finish, futures)


def copy_error(error: DejaQError | None) -> DejaQError:
    """An equal error object, without its traceback."""
    if error is None:
        return InternalError("a batch ended without an answer")
    copied = type(error).__new__(type(error))
    copied.args = error.args
    copied.__dict__.update(error.__dict__)
    return copied


def _finish(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


class RowSender:
    """Sends gathered messages, and one by one when one of them spoils the batch."""

    def __init__(self, link: WriteLink, variant: Variant) -> None:
        self.link = link
        self._variant = variant
        self._mutex = threading.Lock()

    def send(self, gathered: Gathered, wait: bool) -> None:
        """Send them as a batch; `wait` is `WriteLink.send_in_window`'s."""
        try:
            batch = self._batch(gathered.rows)
        except _NO_VALUES as wrong:
            error = BadRequest("message", "values of the message's types", str(wrong))
            self._failed(gathered, error)
            return
        answer = self.link.send_in_window(batch, wait=wait)
        answer.add_done_callback(lambda reply: self._answered(gathered, reply))

    def _batch(self, rows: list[Row]) -> pa.RecordBatch | RowBatch:
        if not self.link.has_rows:
            return self._variant.batch(rows)
        return RowBatch(*self._variant.values(rows))

    def _answered(self, gathered: Gathered, answer: Future[Reply]) -> None:
        wrong = answer.exception()
        if wrong is None:
            gathered.reply = answer.result()
            self._completed(gathered)
        elif isinstance(wrong, DejaQError):
            self._failed(gathered, wrong)
        else:
            self._failed(gathered, InternalError(f"a send failed with {wrong!r}"))

    def _failed(self, gathered: Gathered, error: DejaQError) -> None:
        if type(error) is BadRequest and len(gathered.rows) > 1:
            # One row's fault, and nothing was changed: each is sent alone, to tell them apart.
            gathered.outcomes = {}
            for index in range(len(gathered.rows)):
                self._send_alone(gathered, index)
            return
        gathered.reply = error
        self._completed(gathered)

    def _send_alone(self, gathered: Gathered, index: int) -> None:
        def answered(answer: Future[Reply]) -> None:
            wrong = answer.exception()
            outcome: Reply | DejaQError
            if wrong is None:
                outcome = answer.result()
            else:
                outcome = wrong if isinstance(wrong, DejaQError) else InternalError(repr(wrong))
            self._one_done(gathered, index, outcome)

        try:
            batch = self._batch([gathered.rows[index]])
        except _NO_VALUES as wrong:
            error = BadRequest("message", "values of the message's types", str(wrong))
            self._one_done(gathered, index, error)
            return
        self.link.send_in_window(batch, wait=False).add_done_callback(answered)

    def _one_done(self, gathered: Gathered, index: int, outcome: Reply | DejaQError) -> None:
        assert gathered.outcomes is not None
        with self._mutex:
            gathered.outcomes[index] = outcome
            last = len(gathered.outcomes) == len(gathered.rows)
        if last:
            self._completed(gathered)

    def _completed(self, gathered: Gathered) -> None:
        """The outcome is there; called once."""
        gathered.wake()


class Gather(RowSender):
    """Gathers single sends of one topic and one variant."""

    def __init__(self, link: WriteLink, variant: Variant) -> None:
        super().__init__(link, variant)
        self._open = Gathered()
        self._closed: deque[Gathered] = deque()
        self._on_way = 0

    def add(self, row: Row, lock: Any, future: asyncio.Future[None] | None) -> tuple[Gathered, int]:
        """Put a message into the open batch. Then call `pump`."""
        with self._mutex:
            gathered = self._open
            rows = gathered.rows
            index = len(rows)
            if index >= ROWS_MAX or gathered.byte_count >= BYTES_MAX:
                self._closed.append(gathered)
                gathered = self._open = Gathered()
                rows, index = gathered.rows, 0
            rows.append(row)
            gathered.byte_count += len(row[0])
            if lock is not None:
                gathered.locks.append(lock)
            if future is not None:
                gathered.loops.setdefault(future.get_loop(), []).append(future)
        return gathered, index

    def pump(self, *, wait: bool = True) -> None:
        """Send the open batch if its turn has come.

        Args:
            wait: False = a connection that is not open yet is opened by another thread.
        """
        # A look without the mutex: most calls find a batch on its way, and little collected.
        if self._on_way and len(self._open.rows) < ROWS_EARLY and not self._closed:
            return
        with self._mutex:
            if self._on_way >= BATCHES_MAX:
                return
            if self._closed:
                gathered = self._closed.popleft()
            else:
                gathered = self._open
                if not gathered.rows or (self._on_way and len(gathered.rows) < ROWS_EARLY):
                    return
                self._open = Gathered()
            self._on_way += 1
        self.send(gathered, wait)

    def pump_soon(self) -> None:
        """As `pump`, for a caller that must not block."""
        self.pump(wait=False)

    def _completed(self, gathered: Gathered) -> None:
        with self._mutex:
            self._on_way -= 1
        # The next batch first, then the waiters: the broker works while they wake up.
        self.pump(wait=False)
        gathered.wake()
