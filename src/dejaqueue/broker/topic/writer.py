"""A producer's stream at the door: record batches in, requests to partitions, one reply each.

Room: broker. Runs on the thread of the stream; checking and splitting happen here, so that the
workers get columns they can trust.
Holds: exactly one reply per batch, even when its rows go to several partitions; what is wrong with
a batch refuses all of it (rules 12, 15).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.access.senders import NOBODY, Sender
from dejaqueue.broker.partition.requests import RenameRequest, Request, SettleRequest
from dejaqueue.broker.payloads.uploads import Uploads
from dejaqueue.broker.replies import ReplyTo, no_reply
from dejaqueue.broker.shard.entries import hash_column, text_column, words
from dejaqueue.broker.topic.allotment_queue import Producer, Waiter
from dejaqueue.broker.topic.growth import find_old_homes
from dejaqueue.broker.topic.joined_reply import JoinedReply
from dejaqueue.broker.topic.rates import name_of
from dejaqueue.broker.topic.route import split_rows
from dejaqueue.broker.topic.routing import Batch, Router, hashes_of_keys, is_one
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.broker.topic.served_view import ServedView
from dejaqueue.clock import Clock
from dejaqueue.engine.arrays import Int64s, Words
from dejaqueue.engine.commands import Stage
from dejaqueue.errors import BadRequest, DejaQError, ResourceExhausted, Unavailable
from dejaqueue.schema.checks import NamedRows, SendColumns, check_named, check_schema, check_send
from dejaqueue.schema.send_rows import SendRows, check_rows
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply, SettleOp
from dejaqueue.wire.lane import Send

SETTLE_OPS = {"ack": SettleOp.ACK, "nack": SettleOp.NACK, "extend": SettleOp.EXTEND}


class Writer:
    """One open stream of batches of one kind.

    Args:
        sender: who opened it.
        settles: whose leases it settles: the topic's, or those of one of its subscriptions.
    """

    _spread = itertools.count()

    def __init__(
        self,
        stream: WriteStream,
        topic: ServedTopic,
        clock: Clock,
        bytes_max: Callable[[], int],
        stage: Stage | None = None,
        sender: Sender = NOBODY,
        settles: ServedView | None = None,
    ) -> None:
        if settles not in (None, topic) and stream.op not in SETTLE_OPS:
            raise BadRequest("topic", "a topic, not one of its subscriptions", stream.topic)
        self._stream = stream
        self._sender = sender
        self._producer = sender.producer(stream.producer)
        self._topic = topic
        self._settles = topic if settles is None else settles
        self._clock = clock
        self._bytes_max = bytes_max
        self._stage = stage
        # Without a name there is no retry to recognise, so each stream may start anywhere.
        self._router = Router(topic, 0 if stream.producer else next(self._spread), self._put)
        self._uploads = Uploads(topic.payloads, topic.payload_owner, lambda: topic.topic)

    @property
    def topic(self) -> ServedTopic:
        """What it writes to."""
        return self._topic

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise BadRequest if batches of this schema can't be what the stream is for."""
        check_schema(self._stream.op, schema)

    def submit(self, number: int, batch: pa.RecordBatch, reply: ReplyTo) -> None:
        """Take one batch. `reply` is called once, on any thread, unless the stream has
        acks=none."""
        self._answering(number, batch.num_rows, reply, partial(self._take, number, batch))

    def submit_rows(self, send: Send, number: int, reply: ReplyTo) -> None:
        """Take a few messages that came without a batch, of a stream of `enqueue`; all else as
        `submit`."""
        self._answering(
            number, len(send.payloads), reply, partial(self._enqueue_rows, number, send)
        )

    def _answering(
        self, number: int, rows: int, reply: ReplyTo, take: Callable[[ReplyTo], None]
    ) -> None:
        """Take something; what it raises is its answer."""
        if self._stream.acks == "none":
            reply = no_reply
        reply = self._topic.counting.counted(self._stream.op, rows, reply)
        try:
            take(reply)
        except DejaQError as error:
            reply(Reply(number, rows, error=error))
        except TimeoutError:
            silent = Unavailable("a partition does not answer; try again", 1_000)
            reply(Reply(number, rows, error=silent))

    def _take(self, number: int, batch: pa.RecordBatch, reply: ReplyTo) -> None:
        if self._stream.op == "enqueue":
            now_ms = self._clock.utc_ms()
            self._enqueue(number, check_send(batch, self._topic.topic, now_ms), reply)
        else:
            self._name_rows(number, batch, reply)

    # --- enqueue ----------------------------------------------------------------------------

    def _enqueue_rows(self, number: int, send: Send, reply: ReplyTo) -> None:
        now_ms = self._clock.utc_ms()
        topic = self._topic.topic
        rows = check_rows(send.payloads, send.dues_ms, topic, now_ms, send.fields)
        self._enqueue(number, rows, reply)

    def _enqueue(self, number: int, columns: SendColumns | SendRows, reply: ReplyTo) -> None:
        topic = self._topic.topic
        name, producer = self._sender.name, name_of(self._stream.producer)
        if self._topic.allotment_queue is None:
            self._topic.rates.check(topic, name, producer, columns.rows, self._clock.now_us())
        if self._topic.shard is not None and columns.partitions is not None:
            for partition in np.unique(columns.partitions).tolist():
                self._topic.partitions.check("partition", partition)
        senders = None
        if self._sender.name:
            rows = np.zeros(columns.rows, dtype=np.int32)
            senders = Words((self._sender.name,), rows)
        stored = self._uploads.direct(columns)
        if stored is not None:
            self._admit(number, stored, senders, reply, (name, producer))
        else:
            self._upload(number, columns, senders, reply, (name, producer))

    def _upload(
        self,
        number: int,
        columns: SendColumns | SendRows,
        senders: Words | None,
        reply: ReplyTo,
        producer: Producer,
    ) -> None:
        """Admit it when its large payloads are stored, and those of the batches before it."""

        def go_on(stored: SendColumns | SendRows) -> None:
            self._admit_again(number, stored, senders, reply, producer)

        def refuse(error: DejaQError) -> None:
            reply(Reply(number, columns.rows, error=error))

        self._uploads.put(columns, go_on, refuse)

    def _admit(
        self,
        number: int,
        columns: SendColumns | SendRows,
        senders: Words | None,
        reply: ReplyTo,
        producer: Producer | None = None,
    ) -> None:
        """Send it, as soon as the shards of the topic may take as much; `producer`: for whose rate
        it counts."""
        queue = self._topic.allotment_queue
        if queue is None:
            self._send(number, columns, senders, reply)
            return
        send = partial(self._send_again, number, columns, senders, reply)

        def refuse(error: DejaQError) -> None:
            reply(Reply(number, columns.rows, error=error))

        queue.admit(Waiter(columns.rows, columns.payload_bytes, producer, send, refuse))

    def submit_columns(
        self,
        number: int,
        columns: SendColumns | SendRows,
        senders: Words | None,
        reply: ReplyTo,
    ) -> None:
        """Take a batch that was checked before, of these senders' messages; also on a worker's
        thread. `reply` as for `submit`."""
        if self._topic.route.has_grown:  # partitions may have to be asked
            self._topic.again(lambda: self._admit_again(number, columns, senders, reply))
        else:
            self._admit_again(number, columns, senders, reply)

    def _admit_again(
        self,
        number: int,
        columns: SendColumns | SendRows,
        senders: Words | None,
        reply: ReplyTo,
        producer: Producer | None = None,
    ) -> None:
        try:
            self._admit(number, columns, senders, reply, producer)
        except DejaQError as error:
            reply(Reply(number, columns.rows, error=error))
        except TimeoutError:
            silent = Unavailable("a partition does not answer; try again", 1_000)
            reply(Reply(number, columns.rows, error=silent))

    def _send_again(
        self,
        number: int,
        columns: SendColumns | SendRows,
        senders: Words | None,
        reply: ReplyTo,
    ) -> None:
        try:
            self._send(number, columns, senders, reply)
        except DejaQError as error:
            reply(Reply(number, columns.rows, error=error))

    def _send(
        self,
        number: int,
        columns: SendColumns | SendRows,
        senders: Words | None,
        reply: ReplyTo,
    ) -> None:
        # With one partition the worker hashes them, and so it does what comes one by one.
        is_split = self._topic.route.count > 1 and not is_one(columns)
        hashes = hashes_of_keys(columns) if is_split else None
        batch = Batch(
            number,
            columns,
            self._producer,
            hashes,
            self._stage,
            self._stream.acks,
            senders,
            self._sender.owner,
        )
        self._router.send(batch, reply)

    # --- everything that names messages -------------------------------------------------------

    def _name_rows(self, number: int, batch: pa.RecordBatch, reply: ReplyTo) -> None:
        named = check_named(self._stream.op, batch)
        route = self._topic.route
        count = route.count
        key_hashes = None
        if named.keys is not None:
            key_hashes = hash_column(text_column(named.keys))
            part_of_row = self._topic.partitions.homes(key_hashes, count)
            if route.has_grown:
                find_old_homes(self._topic, route, named.keys, key_hashes, part_of_row)
        else:
            assert named.ids is not None
            part_of_row = named.ids >> limits.SEQUENCE_BITS
            # An id of a partition that is not here is not found in any other one.
            numbers = self._topic.partitions.numbers_of(count)
            here = (part_of_row >= 0) & (part_of_row < count)
            here &= part_of_row % numbers.step == numbers.start
            part_of_row = np.where(here, part_of_row, numbers.start)
        first = int(part_of_row[0])
        if (part_of_row == first).all():
            self._put(first, self._request(named, key_hashes, None, first, number, reply))
            return
        parts = split_rows(part_of_row)
        joined = JoinedReply(number, named.rows, [rows for _, rows in parts], reply)
        for index, (partition, rows) in enumerate(parts):
            request = self._request(named, key_hashes, rows, partition, number, joined.part(index))
            self._put(partition, request)

    def _request(
        self,
        named: NamedRows,
        key_hashes: Int64s | None,
        rows: npt.NDArray[np.int64] | None,
        partition: int,
        number: int,
        reply: ReplyTo,
    ) -> Request:
        def chosen(column: npt.NDArray[np.generic] | None) -> npt.NDArray[np.generic] | None:
            return column if column is None or rows is None else column[rows]

        sequences = None
        if named.ids is not None:
            ids = named.ids if rows is None else named.ids[rows]
            here = (ids >> limits.SEQUENCE_BITS) == partition
            sequences = np.where(here, ids & limits.SEQUENCE_MAX, -1)
        op = SETTLE_OPS.get(self._stream.op)
        if op is not None:
            attempts = chosen(named.attempts)
            assert attempts is not None
            return SettleRequest(
                op,
                number,
                reply,
                argument_ms=self._stream.argument_ms,
                sequences=sequences,
                attempts=attempts.astype(np.uint16),
                acks=self._stream.acks,
                reason=self._stream.reason,
                bury=self._stream.dead,
                release=self._stream.released,
                stage=self._stage,
            )
        keys = named.keys
        if keys is not None and rows is not None:
            keys = keys.take(pa.array(rows))
        dues_ms, hashes = chosen(named.dues_ms), chosen(key_hashes)
        priorities, groups = chosen(named.priorities), named.groups
        shifts_ms, if_dues_ms = chosen(named.shifts_ms), chosen(named.if_dues_ms)
        return RenameRequest(
            number,
            named.rows if rows is None else len(rows),
            self._stream.acks,
            reply,
            sequences,
            keys,
            None if hashes is None else hashes.astype(np.int64, copy=False),
            None if dues_ms is None else dues_ms.astype(np.int64, copy=False),
            None if priorities is None else priorities.astype(np.uint16, copy=False),
            words(groups if groups is None or rows is None else groups.take(pa.array(rows))),
            cancel=self._stream.op == "cancel",
            owner=self._sender.owner,
            shifts_ms=None if shifts_ms is None else shifts_ms.astype(np.int64, copy=False),
            if_dues_ms=None if if_dues_ms is None else if_dues_ms.astype(np.int64, copy=False),
        )

    def _put(self, partition: int, request: Request) -> None:
        # A batch larger than the whole bound is still let in alone.
        waiting = self._topic.partitions[partition].inbox.byte_count
        if waiting and waiting + request.byte_count > self._bytes_max():
            raise ResourceExhausted(
                f"{waiting} bytes wait to be written in partition {partition} of topic "
                f"{self._topic.topic.name}; retry when they are",
                50,
            )
        self._settles.submit(partition, request)
