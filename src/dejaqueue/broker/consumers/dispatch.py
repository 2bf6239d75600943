"""Dispatch: which consumer gets the next rows, and what each still holds.

Room: broker. A dispatcher per topic, shared by its partitions' workers and the consumers' streams.
Holds: a consumer never has more rows on their way than it gave credit for; the turn goes round over
consumers that have credit and were heard of lately.
See: docs/concepts/leases.md; credit_queue.py for the partitions that wait.

The one lock here is taken for a few lines at a time and never while another is held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from dejaqueue import limits
from dejaqueue.broker.consumers.assignment import NOBODY
from dejaqueue.broker.consumers.credit_queue import CreditQueue
from dejaqueue.broker.consumers.held_lease import HeldLease, LeaseKey, SentRows, let_go
from dejaqueue.broker.consumers.holders import Holders
from dejaqueue.broker.consumers.turns import Turns
from dejaqueue.broker.counting import PartitionCounts
from dejaqueue.broker.payloads.partition_payloads import PartitionPayloads
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.effects import Leased
from dejaqueue.errors import DejaQError, ResourceExhausted
from dejaqueue.journal.interface import Entry, Journal
from dejaqueue.model import TagFilter
from dejaqueue.wire.descriptors import ConsumeStream

EARLY_LEAVES = 8
"""An eighth of the most credit that a consumer ever had is kept from what is for much later."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Push:
    """Leased rows on their way to a consumer; the thread that sends them reads the payloads.

    Attributes:
        partition: number of the partition.
        journal: where the stored rows are.
        leased: which rows.
        rows_max: rows whose payloads together make no more than a wire message should hold.
        is_done: the rows are acked before they are sent (at most once).
        kept: what is sent, where it had to be read before its sender came; empty = the sender
            reads it.
        counting: where it is counted; None = where what its partition does is.
        payloads: where those are that are not in the journal.
        consumer: whose credit it took; None = nobody's.
        entry: a small one that has all of these rows; None = they are to be read. None of them is
            gone as long as the lease holds.
        copies: rows that were copied since they were leased, oldest first: their sequences, which
            ascend, and their locators. Where a row was is freed once its copy can be read.
    """

    partition: int
    journal: Journal
    leased: Leased
    rows_max: int
    is_done: bool = False
    counting: PartitionCounts | None = None
    payloads: PartitionPayloads | None = None
    consumer: Consumer | None = None
    kept: list[pa.RecordBatch] = field(default_factory=list)
    entry: Entry | None = None
    copies: list[tuple[Int64s, Int64s]] = field(default_factory=list)


class Sink(Protocol):
    """The way to a consumer. Must not block."""

    def push(self, push: Push) -> None:
        """Send these rows."""
        ...

    def end(self, error: DejaQError) -> None:
        """Tell the consumer that nothing more comes, and why."""
        ...


Release: TypeAlias = Callable[[int, int, int, Leased | None], None]
"""Gives back what a lease has left: number of the partition, id of the lease, when others may have
it, UTC milliseconds, and which rows, None = all. Called by workers and senders, must not block."""


def _runs_out(*_named: object) -> None:
    """A lease that nobody gives back ends by itself."""


class Consumer:
    """One consumer of a topic, as the broker sees it."""

    def __init__(
        self,
        number: int,
        options: ConsumeStream,
        sink: Sink,
        seen_us: int,
        ahead_ms: int,
        dispatcher: Dispatcher,
    ) -> None:
        self.number = number
        self.id = options.consumer_id or f"{options.topic}/{number}"
        self.options = options
        self.sink = sink
        self.credit = 0
        self.credit_most = 0
        """The most that it ever had: what it asked for ahead."""
        self.seen_us = seen_us
        self.ahead_ms = ahead_ms
        """How far ahead of due this consumer may be sent rows at most; 0 while its clock is
        uncertain."""
        self.offset_us = 0
        self.uncertainty_us = -1
        self.delivered_count = 0
        self.settled_count = 0
        self.closed = False
        self.release: Release = _runs_out
        """Gives back a lease of this consumer; set by its session."""
        self.releases_late = False
        """It has closed, and what becomes its own after that is given back."""
        self.leases: dict[LeaseKey, HeldLease] = {}
        self.wanted = options.tag_filter
        self.dispatcher = dispatcher

    @property
    def name(self) -> str:
        """What it is called where people read it."""
        return self.options.consumer or f"consumer-{self.options.consumer_id[:8] or self.number}"

    def credit_for(self, *, early: bool) -> int:
        """How many messages it can take. Of what is for much later it takes fewer: it is to have
        some left for what is due before."""
        return self.credit - self.credit_most // EARLY_LEAVES if early else self.credit

    def describe(self) -> dict[str, object]:
        """What `stats` shows of it."""
        wanted = self.wanted or TagFilter()
        return {
            "consumer": self.name,
            "credit": self.credit,
            "delivered": self.delivered_count,
            "settled": self.settled_count,
            "leases": len(self.leases),
            "lease_ahead_ms": min(self.ahead_ms, limits.LEASE_AHEAD_MS_MAX),
            "clock_offset_us": self.offset_us,
            "clock_uncertainty_us": self.uncertainty_us,
            "tags_any": list(wanted.any_of),
            "tags_all": list(wanted.all_of),
            "tags_none": list(wanted.none_of),
        }


class Dispatcher:
    """The consumers of one topic.

    Args:
        silence_us_max: a consumer not heard of for this long gets nothing new.
        wake, lane_of: as for CreditQueue; `wake` is called without the lock.
        on_share: called, without the lock, when partitions of an exclusive topic change hands.

    Attributes:
        waiting: the partitions that wait for credit.
    """

    def __init__(
        self,
        silence_us_max: int,
        wake: Callable[[int], bool],
        lane_of: Callable[[int], object] = lambda _number: 0,
        on_share: Callable[[], None] = lambda: None,
    ) -> None:
        self._lock = threading.Lock()
        self._consumers: list[Consumer] = []
        self._turns = Turns[Consumer]()
        self._number = 0
        self.silence_us_max = silence_us_max
        self.waiting = CreditQueue(wake, lane_of)
        self._on_share = on_share
        self._end: DejaQError | None = None
        self._starved = False  # a partition found no credit, perhaps as another had reserved it
        self.filters: tuple[TagFilter | None, ...] = ()
        """What the consumers take, each filter once; None = anything."""
        self._holders: Holders | None = None
        self._recheck_us = 0

    # --- exclusive assignment -----------------------------------------------------------------

    @property
    def is_exclusive(self) -> bool:
        """True if each partition has one consumer at a time."""
        return self._holders is not None

    @property
    def has_consumers(self) -> bool:
        """True if somebody consumes."""
        return bool(self._consumers)

    @property
    def added_count(self) -> int:
        """How many consumers ever came."""
        return self._number

    def configure(
        self, *, exclusive: bool, numbers: Sequence[int], now_us: int, is_shard: bool = False
    ) -> None:
        """How partitions are shared, and which there are; both may change.

        Args:
            is_shard: it is the topic's home that decides who gets which (`tell`).
        """
        with self._lock:
            if not exclusive:
                self._holders = None
                return
            if self._holders is None:
                self._holders = Holders(numbers, is_told=is_shard)
            else:
                self._holders.grow(numbers)
            self._share(now_us)

    def sharing(self) -> tuple[list[str], dict[int, str]] | None:
        """Of a shard of an exclusive topic: ids of its consumers, and who is to have what as it was
        told; None = the topic is not exclusive."""
        with self._lock:
            holders = self._holders
            return None if holders is None else (list(holders.consumers), dict(holders.told))

    def tell(self, targets: Mapping[int, str]) -> None:
        """Take over who is to have each partition, as the topic's home decided."""
        with self._lock:
            changed = self._holders is not None and self._holders.tell(targets)
        if changed:
            self._on_share()

    def _share(self, now_us: int) -> bool:
        """Share the partitions anew among who was heard of lately; under the lock."""
        if self._holders is None:
            return False
        heard = [c for c in self._consumers if now_us - c.seen_us <= self.silence_us_max]
        first_us = min((consumer.seen_us for consumer in heard), default=now_us)
        self._recheck_us = first_us + self.silence_us_max + 1
        return self._holders.share({consumer.id: consumer.number for consumer in heard})

    def share_anew(self, now_us: int) -> None:
        """Have the dead give up what they have, if it is time to look."""
        if self._holders is None or now_us < self._recheck_us:
            return
        with self._lock:
            changed = self._share(now_us)
        if changed:
            self._on_share()

    def next_share_us(self) -> int | None:
        """When a consumer of an exclusive topic may be found silent; None = no need to look."""
        return self._recheck_us if self._holders is not None and self._consumers else None

    def assignments(self, numbers: Sequence[int]) -> dict[str, Any]:
        """For each partition who has it and who gets it next, and who stands by."""
        with self._lock:
            names = {consumer.number: consumer.name for consumer in self._consumers}
            holders = self._holders
            pairs = dict.fromkeys(numbers, (-1, -1)) if holders is None else holders.pairs()
        targets = {target for _, target in pairs.values()}
        idle = [name for number, name in names.items() if number not in targets]
        return {
            "partitions": [
                {
                    "partition": partition,
                    "consumer": names.get(holder, ""),
                    "next": "" if target == holder else names.get(target, ""),
                }
                for partition, (holder, target) in pairs.items()
            ],
            "standby": [] if holders is None else idle,
        }

    def credits(self, numbers: Sequence[int]) -> list[int]:
        """For each partition how many messages its consumers can take more: all of them, or of an
        exclusive topic the one that is to have it."""
        with self._lock:
            credit_of = {consumer.number: consumer.credit for consumer in self._consumers}
            if self._holders is None:
                return [sum(credit_of.values())] * len(numbers)
            pairs = self._holders.pairs()
        return [credit_of.get(pairs.get(number, (NOBODY, NOBODY))[1], 0) for number in numbers]

    # --- consumers ----------------------------------------------------------------------------

    def _note_filters(self) -> bool:
        """Under the lock; True if they are others than before."""
        before = self.filters
        self.filters = tuple(dict.fromkeys(consumer.wanted for consumer in self._consumers))
        return self.filters != before

    def add(self, options: ConsumeStream, sink: Sink, now_us: int, ahead_ms: int) -> Consumer:
        """A new consumer, without credit yet. Raises ResourceExhausted over the limit, and what
        `end_all` told the others: nothing would ever come."""
        with self._lock:
            if self._end is not None:
                raise self._end
            if len(self._consumers) >= limits.CONSUMERS_PER_TOPIC_MAX:
                raise ResourceExhausted(
                    f"topic has {limits.CONSUMERS_PER_TOPIC_MAX} consumers, the limit", 1_000
                )
            self._number += 1
            consumer = Consumer(self._number, options, sink, now_us, ahead_ms, self)
            self._consumers.append(consumer)
            differ = self._note_filters()
            changed = self._share(now_us)
        if differ:
            self.waiting.look_again()
        if changed:
            self._on_share()
        return consumer

    def remove(self, consumer: Consumer, now_us: int = 0, *, release: bool = False) -> None:
        """Forget a consumer.

        Args:
            release: give back what it still held, and what is on its way to it.
        """
        with self._lock:
            consumer.closed = True
            consumer.releases_late |= release
            if consumer in self._consumers:
                self._consumers.remove(consumer)
                self._note_filters()
            changed = self._share(now_us)
            held = list(consumer.leases.items())
            consumer.leases.clear()
        if changed:
            self._on_share()
        for (partition, lease_id), lease in held if release else ():
            consumer.release(partition, lease_id, lease.due_ms, None)

    def end_all(self, error: DejaQError) -> None:
        """Tell every consumer that nothing more comes, also those that come later."""
        with self._lock:
            self._end = error
            consumers = list(self._consumers)
        for consumer in consumers:
            consumer.sink.end(error)

    def credit(self, consumer: Consumer, rows: int, now_us: int) -> None:
        """The consumer can take `rows` more; 0 = it takes nothing any more, all credit is void."""
        with self._lock:
            consumer.credit = min(consumer.credit + rows, limits.CREDIT_MAX) if rows else 0
            consumer.credit_most = max(consumer.credit_most, consumer.credit)
            consumer.seen_us = now_us
        self.waiting.credit_came()

    def withdraw(self, consumer: Consumer, rows: int) -> int:
        """The consumer takes `rows` less than it gave credit for.

        Returns:
            How many that is; the others are on their way to it.
        """
        with self._lock:
            taken = min(rows, consumer.credit)
            consumer.credit -= taken
        return taken

    def seen(self, consumer: Consumer, now_us: int) -> None:
        """The consumer was heard of."""
        was_silent = now_us - consumer.seen_us > self.silence_us_max
        consumer.seen_us = now_us
        if was_silent:
            with self._lock:
                changed = self._share(now_us)
            if changed:
                self._on_share()
            self.waiting.credit_came()

    def holds_ahead(self, consumer: Consumer, ahead_ms: int) -> None:
        """The consumer may be sent rows so far ahead of due from now on."""
        consumer.ahead_ms = ahead_ms
        self.waiting.credit_came()  # whoever has something for later may send it sooner now

    def looked(self, partition: int, seen: int, *, waits: bool) -> None:
        """A partition was stepped: whether it waits for credit. As for CreditQueue.looked."""
        self.waiting.looked(partition, seen, waits=waits, has_credit=self._has_credit_left)

    def _has_credit_left(self) -> bool:
        """Anybody has, for whatever; if not, those who wait are woken when some is given back."""
        with self._lock:
            found = any(consumer.credit > 0 for consumer in self._consumers)
            self._starved |= not found
        return found

    def _served(self, partition: int, *, free: bool) -> list[Consumer]:
        """Who may get messages of the partition; under the lock."""
        if self._holders is None:
            return self._consumers
        number = self._holders.take(partition, free=free)
        return [consumer for consumer in self._consumers if consumer.number == number]

    def reserve(
        self,
        rows_max: int,
        now_us: int,
        wanted: TagFilter | None = None,
        *,
        holding: bool,
        early: bool = False,
        partition: int = 0,
        free: bool = True,
    ) -> tuple[Consumer, int] | None:
        """The next consumer in turn and how many rows it takes; its credit is taken off.

        Args:
            rows_max: rows to give at most.
            wanted: only consumers with this filter.
            holding: only consumers that may be sent rows ahead of due.
            early: the rows are for much later: a part of the credit is left for others.
            partition: where the rows are.
            free: no message of that partition is leased: another consumer may get it.

        Returns:
            None if no consumer can take a row now.
        """
        with self._lock:
            consumers = self._served(partition, free=free)
            consumer = self._turns.next(
                partition,
                consumers,
                lambda one: self._can_take(one, now_us, wanted, holding=holding, early=early),
                in_a_row=self._holders is None,
            )
            if consumer is None:
                self._starved = True
                return None
            self.waiting.give(partition)
            return consumer, self._taken(consumer, rows_max, early=early)

    def _can_take(
        self,
        consumer: Consumer,
        now_us: int,
        wanted: TagFilter | None,
        *,
        holding: bool,
        early: bool,
    ) -> bool:
        return (
            consumer.credit_for(early=early) > 0
            and not consumer.closed
            and (not holding or consumer.ahead_ms > 0)
            and consumer.wanted == wanted
            and now_us - consumer.seen_us <= self.silence_us_max
        )

    def can_hold_early(
        self, partition: int, now_us: int, wanted: TagFilter | None, *, free: bool
    ) -> bool:
        """Somebody can take rows that are for much later. Arguments as for `reserve`."""
        with self._lock:
            found = any(
                self._can_take(consumer, now_us, wanted, holding=True, early=True)
                for consumer in self._served(partition, free=free)
            )
            self._starved |= not found
        return found

    def _taken(self, consumer: Consumer, rows_max: int, *, early: bool) -> int:
        """Take the credit for one dispatch; how many rows that is."""
        credit = consumer.credit_for(early=early)
        rows = min(credit, rows_max, consumer.options.batch_rows_max)
        consumer.credit -= rows
        return rows

    def has_no_more(self, partition: int) -> None:
        """The partition has nothing to lease now: what comes later is dealt out one by one."""
        self._turns.ended(partition)

    def give_back(self, consumer: Consumer, rows: int) -> None:
        """Reserved rows that were not used after all."""
        with self._lock:
            consumer.credit += rows
            starved, self._starved = self._starved, False
        if starved:
            self.waiting.credit_came()

    def holds(self, consumer: Consumer, partition: int, leased: Leased) -> None:
        """Note a dispatch that goes to the consumer."""
        rows, due_ms = len(leased.sequences), int(leased.dues_ms.max(initial=0))
        with self._lock:
            consumer.delivered_count += rows
            release = consumer.releases_late
            if not consumer.closed:
                held = HeldLease(rows, leased.lease_end_ms, due_ms)
                consumer.leases[partition, leased.lease_id] = held
        if release:
            consumer.release(partition, leased.lease_id, due_ms, None)

    def could_not_read(
        self, consumer: Consumer, partition: int, leased: Leased, again_ms: int
    ) -> None:
        """Rows on their way to a consumer cannot be read: it may take others, and these are tried
        again at this time, UTC milliseconds, with whoever has the turn then."""
        rows = len(leased.sequences)
        with self._lock:
            let_go(consumer.leases, (partition, leased.lease_id), rows)
        consumer.release(partition, leased.lease_id, again_ms, leased)
        self.give_back(consumer, rows)

    def hands_over(self, consumer: Consumer, rows: int) -> None:
        """Note a dispatch that goes to the consumer and is acked already."""
        with self._lock:
            consumer.delivered_count += rows
            consumer.settled_count += rows

    def sent_in_part(
        self, consumer: Consumer, partition: int, lease_id: int, sent: SentRows
    ) -> None:
        """Note that other rows of a lease were not sent, and are given back: who settles all of it
        means these, and is answered for these."""
        with self._lock:
            held = consumer.leases.get((partition, lease_id))
            if held is not None:
                held.rows, held.sent = len(sent.sequences), sent

    def rows_sent(self, consumer: Consumer, partition: int, lease_id: int) -> SentRows | None:
        """The rows that were sent of a lease; None = all that it has."""
        with self._lock:
            held = consumer.leases.get((partition, lease_id))
            return None if held is None else held.sent

    def settled(self, consumer: Consumer, partition: int, lease_id: int, rows: int) -> None:
        """Note that rows of a lease were acked or nacked; -1 as rows = all of them."""
        with self._lock:
            consumer.settled_count += let_go(consumer.leases, (partition, lease_id), rows)

    def extended(
        self, consumer: Consumer, partition: int, lease_ids: list[int], end_ms: int
    ) -> None:
        """Note a new end of leases."""
        with self._lock:
            for lease_id in lease_ids:
                held = consumer.leases.get((partition, lease_id))
                if held is not None:
                    held.lease_end_ms = max(held.lease_end_ms, end_ms)

    def forget_ended(self, now_ms: int) -> None:
        """Drop what consumers held under leases that have ended."""
        with self._lock:
            for consumer in self._consumers:
                ended = [key for key, held in consumer.leases.items() if held.lease_end_ms < now_ms]
                for key in ended:
                    del consumer.leases[key]

    def has_credit(
        self,
        now_us: int,
        wanted: TagFilter | None = None,
        *,
        partition: int = 0,
        free: bool = True,
    ) -> tuple[bool, bool]:
        """(someone with this filter can take rows, someone who holds until due can). Arguments
        as for `reserve`."""
        anyone = holder = False
        with self._lock:
            for consumer in self._served(partition, free=free):
                if consumer.wanted != wanted:
                    continue
                if consumer.credit > 0 and now_us - consumer.seen_us <= self.silence_us_max:
                    anyone = True
                    if consumer.ahead_ms:
                        holder = True
                        break
            self._starved |= not anyone
        return anyone, holder

    def names_of(self, partition: int, lease_ids: Iterable[int]) -> dict[int, str]:
        """The names of the consumers that have these leases of a partition, where one has it."""
        left = {(partition, lease_id) for lease_id in lease_ids}
        if not left:
            return {}
        with self._lock:
            consumers = list(self._consumers)
        names: dict[int, str] = {}
        for consumer in consumers:
            if not left:
                break
            held = [key for key in left if key in consumer.leases] if consumer.leases else []
            names |= {lease_id: consumer.name for _, lease_id in held}
            left.difference_update(held)
        return names

    def describe(self) -> list[dict[str, object]]:
        """What `stats` shows of the consumers."""
        with self._lock:
            consumers = list(self._consumers)
        return [consumer.describe() for consumer in consumers]
