"""A producer's stream at the door: record batches in, requests to partitions, one reply each.

Room: broker. Runs on the thread of the stream; checking and splitting happen here, so that the
workers get columns they can trust.
Holds: exactly one reply per batch, even when its rows go to several partitions; what is wrong with
a batch refuses all of it (rules 12, 15).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.entries import hash_column, text_column, words
from dejaqueue.broker.growth import (
    Known,
    Route,
    find_old_homes,
    known_batches,
    remembered_as,
    repeats,
    split_rows,
)
from dejaqueue.broker.keys import find_in
from dejaqueue.broker.partition import Partition
from dejaqueue.broker.requests import (
    EnqueueRequest,
    RenameRequest,
    ReplyTo,
    Request,
    SettleRequest,
    no_reply,
)
from dejaqueue.broker.runtime import TopicRuntime
from dejaqueue.clock import Clock
from dejaqueue.engine.commands import Int64s, Stage
from dejaqueue.engine.runs import Mask
from dejaqueue.errors import BadRequest, DejaQError, ResourceExhausted
from dejaqueue.schema.checks import NamedRows, SendColumns, check_named, check_schema, check_send
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply, SettleOp

_SETTLE_OPS = {"ack": SettleOp.ACK, "nack": SettleOp.NACK, "extend": SettleOp.EXTEND}

# Partition, rows, producer, and which of the rows must have a live key there (None = none).
Part: TypeAlias = tuple[int, npt.NDArray[np.int64], str, Mask | None]


class JoinedReply:
    """Makes one reply of the replies of several partitions.

    Args:
        places: for each part the rows of the batch it answers.
    """

    def __init__(
        self, number: int, rows: int, places: list[npt.NDArray[np.int64]], reply: ReplyTo
    ) -> None:
        self._number = number
        self._places = places
        self._reply = reply
        self._ids = np.full(rows, -1, dtype=np.int64)
        self._statuses = np.zeros(rows, dtype=np.uint8)
        self._error: DejaQError | None = None
        self._left = len(places)
        self._lock = threading.Lock()

    def part(self, index: int) -> ReplyTo:
        """Where the partition of part `index` replies to."""

        def answered(reply: Reply) -> None:
            with self._lock:
                if reply.error is not None:
                    self._error = reply.error
                else:
                    self._ids[self._places[index]] = reply.all_ids()
                    self._statuses[self._places[index]] = reply.all_statuses()
                self._left -= 1
                done = self._left == 0
            if done:
                self._finish()

        return answered

    def _finish(self) -> None:
        rows = len(self._ids)
        if self._error is not None:
            self._reply(Reply(self._number, rows, error=self._error))
            return
        statuses = self._statuses if self._statuses.any() else None
        self._reply(Reply(self._number, rows, -1, self._ids, statuses))


class Writer:
    """One open stream of batches of one kind."""

    _spread = itertools.count()

    def __init__(
        self,
        stream: WriteStream,
        topic: TopicRuntime,
        clock: Clock,
        bytes_max: Callable[[], int],
        stage: Stage | None = None,
    ) -> None:
        self._stream = stream
        self._topic = topic
        self._clock = clock
        self._bytes_max = bytes_max
        self._known_by: Route | None = None
        self._known_batches: dict[int, Known] = {}
        self._stage = stage
        # Without a name there is no retry to recognise, so each stream may start anywhere.
        self._first_partition = 0 if stream.producer else next(self._spread)

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise BadRequest if batches of this schema can't be what the stream is for."""
        check_schema(self._stream.op, schema)

    def submit(self, number: int, batch: pa.RecordBatch, reply: ReplyTo) -> None:
        """Take one batch. `reply` is called once, on any thread, unless the stream has
        acks=none."""
        if self._stream.acks == "none":
            reply = no_reply
        reply = self._topic.counting.counting(self._stream.op, batch.num_rows, reply)
        try:
            if self._stream.op == "enqueue":
                self._enqueue(number, batch, reply)
            else:
                self._name_rows(number, batch, reply)
        except DejaQError as error:
            reply(Reply(number, batch.num_rows, error=error))

    # --- enqueue ----------------------------------------------------------------------------

    def _enqueue(self, number: int, batch: pa.RecordBatch, reply: ReplyTo) -> None:
        topic = self._topic.topic
        columns = check_send(batch, topic, self._clock.now_ms())
        self._topic.rates.check(topic, self._stream.producer, columns.rows, self._clock.now_us())
        self._send(number, columns, self._stream.producer, reply)

    def submit_columns(self, number: int, columns: SendColumns, reply: ReplyTo) -> None:
        """Take a batch that was checked before; also on a worker's thread. `reply` as for
        `submit`."""
        if self._topic.route.has_grown:  # partitions may have to be asked
            self._topic.again(
                lambda: self._send_again(number, columns, self._stream.producer, reply)
            )
        else:
            self._send_again(number, columns, self._stream.producer, reply)

    def _send_again(self, number: int, columns: SendColumns, producer: str, reply: ReplyTo) -> None:
        try:
            self._send(number, columns, producer, reply)
        except DejaQError as error:
            reply(Reply(number, columns.rows, error=error))

    def _send(self, number: int, columns: SendColumns, producer: str, reply: ReplyTo) -> None:
        route = self._topic.route
        key_hashes = None
        if columns.keys is not None and route.count > 1:  # else the worker hashes them
            key_hashes = hash_column(text_column(columns.keys))
        if not route.has_grown:
            parts = self._parts(number, columns, key_hashes, route.count)
            placed: list[Part] = [(partition, rows, producer, None) for partition, rows in parts]
        else:
            placed = self._grown_parts(number, columns, key_hashes, producer, route)
        if self._topic.shard is not None:
            self._check_here([part[0] for part in placed])
        joined = JoinedReply(number, columns.rows, [part[1] for part in placed], reply)
        alone = len(placed) == 1
        for index, (partition, rows, name, must_live) in enumerate(placed):
            request = EnqueueRequest(
                columns if alone else columns.take(rows),
                name,
                number,
                self._stream.acks,
                reply if alone else joined.part(index),
                key_hashes if alone or key_hashes is None else key_hashes[rows],
                self._stage,
            )
            # A part of a batch goes elsewhere without its name: another part may be there.
            self._stay_on(route, request, producer if alone and name else "", must_live)
            self._put(partition, request)

    def _stay_on(
        self, route: Route, request: EnqueueRequest, name: str, must_live: Mask | None
    ) -> None:
        """Have the request come back if it is met after a raise, or if a key that an older home
        had is gone."""

        def goes_back(place: Partition) -> bool:
            stays = self._topic.route is route
            if stays and must_live is not None:
                assert request.key_hashes is not None
                live = find_in(place, request.columns.keys, request.key_hashes)
                stays = live is not None and bool((live[must_live] >= 0).all())
            if stays:
                return False
            again = request.number, request.columns, name, request.reply
            self._topic.again(lambda: self._send_again(*again))
            return True

        request.goes_back = goes_back

    def _homes(
        self, number: int, columns: SendColumns, key_hashes: Int64s | None, count: int
    ) -> npt.NDArray[np.int64]:
        """Where each row goes: the producer's choice, else by key, else by group where that keeps
        an order, else the batch in turn.

        The turn follows the batch number, so that a batch sent again goes where it went before.
        """
        if columns.partitions is not None:
            return columns.partitions.astype(np.int64)
        homes = np.full(columns.rows, self._in_turn(number, count), dtype=np.int64)
        topic = self._topic
        if columns.groups is not None and topic.topic.groups_stay_together:
            group_hashes = hash_column(text_column(columns.groups))
            homes = np.where(group_hashes != 0, topic.partitions.homes(group_hashes, count), homes)
        if key_hashes is not None:
            homes = np.where(key_hashes != 0, topic.partitions.homes(key_hashes, count), homes)
        return homes

    def _in_turn(self, number: int, count: int) -> int:
        """Where a batch goes that may go anywhere, of the partitions that are here."""
        numbers = self._topic.partitions.numbers_of(count)
        return numbers[(self._first_partition + number) % len(numbers)]

    def _parts(
        self, number: int, columns: SendColumns, key_hashes: Int64s | None, count: int
    ) -> list[tuple[int, npt.NDArray[np.int64]]]:
        """Which rows go where in a topic that never grew."""
        by_group = columns.groups is not None and self._topic.topic.groups_stay_together
        by_row = columns.partitions is not None or key_hashes is not None or by_group
        if count == 1 or not by_row:
            return [(self._in_turn(number, count), np.zeros(0, dtype=np.int64))]
        return split_rows(self._homes(number, columns, key_hashes, count))

    def _grown_parts(
        self,
        number: int,
        columns: SendColumns,
        key_hashes: Int64s | None,
        producer: str,
        route: Route,
    ) -> list[Part]:
        """(partition, rows, producer, rows whose key must be live there) in a topic that grew."""
        homes = self._homes(number, columns, key_hashes, route.count)
        stored = np.zeros(homes.size, dtype=np.bool_)
        named = remembered_as(route, producer, route.count)
        stored_as = named
        for count, batches in self._known(route, producer).items() if producer else ():
            if number in batches:  # all of it was sent when there were so many
                old_homes = self._homes(number, columns, key_hashes, count)
                stored = repeats(batches[number], old_homes, homes)
                stored_as = remembered_as(route, producer, count)
        must_live = np.zeros(homes.size, dtype=np.bool_)
        if columns.keys is not None and key_hashes is not None and columns.partitions is None:
            asked = np.where(stored, -1, homes)
            must_live = find_old_homes(self._topic, route, columns.keys, key_hashes, asked)
            homes = np.where(must_live, asked, homes)
        placed: list[Part] = []
        for mask, name in ((stored, stored_as), (~stored, "" if stored.any() else named)):
            chosen = np.flatnonzero(mask)
            for partition, picked in split_rows(homes[chosen]) if chosen.size else []:
                rows = chosen[picked]
                must = must_live[rows]
                placed.append((partition, rows, name, must if must.any() else None))
        return placed

    def _known(self, route: Route, producer: str) -> dict[int, Known]:
        """What partitions know of this producer, asked once after each raise."""
        if self._known_by is not route:
            self._known_batches = known_batches(self._topic, route, producer)
            self._known_by = route
        return self._known_batches

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
        if self._topic.shard is not None:
            self._check_here(np.unique(part_of_row).tolist())
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
        op = _SETTLE_OPS.get(self._stream.op)
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
                stage=self._stage,
            )
        keys = named.keys
        if keys is not None and rows is not None:
            keys = keys.take(pa.array(rows))
        dues_ms, hashes = chosen(named.dues_ms), chosen(key_hashes)
        priorities, groups = chosen(named.priorities), named.groups
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
        )

    def _check_here(self, homes: list[int]) -> None:
        """Raise if a row belongs to another shard: who sent it does not route as we do."""
        for partition in homes:
            if partition not in self._topic.partitions:
                raise BadRequest(
                    "partition",
                    f"rows of shard {self._topic.served_as}, by key, group or partition",
                    partition,
                )

    def _put(self, partition: int, request: Request) -> None:
        place = self._topic.partitions[partition]
        waiting = place.inbox_bytes  # one that is larger than all of it must come in some time
        if waiting and waiting + request.byte_count > self._bytes_max():
            raise ResourceExhausted(
                f"{waiting} bytes wait to be written in partition {partition} of topic "
                f"{self._topic.topic.name}; retry when they are",
                50,
            )
        self._topic.submit(partition, request)
