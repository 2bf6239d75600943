"""The core of a consumer: a stream that is reopened, what it holds, its leases and settles.

Room: client. Shared by the synchronous and the asynchronous consumer; waits for nothing itself.
Holds: at most `prefetch` rows are on their way or held; nothing is handed over early (rule 2) or
after its lease ended (rule 4); every settle's future ends; closing gives back what was not handed
over.
See: holding.py for due times and leases; _sync/waiting.py and _aio/waiting.py for the waiting.

`_mutex` guards what callbacks of the transport and the consuming thread share. It is never held
while something is sent, nor while a callback runs.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from dejaqueue import limits
from dejaqueue.client.alarm import Alarm, Appointment
from dejaqueue.client.connection_watch import ConnectionWatch
from dejaqueue.client.consuming import undecodable
from dejaqueue.client.consuming.clock_offset import ClockOffset
from dejaqueue.client.consuming.consume_settings import ConsumeSettings
from dejaqueue.client.consuming.extending import Extender
from dejaqueue.client.consuming.holding import Holder, Lease, Slice
from dejaqueue.client.consuming.lateness import LatenessHistogram
from dejaqueue.client.consuming.open_rows import OpenRows
from dejaqueue.client.consuming.program_end import close_soon
from dejaqueue.client.consuming.release import Release, releases_of
from dejaqueue.client.consuming.settle_batches import Fate, SettleBatches
from dejaqueue.client.consuming.settling import Settling
from dejaqueue.client.link import WriteLink, backoff_ms
from dejaqueue.client.sending.sent import done_already
from dejaqueue.client.streamed import PartCalls
from dejaqueue.client.transport import ConsumeChannel, Delivery, Transport
from dejaqueue.clock import Clock, Wake
from dejaqueue.errors import DejaQError, Elsewhere, Unavailable
from dejaqueue.log_rate import LogRate
from dejaqueue.schema.warm import warm_up
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream
from dejaqueue.wire.frames import DeliveryHead, Ping, Pong, Reply, Settle, SettleOp

log = logging.getLogger("dejaqueue.client")

PING_MS = 1_000
"""Between two measurements of the clock."""
PINGS_EARLY_MS = (20, 60, 150, 400)
"""The first ones follow faster: the best of several counts."""
SILENT_MS_MAX = 10_000
"""How long pings may stay unanswered before the broker counts as out of reach."""
_refusals = LogRate(10, 60)


class ConsumeCore:
    """What the sync and the async consumer share."""

    def __init__(
        self,
        transport: Transport,
        stream: ConsumeStream,
        settings: ConsumeSettings,
        clock: Clock,
        alarm: Alarm,
        link_for: Callable[[WriteStream], WriteLink],
        watch: ConnectionWatch,
    ) -> None:
        self.stream = stream.check()
        self.clock = clock
        self.alarm = alarm
        self.wake = Wake()
        self.lateness = LatenessHistogram()
        self.offset = ClockOffset(shared=self.clock if transport.shares_clock else None)
        self.is_over = False
        self.is_ending = False  # nothing is handed over any more: whoever takes is to finish
        self.put_back_rest: Callable[[], Callable[[], None] | None] = lambda: None
        self._transport = transport
        self._settings = settings
        self._link_for = link_for
        self._watch = watch
        self.part_calls = PartCalls(transport, clock, settings.retry_ms_max, watch.where)
        self._mutex = threading.Lock()
        self._holder = Holder()
        self._open = OpenRows()
        self._leases = Extender(self._mutex, clock, alarm, self.offset, self._ask_to_extend)
        self._channel: ConsumeChannel | None = None
        self._generation = 0
        self._number = 0
        self._credit = 0  # rows that may be asked for
        self._on_way = 0  # rows asked for and not delivered
        self._taken = 0  # rows handed over
        self._open_rows = 0  # of them not settled
        self._draining = False  # nothing is handed over any more, but may still be settled
        self._ring_loop: Callable[[], None] | None = None
        self._fatal: DejaQError | None = None
        self._stop = Wake()
        self._opened = self._closed = False
        self._pinging: Appointment | None = None
        self._pings = self._answered_us = self._until_us = 0
        self._failures = 0  # attempts to open a stream since one was answered on
        self._together = SettleBatches(alarm, self._send_together)
        self._settling = Settling(stream.topic, link_for, self._ring)
        self._releases = Release(transport, stream.topic, clock, watch)

    # --- the stream ----------------------------------------------------------------------------

    def open(self) -> None:
        """Open the stream, once; tries as long as retries last. Blocks."""
        if self._opened:
            return
        self._opened = True
        warm_up()
        self._connect()

    def _connect(self, wrong: DejaQError | None = None) -> None:
        """Open a stream, again while it fails or ends unanswered with `wrong`; until time is up."""
        if not self._failures:
            self._until_us = self.clock.now_us() + self._settings.retry_ms_max * 1000
        while not self._closed:
            if self._failures:
                pause_us = int(backoff_ms(self._failures - 1, wrong) * 1000)
                if wrong is not None and self.clock.now_us() + pause_us > self._until_us:
                    return self._end(wrong)
                self.clock.wait_until(self.clock.now_us() + pause_us, self._stop)
            self._failures += 1
            try:
                return self._connect_once()
            except Unavailable as unavailable:
                wrong = unavailable
                self._lost(wrong)
            except DejaQError as refused:
                return self._end(refused)
        return None

    def _connect_once(self) -> None:
        with self._mutex:
            self._generation += 1
            generation = self._generation
            self.offset.forget()
            self._credit = self._settings.prefetch - self._holder.rows
            if self._settings.until_settled:
                self._credit -= self._open_rows
            wanted = 0 if self._draining else self._grant()
        channel = self._transport.open_consume(
            self.stream,
            partial(self._on_delivery, generation),
            partial(self._on_pong, generation),
            partial(self._on_end, generation),
        )
        with self._mutex:
            ended = self._closed or generation != self._generation
            if not ended:
                self._channel = channel
        if ended:
            channel.close()
            return
        self._answered_us = self.clock.now_us()
        self._pings = 0
        self._ping(generation)
        self._send_ping(channel)
        if wanted > 0:
            channel.credit(wanted)

    def _on_delivery(self, generation: int, delivery: Delivery) -> None:
        now_us = self.clock.now_us()
        batch = delivery.batch
        refused: list[tuple[str, Slice]] = []
        if not (delivery.is_text or self.stream.auto_ack):
            batch, refused = undecodable.sort_out(batch)
        with self._mutex:
            if self._closed:
                self._came_late(generation, delivery)
                return
            is_newest = generation == self._generation
            if is_newest:  # or it is the clock of the broker before
                self.offset.add_head(now_us, delivery.head.broker_us)
            dropped = 0
            if generation > 1 and self._holder.rows:
                ids = delivery.batch.column("id").to_numpy()
                dropped = self._holder.drop_repeated(ids, generation)
            lease = self._holder.add(delivery.head, batch, generation)
            lease.rows = delivery.batch.num_rows  # those that are refused are under it, too
            if not self.stream.auto_ack:
                self._open.add(lease, batch)
            if is_newest:
                self._on_way -= lease.rows
            if self.stream.auto_ack:
                lease.end_ms = limits.INSTANT_MS_MAX  # they are acked: no lease can end
            unwanted = self._holder.take_all() if self._draining else None
            if self._settings.auto_extend and not self.stream.auto_ack and lease.rows_open:
                self._leases.add(lease)
        if unwanted is not None:
            self._give_back(unwanted)
        self._leases.plan()
        for reason, rows in refused:
            dropped += len(rows.ids)
            self._refuse(rows, delivery.head, reason)
        if dropped:
            self._return_credit(dropped)
        self._ring()

    def _came_late(self, generation: int, delivery: Delivery) -> None:
        """Under the mutex: the consumer was closed while this was on its way to it. The broker
        gives it back, unless the topic goes to another one just then."""
        if not self.stream.auto_ack:
            lease = Holder().add(delivery.head, delivery.batch, generation)
            self._open.add(lease, delivery.batch)

    def _refuse(self, rows: Slice, head: DeliveryHead, reason: str) -> None:
        """Nack rows that nobody could read."""
        delay_ms = undecodable.delay_ms(rows, head)
        left_out = _refusals.admit(self.stream.topic, self.clock.now_us() / 1e6)
        if left_out is not None:
            more = f" ({left_out} such lines were left out)" if left_out else ""
            log.warning(
                "topic %s: %d messages are nacked, the first of them %d: %s%s",
                *(self.stream.topic, len(rows.ids), rows.ids[0], reason, more),
            )
        self.settle_behind(SettleOp.NACK, rows, delay_ms, reason=reason)

    def _on_pong(self, generation: int, pong: Pong) -> None:
        now_us = self.clock.now_us()
        with self._mutex:
            if generation == self._generation:
                self.offset.add_pong(pong.client_us, now_us, pong.broker_us)
                self._answered_us, self._failures = now_us, 0
        self._watch.found(self, self.stream.topic)
        self._ring()  # what is held may be due a little earlier than was thought

    def _on_end(self, generation: int, error: DejaQError | None) -> None:
        with self._mutex:
            if generation != self._generation or self._closed:
                return
            self._channel = None
            self._on_way = 0
        if error is None or isinstance(error, Unavailable):
            self._lost(error)
            reopen = partial(self._connect, error)
            threading.Thread(target=reopen, name="dejaq-reopen", daemon=True).start()
        else:
            self._end(error)

    def _lost(self, error: DejaQError | None) -> None:
        """Tell that there is no broker; one that says who serves the topic now is there."""
        if not isinstance(error, Elsewhere):
            self._watch.lost(self, self.stream.topic, error or "the broker ended the stream")

    def _end(self, error: DejaQError) -> None:
        """No stream can be had: what is held is still handed over, then this is raised."""
        self._fatal = error
        self._ring()

    def _ring(self) -> None:
        self.wake.ring()
        ring = self._ring_loop
        if ring is not None:
            ring()

    def listen(self, ring: Callable[[], None] | None) -> None:
        """Call this, from any thread, when there may be something to take; None = no more."""
        self._ring_loop = ring

    # --- time ----------------------------------------------------------------------------------

    def _ping(self, generation: int) -> None:
        """Ping, and plan the next one; on the alarm's thread, but for the first."""
        with self._mutex:
            channel = self._channel
            if channel is None or generation != self._generation or self._closed:
                return
            silent_us = self.clock.now_us() - self._answered_us
        if silent_us > SILENT_MS_MAX * 1000 and not self.offset.shared:  # shared clocks may leap
            self._on_end(generation, Unavailable("the broker does not answer"))
            threading.Thread(target=channel.close, name="dejaq-abandon", daemon=True).start()
            return
        self._send_ping(channel)
        early = PINGS_EARLY_MS
        pause_ms = early[self._pings] if self._pings < len(early) else PING_MS
        self._pings += 1
        self._pinging = self.alarm.after(pause_ms, lambda: self._ping(generation))

    def _send_ping(self, connection: ConsumeChannel) -> None:
        with self._mutex:
            number = self._next_number()
            now_us = self.clock.now_us()
            offset_us, uncertainty_us = self.offset.at(now_us)
            report = self.lateness.take_report()
        connection.ping(Ping(number, now_us, offset_us, uncertainty_us, report))

    def release_us(self) -> int | None:
        """The client's time at which the next held row may be handed over; None = not known."""
        with self._mutex:
            due_ms = self._holder.next_due_ms()
            if due_ms is None:
                return None
            return self.offset.release_us(due_ms * 1000, self.clock.now_us())

    def take(self, rows_max: int) -> Slice | None:
        """The next rows that are due, None if none is; raises what went wrong behind.

        Whoever takes them counts their lateness (`late_us`).
        """
        self.raise_error()
        returned = 0
        found = None
        with self._mutex:
            now_us = self.clock.now_us()
            broker_us = self.offset.earliest_us(now_us)
            while broker_us is not None and not self._closed:
                found = self._holder.take(broker_us, rows_max)
                if found is None:
                    break
                returned += len(found.ids)
                if found.lease.end_ms * 1000 > self.offset.broker_us(now_us):
                    self._taken += len(found.ids)
                    if not self.stream.auto_ack:
                        self._open_rows += len(found.ids)
                        returned -= len(found.ids) if self._settings.until_settled else 0
                    break
                found.lease.rows_open -= len(found.ids)  # too late: it is delivered again
        if returned:
            self._return_credit(returned)
        if found is None and self._fatal is not None and not self._holder.rows:
            self.is_over = True
            raise self._fatal
        return found

    def late_us(self, dues_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """How late rows are that are handed over now, microseconds; not negative."""
        broker_us = self.offset.broker_us(self.clock.now_us())
        return np.maximum(broker_us - dues_ms * 1000, 0)

    def _return_credit(self, rows: int) -> None:
        """Rows left the client: grant as many again, in lumps of a quarter of the prefetch."""
        with self._mutex:
            self._credit += rows
            channel = self._channel
            coming = self._on_way + self._holder.rows
            if self._draining or channel is None:
                return
            if coming and self._credit * 4 < self._settings.prefetch:
                return
            granted = self._grant()
        if granted > 0:
            channel.credit(granted)

    def _grant(self) -> int:
        """Under the mutex: all credit there is, but no more than is to be taken in all."""
        granted = self._credit
        if self._settings.rows_max is not None:
            taken_or_held = self._taken + self._holder.rows
            left = self._settings.rows_max - taken_or_held - self._on_way
            granted = max(min(granted, left), 0)
        self._credit -= granted
        self._on_way += granted
        return granted

    def _ask_to_extend(self, leases: list[Lease], lease_ms: int) -> Future[Reply] | None:
        """Extend leases of one partition; None if there is no stream now."""
        with self._mutex:
            channel = self._channel
            number = self._next_number()
        if channel is None:
            return None
        first = leases[0]
        rows = (first.partition, first.lease_id, lease_ms)
        settle = Settle(SettleOp.EXTEND, number, *rows)
        if len(leases) > 1:
            ids = np.array([lease.lease_id for lease in leases], dtype=np.int64)
            settle = replace(settle, lease_id=-1, lease_ids=ids)
        return channel.settle(settle)

    def _next_number(self) -> int:
        self._number = self._number % 0xFFFF_FFFF + 1
        return self._number

    # --- settling ------------------------------------------------------------------------------

    def settle(
        self,
        op: SettleOp,
        rows: Slice,
        argument_ms: int = 0,
        *,
        reason: str = "",
        dead: bool = False,
    ) -> Future[Reply]:
        """ack, nack or extend rows; the future gives their statuses, Unavailable at worst."""
        count = len(rows.ids)
        lease = rows.lease
        if self.stream.auto_ack:
            return done_already(op, count)
        with self._mutex:
            if lease.lease_id < 0:
                pass
            elif op is not SettleOp.EXTEND:
                self._leases.settled(lease, count)
                self._open_rows -= count
            elif rows.is_whole:
                broker_ms = self.offset.broker_us(self.clock.now_us()) // 1000
                lease.end_ms = broker_ms + argument_ms
            channel = self._channel
            number = self._next_number()
            by_lease = rows.is_whole and lease.generation == self._generation
            finished = self._draining and self._open_rows <= 0
        if lease.lease_id >= 0 and op is not SettleOp.EXTEND:
            self._let_go(count)
        if by_lease:
            settle = Settle(op, number, lease.partition, lease.lease_id, argument_ms)
        else:
            settle = Settle(
                op, number, argument_ms=argument_ms, ids=rows.ids, attempts=rows.attempts
            )
        if reason or dead:
            settle = replace(settle, reason=reason, dead=dead)
        answer = self._settling.send(settle, rows, channel)
        if finished:
            self.abandon()
        return answer

    def leave(self, rows: Slice) -> None:
        """A transaction settles these rows: their lease is not extended any more."""
        with self._mutex:
            if rows.lease.lease_id >= 0:
                self._leases.settled(rows.lease, len(rows.ids))
                self._open_rows -= len(rows.ids)
            finished = self._draining and self._open_rows <= 0
        self._let_go(len(rows.ids))
        if finished:
            self.abandon()

    def _let_go(self, rows: int) -> None:
        """Rows that were handed over are settled, or will be by others."""
        if self._settings.until_settled:
            self._return_credit(rows)

    def settle_behind(
        self,
        op: SettleOp,
        rows: Slice,
        argument_ms: int = 0,
        *,
        reason: str = "",
        dead: bool = False,
    ) -> None:
        """As `settle`; nobody waits, and an error surfaces at a later call."""
        answer = self.settle(op, rows, argument_ms, reason=reason, dead=dead)
        self._settling.note(answer)

    def refuse_last(self, rows: Slice, reason: str) -> None:
        """Nack what was taken last, as the consumer closes; and do not be given it again."""
        with self._mutex:
            channel = self._channel
        if channel is not None:
            channel.credit(0)
        self.settle_behind(SettleOp.NACK, rows, -1, reason=reason)

    def settle_together(
        self, fate: Fate, lease: Lease, message_id: int, attempt: int
    ) -> Future[Reply] | None:
        """Ack or nack one message together with others, within a millisecond.

        Returns:
            What to wait for before more is settled; None = nothing, little is on its way.
        """
        if self.stream.auto_ack:
            return None
        with self._mutex:
            lease.rows_open -= 1
        self._together.add(fate, message_id, attempt)
        return self._settling.oldest_of_many()

    def _send_together(self, fate: Fate, rows: Slice) -> None:
        op, argument_ms, reason, dead = fate
        with self._mutex:
            self._open_rows -= len(rows.ids)  # not before: with the last one it may close
        self._let_go(len(rows.ids))
        self.settle_behind(op, rows, argument_ms, reason=reason, dead=dead)

    @property
    def waits(self) -> bool:
        """Acks are waited for unless somebody says otherwise: no later call would raise what went
        wrong behind, or the broker is in this process, maybe with a clock that stands still."""
        return self._draining or self.is_over or self.offset.shared

    def raise_error(self) -> None:
        """Raise what went wrong behind since the last call, if anything did."""
        self._settling.raise_error()

    def skip(self, lease: Lease, rows: int) -> None:
        """Rows that were taken are not handed over: their lease has ended."""
        with self._mutex:
            lease.rows_open -= rows
            self._open_rows -= rows
        self._let_go(rows)

    def _give_back(self, rows: Slice) -> None:
        """Rows that nobody will take: the broker may lease them to others when they are due."""
        if self.stream.auto_ack:
            return  # at most once: these are gone
        with self._mutex:
            channel = self._channel
        for release in self._releases_of(rows):
            self._releases.send(release, channel)

    def _releases_of(self, *slices: Slice | None) -> list[Settle]:
        """What gives these rows back."""
        with self._mutex:
            reached_us = self.offset.reached_us(self.clock.now_us())
            found = [one for rows in slices if rows for one in releases_of(rows, reached_us)]
            return [replace(one, number=self._next_number()) for one in found]

    def put_back(self, rows: Slice) -> None:
        """Rows that were taken, and that nobody looked at: others may have them."""
        self.skip(rows.lease, len(rows.ids))
        self._give_back(rows)

    def drain(self) -> None:
        """Finish, on another thread; takes no lock here, as a signal's handler must not."""
        self.is_ending = True
        threading.Thread(target=self._drain, name="dejaq-abandon", daemon=True).start()

    def _drain(self) -> None:
        self.finish()
        if put_back := self.put_back_rest():  # of a consumer that is still there
            put_back()
        self.finish()
        self._ring()

    def finish(self) -> None:
        """Take nothing any more; what was taken can still be settled, then the stream closes."""
        self._together.flush()
        with self._mutex:
            done = self._open_rows <= 0
            first, self._draining = not self._draining, True
            held = None if done else self._holder.take_all()  # closing gives it back
            channel = self._channel
        if done:
            self.close()
            return
        if held is not None:
            self._give_back(held)
        if first and channel is not None:
            channel.credit(0)

    def close(self) -> None:
        """Send acks that wait, give back what was not handed over. Blocks; twice is fine."""
        self._together.flush()
        self._settling.wait()
        with self._mutex:
            held = self._holder.take_all()
            first, self._closed = not self._closed, True
            # The broker gives back what came by the stream that there is, and nothing else.
            stale = self._open.left(before=self._generation)
            self._settling.close()
            self.is_over = True
            channel, self._channel = self._channel, None
            self._leases.close()
            if self._pinging is not None:
                self._pinging.cancel()
        self._watch.forget(self)
        self._stop.ring()
        if first and self._opened:
            if channel is not None and self.lateness.has_news:
                self._send_ping(channel)
            self._leave(channel, held, stale)
        self._ring()

    def _leave(
        self, channel: ConsumeChannel | None, held: Slice | None, stale: Slice | None
    ) -> None:
        """End the stream, and give back what is left: by it, or where the topic is now."""
        if self.stream.auto_ack:  # all was acked when it was sent
            held = stale = None
        releases = self._releases_of(held, stale)
        if channel is not None and self._releases.send_last(releases, channel):
            return
        with self._mutex:
            others = self._open.left()
        if self._fatal is None:  # or there is nobody to be told
            self._releases.send_elsewhere(self._releases_of(held, others))

    def abandon(self) -> None:
        """Nobody needs the consumer any more: close it, on another thread."""
        # While the interpreter ends no thread starts: the broken connection tells the broker.
        if self._opened and not self._closed and not sys.is_finalizing():
            close_soon(self)
