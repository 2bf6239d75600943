"""Settles of a consumer that are on their way: each is answered, on whatever connection.

Room: client. Knows streams and futures; which rows are a consumer's is known by consume_core.py.
Holds: every settle's future ends; one whose stream broke goes on a stream of its own, by id and
attempt, which is right on any connection (rule 4); what failed and nobody waits for is raised once.
See: consume_core.py, which makes the settles.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

import pyarrow as pa

from dejaqueue.client.consuming.holding import Slice
from dejaqueue.client.link import WriteLink
from dejaqueue.client.results import by_row
from dejaqueue.client.transport import ConsumeChannel
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.schema import messages
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply, Settle, SettleOp

UNANSWERED_MAX = 32
"""Frames of settles that may wait for an answer before an ack that need not wait does."""
_OPS = {SettleOp.ACK: "ack", SettleOp.NACK: "nack", SettleOp.EXTEND: "extend"}


class Settling:
    """The settles of one consumer.

    Args:
        topic: whose messages.
        link_for: gives the link for those whose stream broke.
        on_wrong: called when one failed that nobody waits for.
    """

    def __init__(
        self, topic: str, link_for: Callable[[WriteStream], WriteLink], on_wrong: Callable[[], None]
    ) -> None:
        self._topic = topic
        self._link_for = link_for
        self._on_wrong = on_wrong
        self._unanswered: dict[Future[Reply], None] = {}
        self._error: DejaQError | None = None
        self._closed = False

    def send(self, settle: Settle, rows: Slice, channel: ConsumeChannel | None) -> Future[Reply]:
        """Settle rows on this stream, or on one of its own if there is none, or if it breaks."""
        answer: Future[Reply] = Future()
        answer.set_running_or_notify_cancel()  # a caller that gives up does not undo the settle
        self._unanswered[answer] = None
        answer.add_done_callback(self._answered)
        if channel is None:
            self._send_elsewhere(settle, rows, answer)
        else:
            channel.settle(settle).add_done_callback(partial(self._settled, settle, rows, answer))
        return answer

    def _answered(self, answer: Future[Reply]) -> None:
        self._unanswered.pop(answer, None)

    def oldest_of_many(self) -> Future[Reply] | None:
        """What an ack waits for that need not wait: None = little is on its way."""
        if len(self._unanswered) < UNANSWERED_MAX:
            return None
        return next(iter(list(self._unanswered)), None)

    def _settled(
        self, settle: Settle, rows: Slice, answer: Future[Reply], reply: Future[Reply]
    ) -> None:
        wrong = reply.exception()
        if wrong is None:
            result = reply.result()
            if result.error is None:
                answer.set_result(by_row(result, len(rows.ids)))
                return
            wrong = result.error
        if isinstance(wrong, Unavailable) and not self._closed:
            self._send_elsewhere(settle, rows, answer)
        else:
            answer.set_exception(wrong)

    def _send_elsewhere(self, settle: Settle, rows: Slice, answer: Future[Reply]) -> None:
        """Settle by (id, attempt) on a stream of its own: right on any connection (rule 4)."""
        argument_ms, dead = settle.argument_ms, settle.dead
        stream = WriteStream(
            self._topic, _OPS[settle.op], argument_ms=argument_ms, reason=settle.reason, dead=dead
        )
        batch = pa.RecordBatch.from_arrays(
            [pa.array(rows.ids, pa.int64()), pa.array(rows.attempts, pa.uint16())],
            schema=messages.SETTLE,
        )

        def copy(reply: Future[Reply]) -> None:
            wrong = reply.exception()
            if wrong is not None:
                answer.set_exception(wrong)
            else:
                answer.set_result(reply.result())

        try:
            sent = self._link_for(stream).send_in_window(batch, wait=False)
        except DejaQError as wrong:  # closed meanwhile, say: callers get the error
            answer.set_exception(wrong)
        else:
            sent.add_done_callback(copy)

    def note(self, answer: Future[Reply]) -> None:
        """Nobody waits for this answer: an error surfaces at a later call."""
        answer.add_done_callback(self._note)

    def _note(self, answer: Future[Reply]) -> None:
        wrong = answer.exception()
        if isinstance(wrong, DejaQError) and not self._closed:
            self._error = self._error or wrong
            self._on_wrong()

    def raise_error(self) -> None:
        """Raise what went wrong behind since the last call, if anything did."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def wait(self) -> None:
        """Wait for the answers to what was sent until now."""
        for answer in list(self._unanswered):
            answer.exception()

    def close(self) -> None:
        """What is answered by an error from now on is not sent again."""
        self._closed = True
