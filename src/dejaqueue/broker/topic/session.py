"""A consumer's session: credit, settles, clock, end.

Room: broker. Called by the consumer's stream, on its thread.
Holds: one reply per settle that asks for one; a session that closes cleanly ends its leases at
once, one that breaks leaves them to their end, because its consumer may come back with acks.
"""

from __future__ import annotations

import itertools
import logging
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import replace

import numpy as np

from dejaqueue import limits
from dejaqueue.broker.consumers.dispatch import Sink
from dejaqueue.broker.partition.requests import SettleRequest
from dejaqueue.broker.replies import ReplyTo, no_reply
from dejaqueue.broker.topic.joined_reply import JoinedReply
from dejaqueue.broker.topic.route import split_rows
from dejaqueue.broker.topic.served_view import ServedView, moved
from dejaqueue.clock import Clock
from dejaqueue.engine.effects import Leased
from dejaqueue.errors import BadRequest, DejaQError
from dejaqueue.settings import ClockSettings
from dejaqueue.wire.descriptors import ConsumeStream, check_lease
from dejaqueue.wire.frames import Ping, Pong, Reply, Settle, SettleOp

log = logging.getLogger("dejaqueue.broker")


class ConsumerSession:
    """One consumer of one topic, or of a subscription to it."""

    def __init__(
        self,
        topic: ServedView,
        options: ConsumeStream,
        sink: Sink,
        clock: Clock,
        settings: ClockSettings,
    ) -> None:
        self._topic = topic
        self._clock = clock
        self._settings = settings
        self._said_of_clock = 0
        self.consumer = topic.dispatcher.add(options, sink, clock.now_us(), 0)
        self.consumer.release = self._release

    @property
    def gives_runs(self) -> bool:
        """True if what one lease takes of a group must stay with one taker."""
        return self._topic.topic.group_runs

    def credit(self, rows: int) -> None:
        """The consumer takes `rows` more."""
        self._topic.dispatcher.credit(self.consumer, rows, self._clock.now_us())

    def withdraw(self, rows: int) -> int:
        """The consumer takes `rows` less than it gave credit for.

        Returns:
            How many were withdrawn; the others are on their way to it.
        """
        return self._topic.dispatcher.withdraw(self.consumer, rows)

    def seen(self) -> None:
        """The consumer was heard of."""
        self._topic.dispatcher.seen(self.consumer, self._clock.now_us())

    def forget_ended(self) -> None:
        """Drop what is known of leases that have ended; credit that they held comes back."""
        self._topic.dispatcher.forget_ended(self._clock.now_ms())

    def looked(self) -> Future[None]:
        """Done when every partition that may have something in it has looked once for messages for
        the credit given so far; fails as soon as one of them cannot be read."""
        looks = [
            self._topic.change(number, lambda _partition: None)
            for number in self._topic.dispatcher.waiting.occupied
            if self._topic.has_journal(number)
        ]
        done: Future[None] = Future()
        if not looks:
            done.set_result(None)
            return done
        left = itertools.count(len(looks) - 1, -1)

        def count(look: Future[None]) -> None:
            # Answers come on several threads. `next` counts under the interpreter's lock; an error
            # may come second, when the future has one already.
            error, is_last = look.exception(), next(left) == 0
            with suppress(InvalidStateError):
                if error is not None:
                    done.set_exception(error)
                elif is_last:
                    done.set_result(None)

        for look in looks:
            look.add_done_callback(count)
        return done

    def settle(self, settle: Settle, reply: ReplyTo) -> None:
        """ack, nack or extend. `reply` is called once, if the settle has a number."""
        dispatcher = self._topic.dispatcher
        dispatcher.seen(self.consumer, self._clock.now_us())
        named = settle.ids if settle.lease_ids is None else settle.lease_ids
        reply_to = self._topic.counting.counted(
            settle.op.name.lower(),
            1 if named is None else len(named),
            reply if settle.number else no_reply,
        )
        try:
            if settle.op is SettleOp.EXTEND and settle.argument_ms:
                check_lease(settle.argument_ms)
            if settle.lease_id >= 0 or settle.lease_ids is not None:
                self._settle_leases(settle, reply_to)
            else:
                self._settle_rows(settle, reply_to)
        except BadRequest as wrong:
            reply_to(Reply(settle.number, error=wrong))

    def _settle_leases(self, settle: Settle, reply: ReplyTo) -> None:
        self._topic.partitions.check("settle.partition", settle.partition)
        dispatcher, lease = self._topic.dispatcher, (settle.partition, settle.lease_id)
        sent = None if settle.lease_id < 0 else dispatcher.rows_sent(self.consumer, *lease)
        if settle.op is SettleOp.EXTEND:
            ids = [settle.lease_id] if settle.lease_ids is None else settle.lease_ids.tolist()
            lease_ms = settle.argument_ms or self._topic.topic.lease_ms
            end_ms = self._clock.utc_ms() + lease_ms
            dispatcher.extended(self.consumer, settle.partition, ids, end_ms)
        else:
            dispatcher.settled(self.consumer, *lease, -1)
        request = SettleRequest(
            settle.op,
            settle.number,
            reply,
            settle.lease_id,
            settle.argument_ms,
            reason=settle.reason,
            bury=settle.dead,
            release=settle.release,
            lease_ids=settle.lease_ids,
        )
        if sent is not None:
            request = replace(request, lease_id=-1, **sent._asdict())
        self._topic.submit(settle.partition, request)

    def _settle_rows(self, settle: Settle, reply: ReplyTo) -> None:
        ids, attempts = settle.ids, settle.attempts
        if ids is None or attempts is None or len(ids) == 0:
            raise BadRequest("settle.ids", "at least one id", 0)
        parts_of_rows = ids >> limits.SEQUENCE_BITS
        sequences = ids & limits.SEQUENCE_MAX
        parts = split_rows(parts_of_rows)
        if any(partition not in self._topic.partitions for partition, _ in parts):
            raise BadRequest("settle.ids", "ids of this topic", int(ids.max()))
        joined = (
            None
            if len(parts) == 1
            else JoinedReply(settle.number, len(ids), [rows for _, rows in parts], reply)
        )
        if settle.op is not SettleOp.EXTEND:
            self.consumer.settled_count += len(ids)
        for index, (partition, rows) in enumerate(parts):
            request = SettleRequest(
                settle.op,
                settle.number,
                reply if joined is None else joined.part(index),
                -1,
                settle.argument_ms,
                np.ascontiguousarray(sequences[rows]),
                np.ascontiguousarray(attempts[rows]),
                reason=settle.reason,
                bury=settle.dead,
                release=settle.release,
            )
            self._topic.submit(partition, request)

    def ping(self, ping: Ping) -> Pong:
        """Answer with the broker's time, and take over what the client knows of its clock."""
        now_us = self._clock.now_us()
        dispatcher, consumer = self._topic.dispatcher, self.consumer
        dispatcher.seen(consumer, now_us)
        consumer.offset_us, consumer.uncertainty_us = ping.offset_us, ping.uncertainty_us
        if ping.report is not None:
            self._topic.counting.felt_by(ping.report)
        limit_us = self._settings.offset_us_max
        is_well_known = 0 <= ping.uncertainty_us <= limit_us and abs(ping.offset_us) <= limit_us
        known = limit_us > 0 and is_well_known  # with 0 nobody's clock is
        ahead_ms = limits.SPIKE_AHEAD_MS_MAX if known and consumer.options.holds else 0
        if ping.uncertainty_us >= 0 and not known and limit_us:
            self._say_of_clock(ping, limit_us)
        if ahead_ms != consumer.ahead_ms:
            dispatcher.holds_ahead(consumer, ahead_ms)
        dispatcher.forget_ended(self._clock.utc_ms())
        return Pong(ping.number, ping.client_us, self._clock.utc_us())

    def _say_of_clock(self, ping: Ping, limit_us: int) -> None:
        """Why this consumer gets nothing ahead; each of the two reasons once. A slow way makes the
        measurement coarse and says nothing of the clock: no operator can mend one that is right.
        With a limit of 0 nobody gets anything ahead: that was chosen, and is no news."""
        is_off = abs(ping.offset_us) - ping.uncertainty_us > limit_us
        level = logging.WARNING if is_off else logging.INFO
        if self._said_of_clock >= level:
            return
        self._said_of_clock = level
        told = "is off by" if is_off else "is not known well enough: off by"
        log.log(
            level,
            "topic %s: the clock of consumer %r %s %d ± %d µs (limit %d): it gets messages only "
            "when they are due",
            self._topic.topic.name,
            self.consumer.options.consumer,
            told,
            ping.offset_us,
            ping.uncertainty_us,
            limit_us,
            extra={
                "topic": self._topic.topic.name,
                "consumer": self.consumer.options.consumer,
            },
        )

    def close(self, *, release: bool) -> DejaQError | None:
        """The session ends. Twice is fine.

        Args:
            release: end the leases it still holds, so that others get the messages at once.

        Returns:
            Why they may go on all the same: the topic goes to another broker just now, and its
            consumer has to say so there. None = they do not.
        """
        self._topic.dispatcher.remove(self.consumer, self._clock.now_us(), release=release)
        # After that: what came before a partition was closed is still done.
        if release and self._topic.is_closing:
            return moved(self._topic.topic.name)
        return None

    def _release(self, partition: int, lease_id: int, due_ms: int, rows: Leased | None) -> None:
        """Give back what a lease has left, or these rows of it, for others to have at its time:
        what was leased ahead must not come early (rule 2), nor be put off by each consumer that
        closes before."""
        delay_ms = max(0, due_ms - self._clock.utc_ms())
        request = SettleRequest(SettleOp.NACK, 0, no_reply, lease_id, delay_ms, release=True)
        if rows is not None:
            named = replace(request, lease_id=-1)
            request = replace(named, sequences=rows.sequences, attempts=rows.attempts)
        self._topic.submit(partition, request)
