"""Uploads: large payloads are stored before the batches that they came with go on.

Room: broker. One for each open stream; called by the stream's thread, goes on on threads that ask
the store.
Holds: batches go on in the order in which they came; one goes on when all its large payloads are
durable, or is refused; a stream without large payloads waits for nothing.
See: payloads.py; topic/writer.py, which has one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from dejaqueue.broker.payloads.payloads import STOPPING, Payloads
from dejaqueue.broker.payloads.streamed import adopt
from dejaqueue.engine.arrays import Int64s
from dejaqueue.errors import DejaQError, InternalError
from dejaqueue.model import Topic
from dejaqueue.schema import references
from dejaqueue.schema.checks import SendColumns
from dejaqueue.schema.references import Reference
from dejaqueue.schema.send_rows import SendRows
from dejaqueue.schema.text_columns import text_offsets
from dejaqueue.schema.vouchers import is_voucher

Columns: TypeAlias = SendColumns | SendRows


@dataclass(slots=True, eq=False)
class _Batch:
    """A batch that waits.

    Attributes:
        rows: those with a large payload.
        left: payloads that are not stored yet.
        error: why one is not.
    """

    columns: Columns
    go_on: Callable[[Columns], None]
    refuse: Callable[[DejaQError], None]
    rows: Sequence[int]
    stored: list[Reference | None]
    left: int
    byte_count: int
    error: DejaQError | None = None


class Uploads:
    """The batches of one stream.

    Args:
        payloads: None = nothing is stored apart.
        owner: as for Payloads.new_name.
        topic: settings as they are now; None = vouchers are none here.
    """

    def __init__(
        self, payloads: Payloads | None, owner: str, topic: Callable[[], Topic] | None = None
    ) -> None:
        self._payloads, self._owner, self._topic = payloads, owner, topic
        self._guard = threading.Lock()
        self._waiting: deque[_Batch] = deque()
        self._is_going_on = False

    def direct(self, columns: Columns) -> Columns | None:
        """The batch as it is to be journalled; None = it has to wait (`put`)."""
        payloads = self._payloads
        if payloads is not None and (
            self._waiting
            or self._is_going_on
            or large_rows(columns, payloads.inline_bytes_max)
            or self._vouchers(columns)
        ):
            return None
        return escaped(columns)

    def _vouchers(self, columns: Columns) -> list[int]:
        """Rows whose payload was streamed before."""
        if self._topic is None or self._payloads is None or self._payloads.seal is None:
            return []
        return voucher_rows(columns)

    def put(
        self,
        columns: Columns,
        go_on: Callable[[Columns], None],
        refuse: Callable[[DejaQError], None],
    ) -> None:
        """Have a batch go on when its large payloads are stored, and behind those before it.

        Args:
            go_on: called with the batch as it is to be journalled, or else
            refuse: with why it is not; once, on this thread or another. Neither may raise.

        Raises:
            ResourceExhausted: too many payloads wait; neither is called.
        """
        payloads = self._payloads
        assert payloads is not None, "there is something to wait for"
        vouchers = self._vouchers(columns)
        columns = escaped(columns, vouchers)
        rows = large_rows(columns, payloads.inline_bytes_max) + vouchers
        contents = _contents(columns, rows)
        byte_count = sum(map(len, contents))
        batch = _Batch(columns, go_on, refuse, rows, [None] * len(rows), len(rows), byte_count)
        payloads.hold(byte_count)
        with self._guard:
            self._waiting.append(batch)
        for place, content in enumerate(contents):
            self._store(payloads, batch, place, content)
        self._advance()

    def _store(self, payloads: Payloads, batch: _Batch, place: int, content: bytes) -> None:
        def stored(future: Future[Reference]) -> None:
            error: DejaQError | None = None
            try:
                batch.stored[place] = future.result()
            except CancelledError:
                error = STOPPING
            except DejaQError as failure:
                error = failure
            except Exception as wrong:  # noqa: BLE001 - our bug, and somebody waits
                error = InternalError(f"payload store: {type(wrong).__name__}: {wrong}")
            self._stored(batch, error)

        try:
            if self._topic is not None and is_voucher(content):
                values = payloads, content, self._topic(), self._owner
                future = payloads.beside(adopt, *values)
            else:
                future = payloads.put_beside(self._owner, content)
        except DejaQError as stopping:
            self._stored(batch, stopping)
        else:
            future.add_done_callback(stored)

    def _stored(self, batch: _Batch, error: DejaQError | None) -> None:
        with self._guard:
            batch.left -= 1
            batch.error = batch.error or error
            is_last = not batch.left
        if is_last:
            self._advance()

    def _advance(self) -> None:
        """Have go on what can, one at a time and in order."""
        while True:
            with self._guard:
                if self._is_going_on or not self._waiting or self._waiting[0].left:
                    return
                self._is_going_on = True
                batch = self._waiting.popleft()
            try:
                self._finish(batch)
            finally:
                with self._guard:
                    self._is_going_on = False

    def _finish(self, batch: _Batch) -> None:
        assert self._payloads is not None, "there was something to store"
        self._payloads.let_go(batch.byte_count)
        if batch.error is not None:
            batch.refuse(batch.error)
            return
        columns = batch.columns
        if batch.rows:
            changes = {
                row: reference.encode()
                for row, reference in zip(batch.rows, batch.stored, strict=True)
                if reference is not None
            }
            columns = _as_columns(columns)
            columns = replace(columns, payloads=references.replaced(columns.payloads, changes))
        batch.go_on(columns)


def _as_columns(columns: Columns) -> SendColumns:
    return columns.columns() if isinstance(columns, SendRows) else columns


def voucher_rows(columns: Columns) -> list[int]:
    """Rows with a voucher, genuine or not."""
    if isinstance(columns, SendRows):
        return [row for row, payload in enumerate(columns.payloads) if is_voucher(payload)]
    marked: list[int] = references.marked_rows(columns.payloads).tolist()
    return [row for row in marked if is_voucher(columns.payloads[row].as_py())]


def escaped(columns: Columns, vouchers: Sequence[int] = ()) -> Columns:
    """The batch, in which what looks like a reference is none; but for these rows."""
    stays = frozenset(vouchers)
    if isinstance(columns, SendRows):
        if any(payload.startswith(references.MARK) for payload in columns.payloads):
            columns.payloads = [
                payload if row in stays else references.escaped(payload)
                for row, payload in enumerate(columns.payloads)
            ]
        return columns
    rows = [row for row in references.marked_rows(columns.payloads).tolist() if row not in stays]
    if not rows:
        return columns
    changes = {row: references.escaped(columns.payloads[row].as_py()) for row in rows}
    return replace(columns, payloads=references.replaced(columns.payloads, changes))


def large_rows(columns: Columns, inline_bytes_max: int) -> list[int]:
    """Rows whose payload goes to the store.

    Args:
        inline_bytes_max: payloads of more bytes do; -1 = none does.
    """
    if inline_bytes_max < 0 or columns.payload_bytes <= inline_bytes_max:
        return []
    if isinstance(columns, SendRows):
        return [
            row for row, payload in enumerate(columns.payloads) if len(payload) > inline_bytes_max
        ]
    sizes: Int64s = np.diff(text_offsets(columns.payloads))
    rows: list[int] = np.flatnonzero(sizes > inline_bytes_max).tolist()
    return rows


def _contents(columns: Columns, rows: Sequence[int]) -> list[bytes]:
    """The payloads of these rows, as they were sent."""
    if isinstance(columns, SendRows):
        stored = [columns.payloads[row] for row in rows]
    else:
        stored = [columns.payloads[row].as_py() for row in rows]
    return [_unescaped(one) for one in stored]


def _unescaped(stored: bytes) -> bytes:
    if not stored.startswith(references.MARK) or is_voucher(stored):
        return stored
    payload = references.decode(stored)
    assert isinstance(payload, bytes), "it was escaped a moment ago"
    return payload
