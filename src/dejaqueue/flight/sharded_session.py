"""A consumer of all shards of a topic, behind one stream or one pool of requests.

Room: flight. Callbacks of the transport come on its threads; what is sent waits for nothing.
Holds: a shard whose broker goes away is opened again where it is then, the others go on; a settle
goes to the shard that has the message.
See: sharded.py; client/shards/consuming.py, which does this for our own clients, and holds ahead.
"""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

import numpy as np

from dejaqueue import limits
from dejaqueue.broker.streams import Push, ReplyTo, Sink
from dejaqueue.client.alarm import Alarm
from dejaqueue.client.link import backoff_ms
from dejaqueue.client.routed_transport import RoutedTransport
from dejaqueue.client.transport import ConsumeChannel, Delivery
from dejaqueue.clock import Clock
from dejaqueue.engine.effects import Leased
from dejaqueue.errors import BadRequest, DejaQError, Elsewhere, Unavailable
from dejaqueue.schema.shards import shard_of_ids, split_rows
from dejaqueue.topic_names import shard_name
from dejaqueue.wire.descriptors import ConsumeStream
from dejaqueue.wire.frames import Ping, Pong, Reply, Settle

LOOK_MS = 100
"""How long a request that does not want to wait gives shards to answer."""
TRIES_MAX = 20
"""Tries, with pauses, to open a shard before the consumer is ended."""


class ShardedSession:
    """One consumer, with the calls of broker.session.ConsumerSession.

    Args:
        sink: the way to the consumer.
        clock: of the broker that is asked.

    Attributes:
        gives_runs: as of ConsumerSession; set by who opens it.
    """

    gives_runs = False

    def __init__(
        self,
        transport: RoutedTransport,
        options: ConsumeStream,
        spread: int,
        sink: Sink,
        clock: Clock,
        alarm: Alarm,
    ) -> None:
        self._transport = transport
        # What is leased ahead is held by the consumer's clock, which knows one broker's.
        self._options = replace(options, holds=False, consumer_id=uuid.uuid4().hex)
        self._spread = spread
        self._sink = sink
        self._clock = clock
        self._alarm = alarm
        self._lock = threading.Lock()
        self._channels: list[ConsumeChannel | None] = [None] * spread
        self._generations = [0] * spread
        self._asked = [0] * spread
        """Rows that each shard may send still."""
        self._wanted = 0
        """Rows that the consumer has given credit for and not got; below 0 = it got more."""
        self._pings = 0
        self._closed = False
        self.consumer = self
        for shard in range(spread):
            self._open(shard, 0)

    # --- streams ----------------------------------------------------------------------------

    def _open(self, shard: int, failures: int) -> None:
        with self._lock:
            if self._closed:
                return
            self._generations[shard] += 1
            generation = self._generations[shard]
            self._asked[shard] = 0
        stream = replace(self._options, topic=shard_name(self._options.topic, shard, self._spread))
        try:
            channel = self._transport.open_consume(
                stream,
                partial(self._on_delivery, shard, generation),
                lambda _pong: None,
                partial(self._on_end, shard, generation, failures),
            )
        except Unavailable as error:
            self._on_end(shard, generation, failures, error)
            return
        with self._lock:
            stale = self._closed or generation != self._generations[shard]
            if not stale:
                self._channels[shard] = channel
        if stale:
            channel.close()
        else:
            self._share_out()

    def _on_end(self, shard: int, generation: int, failures: int, error: DejaQError | None) -> None:
        with self._lock:
            if self._closed or generation != self._generations[shard]:
                return
            self._generations[shard] += 1
            self._channels[shard] = None
            self._asked[shard] = 0
        if (error is None or isinstance(error, Unavailable)) and failures < TRIES_MAX:
            again = partial(self._open_apart, shard, failures + 1)
            self._alarm.after(int(backoff_ms(failures)), again)
        else:
            self._sink.end(error or Unavailable("a shard ended its stream"))

    def _open_apart(self, shard: int, failures: int) -> None:
        """On a thread that may wait."""
        opens = partial(self._open, shard, failures)
        threading.Thread(target=opens, name="dejaq-shards", daemon=True).start()

    def _on_delivery(self, shard: int, generation: int, delivery: Delivery) -> None:
        rows = delivery.batch.num_rows
        with self._lock:
            if generation == self._generations[shard]:
                self._asked[shard] = max(0, self._asked[shard] - rows)
            self._wanted -= rows
        self._sink.push(_push_of(delivery))
        self._share_out()

    # --- credit -----------------------------------------------------------------------------

    def credit(self, rows: int) -> None:
        """The consumer takes `rows` more; 0 = it takes nothing any more, all credit is void."""
        if rows == 0:
            with self._lock:
                self._wanted = 0
            self._void()
            return
        with self._lock:
            self._wanted = min(self._wanted + rows, limits.CREDIT_MAX)
        self._share_out()

    def withdraw(self, rows: int) -> int:
        """The consumer takes `rows` less; what is on its way still comes."""
        with self._lock:
            taken = max(0, min(rows, self._wanted))
            self._wanted -= taken
        if taken:
            self._void()
            self._share_out()
        return taken

    def _void(self) -> None:
        with self._lock:
            self._asked = [0] * self._spread
            channels = [channel for channel in self._channels if channel is not None]
        for channel in channels:
            channel.credit(0)

    def _share_out(self) -> None:
        """Let every shard send its share of what is wanted, and a row at least."""
        grants: list[tuple[ConsumeChannel, int]] = []
        with self._lock:
            share = -(-self._wanted // self._spread)
            for shard, channel in enumerate(self._channels):
                # Only when half of it is used up: a share is a frame.
                if channel is not None and self._asked[shard] * 2 <= share and share > 0:
                    more = share - self._asked[shard]
                    self._asked[shard] += more
                    if more:
                        grants.append((channel, more))
        for channel, more in grants:
            channel.credit(more)

    # --- settling ---------------------------------------------------------------------------

    def settle(self, settle: Settle, reply: ReplyTo) -> None:
        """ack, nack or extend. `reply` is called once, if the settle has a number."""
        if settle.lease_id >= 0 or settle.lease_ids is not None:
            self._settle_in(settle.partition % self._spread, settle, reply)
            return
        ids, attempts = settle.ids, settle.attempts
        if ids is None or attempts is None or len(ids) == 0:
            reply(Reply(settle.number, error=BadRequest("settle.ids", "at least one id", 0)))
            return
        parts = split_rows(shard_of_ids(ids, self._spread))
        if len(parts) == 1:
            self._settle_in(parts[0][0], settle, reply)
            return
        joined = _JoinedSettle(settle.number, len(ids), reply)
        joined.left = len(parts)
        for shard, rows in parts:
            part = replace(settle, ids=ids[rows], attempts=attempts[rows])
            self._settle_in(shard, part, partial(joined.answered, rows))

    def _settle_in(self, shard: int, settle: Settle, reply: ReplyTo) -> None:
        channel = self._channels[shard]
        if channel is None:
            gone = Unavailable("the shard is between two owners; settle by id", 50)
            if settle.number:
                reply(Reply(settle.number, error=gone))
            return

        def answered(found: Future[Reply]) -> None:
            wrong = found.exception()
            if not settle.number:
                return
            if wrong is None:
                reply(found.result())
            else:
                error = wrong if isinstance(wrong, DejaQError) else Unavailable(repr(wrong))
                reply(Reply(settle.number, error=error))

        channel.settle(settle).add_done_callback(answered)

    # --- life -------------------------------------------------------------------------------

    def ping(self, ping: Ping) -> Pong:
        """Answer with this broker's time; the shards hear that the consumer is there."""
        now_us = self._clock.now_us()
        for shard, channel in enumerate(list(self._channels)):
            if channel is not None:
                report = ping.report if shard == 0 else None
                channel.ping(Ping(ping.number, now_us, 0, 0, report))
        return Pong(ping.number, ping.client_us, now_us)

    def seen(self) -> None:
        """The shards hear that the consumer is there."""
        self._pings = self._pings % 0xFFFF_FFFF + 1
        self.ping(Ping(self._pings, self._clock.now_us()))

    def forget_ended(self) -> None:
        """Leases are known to the shards."""

    def looked(self) -> Future[None]:
        """Done when the shards have had time to look for messages."""
        done: Future[None] = Future()
        self._alarm.after(LOOK_MS, partial(done.set_result, None))
        return done

    def close(self, *, release: bool) -> None:
        """End. Twice is fine. Leases of a shard that goes to another broker just then run out:
        clients that follow have a consumer for each shard, and none of this.

        Args:
            release: leases end at once; False = they go on to their end.
        """
        with self._lock:
            first, self._closed = not self._closed, True
            channels = [channel for channel in self._channels if channel is not None]
        if not first:
            return
        for channel in channels:
            leave = channel.close if release else getattr(channel, "abandon", channel.close)
            threading.Thread(target=leave, name="dejaq-shards", daemon=True).start()


class _JoinedSettle:
    """One reply of the replies of several shards. Elsewhere, which says that nothing was done, is
    not the answer if something was."""

    def __init__(self, number: int, rows: int, reply: ReplyTo) -> None:
        self.left = 0
        self._number = number
        self._reply = reply
        self._statuses = np.zeros(rows, dtype=np.uint8)
        self._error: DejaQError | None = None
        self._is_elsewhere = True  # so far nothing of it was done
        self._lock = threading.Lock()

    def answered(self, rows: np.ndarray[tuple[int], np.dtype[np.int64]], reply: Reply) -> None:
        """A shard has answered."""
        with self._lock:
            self._error = self._error or reply.error
            self._is_elsewhere &= isinstance(reply.error, Elsewhere)
            if reply.statuses is not None:
                self._statuses[rows] = reply.statuses
            self.left -= 1
            done = self.left == 0
        if done:
            statuses = self._statuses if self._statuses.any() else None
            rows_in_all = len(self._statuses)
            error = self._error
            if isinstance(error, Elsewhere) and not self._is_elsewhere:
                error = Unavailable(f"{error}, and some of it was done", error.retry_after_ms)
            if error is not None:
                self._reply(Reply(self._number, rows_in_all, error=error))
            else:
                self._reply(Reply(self._number, rows_in_all, statuses=statuses))


def _push_of(delivery: Delivery) -> Push:
    """A delivery that came from a shard, as one that goes on."""
    head, batch = delivery.head, delivery.batch
    ids = batch.column("id").to_numpy()
    leased = Leased(
        head.lease_id,
        head.lease_end_ms,
        ids & limits.SEQUENCE_MAX,
        batch.column("attempts").to_numpy(),
        batch.column("due").to_numpy(),
        np.zeros(0, dtype=np.int64),
    )
    return Push(head.partition, _NoJournal, leased, limits.DISPATCH_ROWS_MAX, kept=[batch])  # type: ignore[arg-type]


_NoJournal = object()
"""Rows that came from elsewhere are read."""
