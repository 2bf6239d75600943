"""A transaction of the client: what it staged, where, and its end. No face; calls block.

Room: client. _aio/transaction.py and _sync/transaction.py add the faces.
Holds: after a batch that was not staged for sure nothing can be committed; one batch at a time is
staged, and none while the transaction is decided.
See: docs/guides/transactions.md; the actions in docs/wire.md.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.client.consuming.consume_core import ConsumeCore
from dejaqueue.client.consuming.holding import Slice
from dejaqueue.client.consuming.messages import BatchFields, MessageFields
from dejaqueue.client.core import ClientCore
from dejaqueue.client.link import WriteLink
from dejaqueue.client.results import SendResult, Settled
from dejaqueue.client.sending.inputs import ROWS_MAX, batches_of
from dejaqueue.client.sending.sent import result_of
from dejaqueue.errors import BadRequest, DejaQError, Refused
from dejaqueue.model import RowStatus
from dejaqueue.schema import messages as schemas
from dejaqueue.topic_names import check_topic_name, parse_subscription, topic_of
from dejaqueue.wire.frames import Reply

Received = MessageFields | BatchFields


class TransactionCore:
    """What the sync and the async transaction share.

    Attributes:
        name: what the broker calls it; "" before anything is staged.
        outcome: True = committed, False = aborted, None = open.
    """

    def __init__(self, core: ClientCore, timeout_ms: int) -> None:
        if not 1 <= timeout_ms <= limits.TRANSACTION_MS_MAX:
            most = limits.TRANSACTION_MS_MAX / 1000
            raise BadRequest("timeout", f"from 0.001 to {most:g} seconds", timeout_ms / 1000)
        self.name = ""
        self.outcome: bool | None = None
        self._core = core
        self._timeout_ms = timeout_ms
        self._mutex = threading.Lock()
        self._links: dict[tuple[str, str, tuple[str, ...]], WriteLink] = {}
        self._participants: set[str] = set()
        self._wrong: DejaQError | None = None

    # --- staging -------------------------------------------------------------------------------

    def send_batch(self, topic: str, rows: object) -> SendResult:
        """Stage messages; when this returns, they are durable, and not to be seen."""
        check_topic_name(topic)
        with self._mutex:
            batches = batches_of(rows, self._core.now_ms)
            return result_of(self._stage(topic, "enqueue", batches))

    def ack(self, received: Received | Iterable[Received]) -> Settled:
        """Stage acks of received messages, of whatever topics."""
        several = [received] if isinstance(received, Received) else list(received)
        parts = [_rows_of(one) for one in several]
        statuses = np.zeros(sum(len(rows.ids) for _, rows in parts), dtype=np.uint8)
        with self._mutex:
            for topic in dict.fromkeys(topic_of(core.stream.topic) for core, _ in parts):
                self._ack_of(topic, parts, statuses)
        settled = Settled(statuses)
        settled.raise_for_status()
        return settled

    def _ack_of(
        self,
        topic: str,
        parts: list[tuple[ConsumeCore, Slice]],
        statuses: np.ndarray[Any, np.dtype[np.uint8]],
    ) -> None:
        """Stage the acks of one topic; writes their statuses."""
        ends = np.cumsum([len(rows.ids) for _, rows in parts]).tolist()
        mine = [at for at, (core, _) in enumerate(parts) if topic_of(core.stream.topic) == topic]
        rows = [parts[at][1] for at in mine]
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(np.concatenate([part.ids for part in rows]), pa.int64()),
                pa.array(np.concatenate([part.attempts for part in rows]), pa.uint16()),
            ],
            schema=schemas.SETTLE,
        )
        pieces = (batch.slice(at, ROWS_MAX) for at in range(0, batch.num_rows, ROWS_MAX))
        found = result_of(self._stage(topic, "ack", pieces)).statuses
        self._note(topic, batch.column("id").to_numpy())
        first = 0
        for at in mine:
            core, part = parts[at]
            core.leave(part)
            statuses[ends[at] - len(part.ids) : ends[at]] = found[first : first + len(part.ids)]
            first += len(part.ids)
        if found.any():
            lost = int(np.count_nonzero(found == RowStatus.LEASE_LOST))
            self._wrong = Refused(f"{lost} of {len(found)} acked messages had lost their lease")

    def _stage(self, topic: str, op: str, batches: Iterable[pa.RecordBatch]) -> list[Reply]:
        """Send batches in the transaction, pipelined; their replies."""
        self._check_open()
        try:
            self._begin(topic)
            answers, replies = [], []
            try:
                for batch in batches:
                    link = self._link(topic, op, tuple(batch.schema.names))
                    answers.append(link.send(batch))
            finally:
                for answer in answers:
                    answer.exception()
            for answer in answers:
                reply = answer.result()
                replies.append(reply)
                if op == "enqueue":
                    self._note(topic, reply.all_ids())
        except DejaQError as wrong:
            self._wrong = wrong
            raise
        return replies

    def _note(self, topic: str, ids: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """These messages' partitions take part."""
        topic, _ = parse_subscription(topic)  # its partitions are those of all its views
        numbers = np.unique(ids[ids >= 0] >> limits.SEQUENCE_BITS).tolist()
        self._participants.update(f"{topic}/{number}" for number in numbers)

    def _begin(self, topic: str) -> None:
        if not self.name:
            body = {"topic": parse_subscription(topic)[0], "timeout_ms": self._timeout_ms}
            self.name = str(self._core.call("begin_transaction", body)["transaction"])

    def _link(self, topic: str, op: str, columns: tuple[str, ...]) -> WriteLink:
        key = (topic, op, columns)
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = self._core.transaction_link(topic, op, self.name)
        return link

    def _check_open(self) -> None:
        if self.outcome is not None:
            word = "committed" if self.outcome else "aborted"
            raise Refused(f"the transaction is over: it was {word}")

    # --- the end -------------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit. Raises Refused when it was aborted instead."""
        with self._mutex:
            if self.outcome:
                return
            self._check_open()
            if self._wrong is not None:
                self._abort_quietly()
                raise Refused(f"the transaction was aborted, as it is not whole: {self._wrong}")
            try:
                self._decide("commit_transaction")
            except Refused:
                self.outcome = False
                raise
            self.outcome = True

    def abort(self) -> None:
        """Abort."""
        with self._mutex:
            if self.outcome is False:
                return
            self._check_open()
            self.outcome = False
            self._decide("abort_transaction")

    def leave(self) -> None:
        """As `abort`, when something went wrong already: what can't be said now ends by itself."""
        with self._mutex:
            if self.outcome is None:
                self._abort_quietly()

    def _abort_quietly(self) -> None:
        self.outcome = False
        try:
            self._decide("abort_transaction")
        except DejaQError:
            return  # its time will be over

    def _decide(self, action: str) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()
        if self.name:
            participants = sorted(self._participants)
            self._core.call(action, {"transaction": self.name, "participants": participants})


def _rows_of(received: object) -> tuple[ConsumeCore, Slice]:
    if not isinstance(received, Received):
        raise BadRequest("received", "messages or batches of a consumer", received)
    core, rows = received.origin()
    if core.stream.auto_ack:
        raise BadRequest("received", "messages of a consumer without auto_ack", received)
    return core, rows
