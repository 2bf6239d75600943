"""A stream of batches to a topic in shards: each row to the broker of its shard, one reply.

Room: client. A WriteChannel over one channel for each shard that rows were sent to.
Holds: a batch is checked as a whole before any of it is sent, so what is wrong with one row refuses
all of them (rule 15); every part has the batch's producer and number, so a batch that is sent again
is recognised by each shard that has its part (rule 10).
See: schema/shards.py for where rows go; client/routed_transport.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dejaqueue.client.transport import WriteChannel
from dejaqueue.errors import BadRequest, DejaQError, Elsewhere, Refused, Unavailable
from dejaqueue.model import Topic
from dejaqueue.schema.checks import check_named, check_schema, check_send
from dejaqueue.schema.shards import Parts, parts_to_name, parts_to_send
from dejaqueue.topic_names import shard_name
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply


class ShardedWriteChannel:
    """Batches to all shards of a topic.

    Args:
        topic: as it was when the stream began.
        open_one: opens the stream to one shard.
        now_ms: the brokers' time, about.
    """

    def __init__(
        self,
        stream: WriteStream,
        topic: Topic,
        open_one: Callable[[WriteStream], WriteChannel],
        now_ms: Callable[[], int],
    ) -> None:
        self._stream = stream
        self._topic = topic
        self._open_one = open_one
        self._now_ms = now_ms
        self._mutex = threading.Lock()
        self._channels: dict[int, WriteChannel] = {}
        self._schema: pa.Schema | None = None

    def send(self, number: int, batch: pa.RecordBatch) -> Future[Reply]:
        """Send a batch; its reply, or Unavailable if a channel breaks first (outcome unknown)."""
        try:
            parts = self._parts(number, batch)
        except DejaQError as error:
            refused: Future[Reply] = Future()
            refused.set_result(Reply(number, batch.num_rows, error=error))
            return refused
        if len(parts) == 1:
            return self._channel(parts[0][0]).send(number, batch)
        whole = _Whole(number, batch.num_rows, parts)
        for index, (shard, rows) in enumerate(parts):
            try:
                answer = self._channel(shard).send(number, batch.take(pa.array(rows)))
            except DejaQError as error:
                answer = Future()
                answer.set_exception(error)
            answer.add_done_callback(whole.part(index))
        return whole.future

    def _parts(self, number: int, batch: pa.RecordBatch) -> Parts:
        """Which rows go where. Raises BadRequest."""
        if batch.schema is not self._schema:
            check_schema(self._stream.op, batch.schema)
            self._schema = batch.schema
        spread = self._topic.spread
        if self._stream.op == "enqueue":
            columns = check_send(batch, self._topic, self._now_ms())
            return parts_to_send(columns, spread, self._stream.producer, number)
        return parts_to_name(check_named(self._stream.op, batch), spread)

    def _channel(self, shard: int) -> WriteChannel:
        with self._mutex:
            channel = self._channels.get(shard)
            if channel is None:
                name = shard_name(self._topic.name, shard, self._topic.spread)
                channel = self._open_one(replace(self._stream, topic=name))
                self._channels[shard] = channel
            return channel

    def close(self) -> None:
        """Wait for replies of what was sent, then close. Twice is fine."""
        with self._mutex:
            channels = list(self._channels.values())
        for channel in channels:
            channel.close()


class _Whole:
    """One reply of the replies of several shards."""

    def __init__(self, number: int, rows: int, parts: Parts) -> None:
        self.future: Future[Reply] = Future()
        self._number = number
        self._parts = parts
        self._ids = np.full(rows, -1, dtype=np.int64)
        self._statuses = np.zeros(rows, dtype=np.uint8)
        self._errors: list[BaseException] = []
        self._left = len(parts)
        self._mutex = threading.Lock()

    def part(self, index: int) -> Callable[[Future[Reply]], None]:
        """Where the reply to part `index` goes."""

        def answered(answer: Future[Reply]) -> None:
            error = answer.exception() or answer.result().error
            with self._mutex:
                if error is not None:
                    self._errors.append(error)
                else:
                    rows, reply = self._parts[index][1], answer.result()
                    self._ids[rows] = reply.all_ids() if reply.rows else -1
                    self._statuses[rows] = reply.all_statuses() if reply.rows else 0
                self._left -= 1
                done = self._left == 0
            if done:
                self._finish()

        return answered

    def _finish(self) -> None:
        rows = len(self._ids)
        if not self._errors:
            statuses = self._statuses if self._statuses.any() else None
            self.future.set_result(Reply(self._number, rows, -1, self._ids, statuses))
            return
        error = self._worst()
        if isinstance(error, Unavailable) or not isinstance(error, DejaQError):
            self.future.set_exception(error)
            return
        if isinstance(error, BadRequest) and len(self._errors) < len(self._parts):
            # The topic was altered meanwhile. It must not look as if nothing had been done.
            text = f"rows of some shards were carried out, those of others refused: {error}"
            error = Refused(text)
        self.future.set_result(Reply(self._number, rows, error=error))

    def _worst(self) -> BaseException:
        """What is said of the batch. Elsewhere = nothing of it was carried out anywhere."""
        lost = [one for one in self._errors if isinstance(one, Unavailable)]
        unknown = [one for one in lost if not isinstance(one, Elsewhere)]
        if unknown or not lost:
            return (unknown or self._errors)[0]
        if len(lost) < len(self._parts):
            return Unavailable(
                f"rows of some shards were carried out, those of others were not: {lost[0]}", 50
            )
        return lost[0]
