"""What both clients share: the connection, its write links, and calls that do not wait.

Room: client. No faces: _aio/client.py and _sync/client.py add the waiting.
Holds: topics share streams (shared_streams.py), each has links of its own, which number its batches
and send them again; closing waits for what is on its way.
See: link.py, sending/gather.py, consuming/consume_core.py.
"""

from __future__ import annotations

import logging
import threading
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from dejaqueue import limits
from dejaqueue.client.alarm import Alarm
from dejaqueue.client.changes import Change, condition_columns
from dejaqueue.client.connection_watch import ConnectionWatch, OnConnection
from dejaqueue.client.consuming.clock_offset import ClockOffset
from dejaqueue.client.consuming.consume_settings import ConsumeSettings
from dejaqueue.client.consuming.program_end import close_at_exit
from dejaqueue.client.consuming.settle_batches import Fate
from dejaqueue.client.link import FieldsLink, RowLink, WriteLink, backoff_ms
from dejaqueue.client.results import SendResult, Settled
from dejaqueue.client.sending.gather import VARIANTS, Gather
from dejaqueue.client.sending.inputs import ROWS_MAX, batches_of, int64s_of, texts_of
from dejaqueue.client.sending.sent import result_of
from dejaqueue.client.shards.consuming import TopicCore
from dejaqueue.client.streamed import PartCalls
from dejaqueue.client.transport import Transport
from dejaqueue.clock import Clock, SteadyClock, SystemClock, Wake
from dejaqueue.errors import BadRequest, Unavailable
from dejaqueue.schema import messages
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream, check_span
from dejaqueue.wire.frames import Reply

log = logging.getLogger("dejaqueue.client")

Answer = TypeVar("Answer")
Kept = TypeVar("Kept")
Carry = Callable[[pa.RecordBatch], pa.RecordBatch]
LinkFor = Callable[[tuple[str, ...]], WriteLink]
"""Gives the link for batches of these columns."""
LINKS_MAX = 16_384
"""Links kept, by topic and kind of batch; an idle one that was made before others makes room."""
WINDOW = 32
"""Batches of one link on their way at most."""
CLOCK_US_MAX = 60_000_000
"""The broker's clock is measured anew after this, for delays."""
CLOCK_CALLS = 3


class ClientCore:
    """What the synchronous and the asynchronous client share."""

    def __init__(
        self,
        transport: Transport,
        name: str,
        retry_ms_max: int,
        clock: Clock | None,
        *,
        where: str = "",
        on_connection: OnConnection | None = None,
    ) -> None:
        check_span("retry_ms_max", retry_ms_max)
        self.transport = transport
        self.name = name
        self.retry_ms_max = retry_ms_max
        # Sharing a clock means reading the very same one: wall time, as the broker does.
        default = SystemClock if transport.shares_clock else SteadyClock
        self.clock: Clock = clock if clock is not None else default()
        self.alarm = Alarm(self.clock)
        self.where = where
        self.part_calls = PartCalls(transport, self.clock, retry_ms_max, where)
        self._watch = ConnectionWatch(where, self.clock, on_connection)
        self._offset = ClockOffset(shared=self.clock if transport.shares_clock else None)
        self._measured_us = -1
        self._mutex = threading.Lock()
        self._links: OrderedDict[tuple[Any, ...], WriteLink] = OrderedDict()
        self._gathers: OrderedDict[tuple[Any, ...], Gather] = OrderedDict()
        self._consumers: weakref.WeakSet[TopicCore] = weakref.WeakSet()
        self._other_links: weakref.WeakSet[WriteLink] = weakref.WeakSet()
        self._closed = False

    def shown(self, kind: str) -> str:
        """The client as a person reads it."""
        name = f" name={self.name!r}" if self.name else ""
        return f"<{kind} {self.where}{name}{', closed' if self._closed else ''}>"

    # --- links ---------------------------------------------------------------------------------

    def _new_link(
        self,
        stream: WriteStream,
        window: int = WINDOW,
        *,
        repeats: bool = True,
        shared: bool = False,
        kind: type[WriteLink] = WriteLink,
    ) -> WriteLink:
        if self._closed:
            raise Unavailable("the client is closed")
        return kind(
            self.transport,
            stream.check(),
            self.clock,
            retry_ms_max=self.retry_ms_max,
            window=window,
            repeats=repeats,
            shared=shared,
            watch=self._watch,
        )

    def _producer_name(self) -> str:
        name = uuid.uuid4().hex
        room = limits.PRODUCER_NAME_BYTES_MAX - len(name) - 1
        shown = self.name.encode()[:room].decode(errors="ignore")
        return f"{shown}-{name}" if shown else name

    def link(self, stream: WriteStream, columns: tuple[str, ...]) -> WriteLink:
        """The link for batches of these columns."""
        key = (stream, columns)
        with self._mutex:
            link = self._links.get(key)
            if link is None:
                link = self._links[key] = self._shared_link(stream)
                for old in _crowded(self._links, lambda link: link.is_idle):
                    self._other_links.add(old)
        return link

    def gather(self, topic: str, kind: tuple[bool, bool]) -> Gather:
        """Where single messages of this kind are gathered."""
        key = (topic, kind)
        gather = self._gathers.get(key)
        if gather is None:
            with self._mutex:
                gather = self._gathers.get(key)
                if gather is None:
                    variant = VARIANTS[kind]
                    of_rows = FieldsLink if variant.has_more else RowLink
                    link = self._shared_link(WriteStream(topic), of_rows)
                    gather = self._gathers[key] = Gather(link, variant)
                    for old in _crowded(self._gathers, lambda gather: gather.link.is_idle):
                        self._other_links.add(old.link)
        return gather

    def _shared_link(self, stream: WriteStream, kind: type[WriteLink] = WriteLink) -> WriteLink:
        if stream.op == "enqueue":
            stream = WriteStream(stream.topic, stream.op, stream.acks, self._producer_name())
        return self._new_link(stream, shared=True, kind=kind)

    def producer_link(
        self, topic: str, acks: str, window: int, columns: tuple[str, ...]
    ) -> WriteLink:
        """A link of a producer's own."""
        link = self._new_link(WriteStream(topic, "enqueue", acks, self._producer_name()), window)
        self._other_links.add(link)
        return link

    def transaction_link(self, topic: str, op: str, transaction: str) -> WriteLink:
        """A link of a transaction's own."""
        producer = self._producer_name() if op == "enqueue" else ""
        link = self._new_link(WriteStream(topic, op, producer=producer, transaction=transaction))
        self._other_links.add(link)
        return link

    def settle_link(self, stream: WriteStream) -> WriteLink:
        """The link for settles of consumers whose stream broke."""
        return self.link(stream, tuple(messages.SETTLE.names))

    # --- many rows -----------------------------------------------------------------------------

    def send_batch(
        self, topic: str, rows: object, acks: str, carry: Carry | None = None
    ) -> SendResult:
        """Send many messages; blocks until they are answered.

        Args:
            carry: what else is done to each batch; see tracing.py.
        """
        stream = WriteStream(topic, "enqueue", acks).check()
        batches = batches_of(rows, self.now_ms)
        link_for = partial(self.link, stream)
        return result_of(_write_all(link_for, map(carry, batches) if carry else batches))

    def move(self, topic: str, named: dict[str, Any], change: Change) -> Settled:
        """Give scheduled messages other times, priorities or groups (rule 9); blocks until
        durable."""
        name, column = _named(**named)
        columns = {name: column, **change.columns(len(column), self.now_ms)}
        schema = pa.schema([messages.MOVE.field(field) for field in columns])
        batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
        stream = WriteStream(topic, "move")
        if change.repeats:
            return self._settle_all(stream, batch)
        # Sent once, over a new connection: of one that may be broken already nobody could tell
        # whether the move left. And only when a broker answers.
        self.call("clock", {})
        link = self._new_link(stream, repeats=False)
        try:
            return _settled(lambda _: link, batch)
        finally:
            link.close()

    def cancel(self, topic: str, named: dict[str, Any], if_due: object = None) -> Settled:
        """Cancel scheduled messages (rule 9); blocks until durable."""
        name, column = _named(**named)
        columns = {name: column, **condition_columns(len(column), if_due)}
        schema = pa.schema([messages.CANCEL.field(field) for field in columns])
        batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
        return self._settle_all(WriteStream(topic, "cancel"), batch)

    def nack(self, topic: str, ids: object, attempts: object, fate: Fate) -> Settled:
        """Give back deliveries that are named by (id, attempt); blocks until durable."""
        id_column, attempt_column = int64s_of(ids, "ids"), int64s_of(attempts, "attempts")
        if len(id_column) != len(attempt_column):
            limit = f"one for each of the {len(id_column)} ids"
            raise BadRequest("attempts", limit, len(attempt_column))
        _, delay_ms, reason, dead = fate
        stream = WriteStream(topic, "nack", argument_ms=delay_ms, reason=reason, dead=dead)
        try:
            columns = [pa.array(id_column), pa.array(attempt_column).cast(pa.uint16())]
        except pa.ArrowInvalid:
            raise BadRequest("attempts", "whole numbers from 1 to 65535", attempts) from None
        batch = pa.RecordBatch.from_arrays(columns, schema=messages.SETTLE)
        return self._settle_all(stream, batch)

    def _settle_all(self, stream: WriteStream, batch: pa.RecordBatch) -> Settled:
        stream.check()
        return _settled(partial(self.link, stream), batch)

    # --- consuming, looking --------------------------------------------------------------------

    def consumer(self, stream: ConsumeStream, settings: ConsumeSettings) -> TopicCore:
        """A consumer that is not open yet."""
        if self._closed:
            raise Unavailable("the client is closed")
        core = TopicCore(
            self.transport,
            stream,
            settings,
            self.clock,
            self.alarm,
            self.settle_link,
            self._watch,
        )
        self._consumers.add(core)
        close_at_exit(core)
        return core

    def drain(self) -> None:
        """Let all consumers finish; returns at once."""
        for consumer in list(self._consumers):
            consumer.drain()

    def now_ms(self) -> int:
        """The broker's time, measured within the last minute; may block for a call or three."""
        now_us = self.clock.now_us()
        measured = 0 <= now_us - self._measured_us <= CLOCK_US_MAX and self._measured_us >= 0
        if not measured and not self._offset.shared:
            self._offset.forget()
            for _ in range(CLOCK_CALLS):
                self._patiently(self._ask_time)
            self._measured_us = now_us = self.clock.now_us()
        # Rounded up: a delay is never shorter than it says.
        return -(-self._offset.broker_us(now_us) // 1000)

    def _ask_time(self) -> None:
        sent_us = self.clock.now_us()
        answer = self.transport.action("clock", {}, repeats=True).result()
        self._offset.add_pong(sent_us, self.clock.now_us(), int(answer["broker_us"]))

    def call(self, action: str, body: dict[str, Any]) -> dict[str, Any]:
        """Make a call that may be repeated, for as long as retries last. Blocks."""
        return self._patiently(lambda: self.transport.action(action, body, repeats=True).result())

    def rows(self, ticket: dict[str, Any]) -> pa.Table:
        """Rows without leasing, for which is asked as long as retries last. Blocks."""
        return self._patiently(lambda: self.transport.rows(ticket).result())

    def _patiently(self, call: Callable[[], Answer]) -> Answer:
        until_us, failures = self.clock.now_us() + self.retry_ms_max * 1000, 0
        while True:
            try:
                return call()
            except Unavailable as wrong:
                pause_us = int(backoff_ms(failures) * 1000)
                failures += 1
                now_us = self.clock.now_us()
                if self._closed or now_us + pause_us > until_us:
                    raise
                if failures == 1:
                    log.warning("%s: no answer yet, asking again: %s", self.where, wrong)
                self.clock.wait_until(now_us + pause_us, Wake())

    def close(self) -> None:
        """Close consumers, links, then the connection. Blocks; twice is fine."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            gathers = [gather.link for gather in self._gathers.values()]
            links = [*self._links.values(), *gathers, *self._other_links]
        for consumer in list(self._consumers):
            consumer.close()
        for link in links:
            link.close()
        self.alarm.stop()
        self.transport.close()


def _crowded(
    kept: OrderedDict[tuple[Any, ...], Kept], is_idle: Callable[[Kept], bool]
) -> list[Kept]:
    """Take out what is too much, those that are idle; whoever has one goes on with it."""
    gone = []
    for _ in range(len(kept) - LINKS_MAX):
        key, one = kept.popitem(last=False)
        if is_idle(one):
            gone.append(one)
        else:
            kept[key] = one
    return gone


def _write_all(link_for: LinkFor, batches: Iterable[pa.RecordBatch]) -> list[Reply]:
    """Send batches, pipelined; their replies. Raises the first error, when all are answered."""
    answers: list[Future[Reply]] = []
    try:
        for batch in batches:  # one by one: each waits for its place in the window
            answers.append(link_for(tuple(batch.schema.names)).send(batch))  # noqa: PERF401
    finally:
        for answer in answers:
            answer.exception()
    return [answer.result() for answer in answers]


def _settled(link_for: LinkFor, batch: pa.RecordBatch) -> Settled:
    """Send a batch of any length; the status of each row."""
    pieces = (batch.slice(at, ROWS_MAX) for at in range(0, batch.num_rows, ROWS_MAX))
    return Settled(result_of(_write_all(link_for, pieces)).statuses)


def _named(
    *,
    id: object,  # noqa: A002 - the public name
    ids: object,
    key: object,
    keys: object,
) -> tuple[str, pa.Array]:
    """Which messages a call is about: the column's name and the column."""
    given = {
        n: v for n, v in (("id", id), ("ids", ids), ("key", key), ("keys", keys)) if v is not None
    }
    if len(given) != 1:
        raise BadRequest("id", "exactly one of id, ids, key, keys", ", ".join(given) or None)
    name, value = next(iter(given.items()))
    if name in {"id", "ids"}:
        column = pa.array(int64s_of([value] if name == "id" else value, name))
        return "id", column
    if name == "key" and not isinstance(value, str):
        raise BadRequest("key", "a text", value)
    return "key", texts_of([value] if name == "key" else value, name)
