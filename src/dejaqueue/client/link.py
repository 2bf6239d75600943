"""A stream of batches that outlives broken connections.

Room: client. Knows numbers and futures, not what is in a batch.
Holds: a batch has one number for ever, and is sent in the order of numbers; what was not answered
when a connection broke is sent again under the same number and producer name (rule 10), until
`retry_ms_max` is used up; every future ends. What must not be done twice is not sent again.
See: transport.py for the channel beneath; sending/gather.py and _sync/producer.py, which send.
"""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from dejaqueue.client.connection_watch import ConnectionWatch
from dejaqueue.client.row_batch import RowBatch
from dejaqueue.client.transport import RowChannel, Transport, WriteChannel
from dejaqueue.clock import Clock, Wake
from dejaqueue.errors import DejaQError, Elsewhere, InternalError, Unavailable
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply

BACKOFF_MS_FIRST = 20
BACKOFF_MS_MAX = 1_000
MOVING_MS_MAX = 200
"""The same, where a broker answered that it knows of no owner yet: that takes a moment."""
MOVING_RETRY_MS = 50
"""What brokers say to wait then; also of a batch of which some was done before its topic moved."""
_NUMBER_MAX = (1 << 32) - 1


def backoff_ms(failures: int, wrong: BaseException | None = None) -> float:
    """How long to wait before the next attempt after this: doubling, with jitter of a half."""
    is_moving = isinstance(wrong, Elsewhere) or (
        isinstance(wrong, Unavailable)
        and not wrong.is_unheard
        and 0 < wrong.retry_after_ms <= MOVING_RETRY_MS
    )
    most = MOVING_MS_MAX if is_moving else BACKOFF_MS_MAX
    full = min(BACKOFF_MS_FIRST * 2.0 ** min(failures, 20), most)
    return full * (0.5 + random.random() / 2)


@dataclass(slots=True, eq=False)
class _Waiting:
    number: int
    batch: pa.RecordBatch | RowBatch
    answer: Future[Reply]
    deadline_us: int = 0
    sendings: int = 0


Channel: TypeAlias = WriteChannel | RowChannel


class _AsBatches:
    """A channel of batches for single messages, where there is no lane."""

    def __init__(self, inner: WriteChannel) -> None:
        self._inner = inner

    def send(self, number: int, batch: RowBatch) -> Future[Reply]:
        """Send them as a record batch."""
        return self._inner.send(number, batch.record_batch())

    def close(self) -> None:
        """Close it."""
        self._inner.close()


def _write(connection: Channel, waiting: _Waiting) -> Future[Reply]:
    waiting.sendings += 1
    try:
        # A link sends one kind alone, and has channels for that kind.
        return connection.send(waiting.number, waiting.batch)
    except DejaQError as wrong:
        refused: Future[Reply] = Future()
        refused.set_exception(wrong)
        return refused


class WriteLink:
    """Sends batches of one kind and one schema, over as many connections as it takes.

    Args:
        window: batches on their way at most; `send` blocks when there are more.
        repeats: False = to do a batch twice is not the same as to do it once, and the broker would
            not notice: one that may have been carried out is not sent again, but Unavailable.
        shared: its connections may carry batches of other links, too.
        watch: is told when there is no broker, and when there is one again.
    """

    has_rows = False
    """What is sent are single messages (RowBatch)."""

    def __init__(
        self,
        transport: Transport,
        stream: WriteStream,
        clock: Clock,
        *,
        retry_ms_max: int,
        window: int = 32,
        repeats: bool = True,
        shared: bool = False,
        watch: ConnectionWatch | None = None,
    ) -> None:
        self.stream = stream
        self.window = threading.Semaphore(window)
        self._transport = transport
        self._clock = clock
        self._retry_us_max = retry_ms_max * 1000
        self._repeats = repeats
        self._shared = shared
        self._watch = watch if watch is not None else ConnectionWatch("", clock)
        self._order = threading.Lock()  # held while numbering and writing
        self._state = threading.Lock()  # held for moments only; replies take it
        self._waiting: dict[int, _Waiting] = {}
        self._number = 0
        self._channel: Channel | None = None
        self._dropped: list[Channel] = []
        self._failures = 0
        self._wrong: BaseException | None = None
        self._retrying = False
        self._closed = False
        self._stop = Wake()

    @property
    def is_connected(self) -> bool:
        """True if a batch would go out without opening a connection first."""
        return self._channel is not None or self._retrying

    @property
    def is_idle(self) -> bool:
        """True if nothing waits for an answer."""
        return not self._waiting

    def send(self, batch: pa.RecordBatch) -> Future[Reply]:
        """Send a batch; blocks while the window is full. See `send_in_window`."""
        self.window.acquire()
        answer = self.send_in_window(batch)
        answer.add_done_callback(self._leave_window)
        return answer

    def _leave_window(self, _answer: Future[Reply]) -> None:
        self.window.release()

    def send_in_window(
        self, batch: pa.RecordBatch | RowBatch, *, wait: bool = True
    ) -> Future[Reply]:
        """Send a batch without a look at the window: the caller bounds what is on its way.

        Args:
            wait: False = a connection that is not open yet is opened by another thread.

        Returns:
            Its reply, whose `error` is raised instead; Unavailable if no connection could be had
            in time, the outcome then being unknown.
        """
        answer: Future[Reply] = Future()
        answer.set_running_or_notify_cancel()  # a caller that gives up does not undo the sending
        sent: Future[Reply] | None = None
        refused: DejaQError | None = None
        with self._order:
            if self._closed:
                answer.set_exception(Unavailable("the client is closed"))
                return answer
            self._number = self._number % _NUMBER_MAX + 1
            waiting = _Waiting(self._number, batch, answer)
            with self._state:
                self._waiting[waiting.number] = waiting
                channel, retrying = self._channel, self._retrying
            if channel is None and not retrying:
                if wait:
                    channel, refused = self._open()
                if channel is None and refused is None:
                    self._start_retrying()
            if channel is not None:
                sent = _write(channel, waiting)
        # Callbacks run out of the order: who hears of a failure may send at once.
        if refused is not None:
            self._fail_all(refused)
        if sent is not None and channel is not None:
            sent.add_done_callback(partial(self._answered, channel, waiting))
        return answer

    def _open(self) -> tuple[Channel | None, DejaQError | None]:
        """Under the order: a new channel, or why there can be none; (None, None) = try later."""
        try:
            channel = self._channel_of_kind()
        except Unavailable as wrong:
            self._lost(wrong)
            return None, None
        except DejaQError as wrong:
            return None, wrong
        with self._state:
            self._channel = channel
        return channel, None

    def _channel_of_kind(self) -> Channel:
        return self._transport.open_write(self.stream, shared=self._shared)

    def _answered(self, connection: Channel, waiting: _Waiting, reply: Future[Reply]) -> None:
        wrong = reply.exception()
        if wrong is None:
            answer = reply.result()
            wrong = answer.error
            if not isinstance(wrong, Unavailable):
                self._failures = 0
                self._watch.found(self, self.stream.topic)
                if self._waiting.pop(waiting.number, None) is not None:
                    if wrong is None and self._is_ambiguous(waiting, answer):
                        waiting.answer.set_exception(
                            Unavailable(
                                f"the connection broke in the middle of this {self.stream.op}, "
                                "which was sent again: whether the first one was carried out for "
                                "the rows that are not OK is unknown"
                            )
                        )
                    elif wrong is None:
                        waiting.answer.set_result(answer)
                    else:
                        waiting.answer.set_exception(wrong)
                return
        was_current = self._drop(connection)
        if isinstance(wrong, Elsewhere):
            waiting.sendings -= 1  # nothing of it was carried out there
        if isinstance(wrong, Unavailable) and not (self._repeats or isinstance(wrong, Elsewhere)):
            # Elsewhere says that nothing was carried out; any other end leaves that open.
            wrong = Unavailable(
                f"the connection broke in the middle of this {self.stream.op}, which is not sent "
                f"again, as it could be carried out twice: whether it was is unknown ({wrong})"
            )
        elif isinstance(wrong, Unavailable):
            # Only the first failure on a channel counts: what follows is sent again with it.
            if was_current:
                self._lost(wrong)
                self._start_retrying()
            return
        # The broker ended the stream for a reason that sending again would not change.
        if self._waiting.pop(waiting.number, None) is not None:
            if not isinstance(wrong, DejaQError):
                wrong = InternalError(f"a channel failed with {wrong!r}")
            waiting.answer.set_exception(wrong)

    def _lost(self, wrong: Unavailable) -> None:
        """There is no broker for the moment; one that says who serves the topic now is there."""
        self._wrong = wrong
        if not isinstance(wrong, Elsewhere):
            self._watch.lost(self, self.stream.topic, wrong)

    def _is_ambiguous(self, waiting: _Waiting, answer: Reply) -> bool:
        """True if NOT_FOUND or LEASED may be the doing of an earlier sending of the same batch.

        Only enqueues are remembered by the broker (rule 10).
        """
        repeated = waiting.sendings > 1 and self.stream.op in {"move", "cancel"}
        return repeated and answer.statuses is not None and bool(answer.statuses.any())

    def _drop(self, connection: Channel) -> bool:
        """Do not use this connection any more; True if it was in use until now."""
        with self._state:
            if self._channel is not connection:
                return False
            self._channel = None
            self._dropped.append(connection)
            return True

    def _start_retrying(self) -> None:
        self._start_deadlines()
        with self._state:
            if self._retrying or self._closed or not self._waiting:
                return
            self._retrying = True
        threading.Thread(target=self._retry, name="dejaq-retry", daemon=True).start()

    def _retry(self) -> None:
        """Open a channel and send again what waits; or give up what has waited too long."""
        ended = False
        while not ended:
            if self._failures:
                pause_us = int(backoff_ms(self._failures - 1, self._wrong) * 1000)
                self._clock.wait_until(self._clock.now_us() + pause_us, self._stop)
            self._failures += 1
            self._give_up_late()
            ended = self._resend()
        with self._state:
            dropped, self._dropped = self._dropped, []
        for channel in dropped:
            channel.close()

    def _resend(self) -> bool:
        """One attempt; False if it is to be repeated."""
        refused: DejaQError | None = None
        sent: list[tuple[_Waiting, Future[Reply]]] = []
        with self._order:
            channel = None
            if self._waiting and not self._closed:
                channel, refused = self._open()
                if channel is None and refused is None:
                    self._start_deadlines()
                    return False
            with self._state:
                self._retrying = False
                again = list(self._waiting.values())
            if channel is not None:
                # All under the order: whatever is sent meanwhile has a higher number.
                sent = [(w, _write(channel, w)) for w in again]
        if refused is not None:
            self._fail_all(refused)
        for waiting, reply in sent:
            assert channel is not None
            reply.add_done_callback(partial(self._answered, channel, waiting))
        return True

    def _start_deadlines(self) -> None:
        until_us = self._clock.now_us() + self._retry_us_max
        with self._state:
            for waiting in self._waiting.values():
                waiting.deadline_us = waiting.deadline_us or until_us

    def _give_up_late(self) -> None:
        now_us = self._clock.now_us()
        with self._state:
            late = [w for w in self._waiting.values() if 0 < w.deadline_us <= now_us]
            for waiting in late:
                del self._waiting[waiting.number]
        for waiting in late:
            waiting.answer.set_exception(
                Unavailable("no connection to the broker in time; the outcome is unknown")
            )

    def _fail_all(self, error: DejaQError) -> None:
        with self._state:
            failed, self._waiting = list(self._waiting.values()), {}
        for waiting in failed:
            waiting.answer.set_exception(error)

    def wait(self) -> None:
        """Wait for the answers to what was sent until now."""
        for waiting in list(self._waiting.values()):
            waiting.answer.exception()

    def close(self) -> None:
        """Wait for what is on its way (at most as long as retries last), then close."""
        self.wait()
        with self._order:
            self._closed = True
            with self._state:
                channel, self._channel = self._channel, None
                dropped, self._dropped = self._dropped, []
        self._watch.forget(self)
        self._stop.ring()
        self._fail_all(Unavailable("the client is closed"))
        for left in [*dropped, *([channel] if channel is not None else [])]:
            left.close()


class RowLink(WriteLink):
    """The same for single messages (RowBatch): on a lane where there is one, else as batches."""

    has_rows = True
    has_fields = False
    """They may have more than a payload and a due time."""

    def _channel_of_kind(self) -> Channel:
        lane = self._transport.open_lane(self.stream, has_fields=self.has_fields)
        if lane is not None:
            return lane
        return _AsBatches(self._transport.open_write(self.stream, shared=self._shared))


class FieldsLink(RowLink):
    """The same for single messages that have more than a payload and a due time."""

    has_fields = True
