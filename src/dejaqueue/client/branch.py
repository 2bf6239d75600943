"""A branch of a transaction: what one of many hands stages, of which only those that won count.

Room: client. Used by programs that work in tasks which may be done twice (spark/).
Holds: `finish` returns when everything is durable, and not to be seen; what was refused is known
row by row. A branch is used by one thread.
See: transacting.py for a transaction in one hand; the actions in docs/wire.md.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.client.core import ClientCore
from dejaqueue.client.link import WriteLink
from dejaqueue.clock import Wake
from dejaqueue.errors import ResourceExhausted
from dejaqueue.wire.frames import Reply

IN_FLIGHT_MAX = 8
"""Batches of a branch that wait for an answer: more of them only fill the broker's memory."""
RETRIES_MS_MAX = 60_000
"""How long a batch is sent again that the broker has no room for."""
_SPLIT_BY = {"key", "group", "partition"}


@dataclass(slots=True)
class Staged:
    """What a branch staged.

    Attributes:
        rows: sent.
        counts: of rows by status code (model.RowStatus).
        places: "topic/partition" of those that were taken, ascending.
    """

    rows: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Refused:
    """Rows of a batch that were refused.

    Attributes:
        batch: these rows, as they were sent.
        indices: their places in the batch that was sent, ascending; int64 array, shape (n,).
        statuses: RowStatus of each, uint8 array, shape (n,).
        ids: the live message that has each one's key; int64 array, shape (n,).
    """

    batch: pa.RecordBatch
    indices: npt.NDArray[np.int64]
    statuses: npt.NDArray[np.uint8]
    ids: npt.NDArray[np.int64]


class Branch:
    """Stages batches under the name of a branch, pipelined.

    Args:
        transaction: what begin_transaction called it, "~", the name of the branch.
    """

    def __init__(self, core: ClientCore, topic: str, transaction: str) -> None:
        self.refused: list[Refused] = []
        self._core = core
        self._topic = topic
        self._transaction = transaction
        self._links: dict[tuple[str, ...], WriteLink] = {}
        self._waiting: deque[tuple[pa.RecordBatch, Future[Reply]]] = deque()
        self._staged = Staged()
        self._places: set[int] = set()

    def send(self, batch: pa.RecordBatch) -> None:
        """Stage a batch of the wire's schema; blocks while many are on their way.

        Raises:
            BadRequest, Unavailable, ResourceExhausted: also of a batch before.
        """
        while len(self._waiting) >= IN_FLIGHT_MAX:
            self._answer(*self._waiting.popleft())
        self._waiting.append((batch, self._write(batch)))

    def finish(self) -> Staged:
        """Wait for all answers. Raises as `send`."""
        while self._waiting:
            self._answer(*self._waiting.popleft())
        self._staged.places = [f"{self._topic}/{number}" for number in sorted(self._places)]
        return self._staged

    def abort(self) -> None:
        """Forget what was staged. Raises Unavailable: it is forgotten when its time is over."""
        for batch, answer in self._waiting:
            if answer.exception() is None:
                self._note(batch, answer.result())  # where it was taken, it has to be forgotten
        self._waiting.clear()
        places = [f"{self._topic}/{number}" for number in sorted(self._places)]
        body = {"transaction": self._transaction, "participants": places}
        self._core.transport.action("abort_transaction", body).result()

    def _write(self, batch: pa.RecordBatch) -> Future[Reply]:
        columns = tuple(batch.schema.names)
        link = self._links.get(columns)
        if link is None:
            link = self._core.transaction_link(self._topic, "enqueue", self._transaction)
            self._links[columns] = link
        return link.send(batch)

    def _answer(self, batch: pa.RecordBatch, answer: Future[Reply]) -> None:
        """Take the answer to a batch; what there was no room for is sent again."""
        clock = self._core.clock
        until_us = clock.now_us() + RETRIES_MS_MAX * 1000
        while True:
            try:
                reply = answer.result()
                break
            except ResourceExhausted as full:
                # A batch that is split may be in some partitions already: not twice.
                now_us = clock.now_us()
                if now_us > until_us or _SPLIT_BY & set(batch.schema.names):
                    raise
                clock.wait_until(now_us + full.retry_after_ms * 1000, Wake())
                answer = self._write(batch)
        self._note(batch, reply)

    def _note(self, batch: pa.RecordBatch, reply: Reply) -> None:
        ids, statuses = reply.all_ids(), reply.all_statuses()
        counts: dict[int, int] = self._staged.counts
        self._staged.rows += batch.num_rows
        codes, numbers = np.unique(statuses, return_counts=True)
        for code, count in zip(codes.tolist(), numbers.tolist(), strict=True):
            counts[code] = counts.get(code, 0) + count
        taken = ids[statuses == 0] if statuses.any() else ids
        self._places.update(np.unique(taken >> limits.SEQUENCE_BITS).tolist())
        if len(codes) > 1 or codes[0]:
            rows = np.flatnonzero(statuses)
            found = batch.take(pa.array(rows))
            self.refused.append(Refused(found, rows, statuses[rows], ids[rows]))


@dataclass(frozen=True, slots=True)
class Begun:
    """A transaction in branches that has begun.

    Attributes:
        name: what branches are staged under.
        until_ms: the end of its time, UTC milliseconds.
        is_committed: of a sink's epoch: it was committed before, nothing has to be staged.
    """

    name: str
    until_ms: int
    is_committed: bool = False


def begin(core: ClientCore, topic: str, timeout_ms: int, **of: Any) -> Begun:
    """Begin a transaction in branches; it is tried for as long as the client's retries last.

    Args:
        of: `query` and `epoch` of a sink.
    """
    body = {"topic": topic, "timeout_ms": timeout_ms, "branched": True, **of}
    # Begun twice by a lost answer, nothing is staged under the first name, which ends by itself.
    answer = core.call("begin_transaction", body)
    committed = bool(answer.get("committed", False))
    return Begun(str(answer["transaction"]), int(answer["until_ms"]), committed)
