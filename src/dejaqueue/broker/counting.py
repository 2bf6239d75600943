"""Counting: what a topic, its partitions and the whole broker note about themselves for /metrics.

Room: broker. Numbers and histograms (metrics.py); whoever does something counts it here, whoever
looks reads it without stopping a worker.
Holds: what is counted counts from the start of this process, and never falls, also where a
partition is read again.
See: observation.py, which reads it; the engine's own counts (engine/state.py) are the one truth for
what happened to messages, and only taken over here.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields
from functools import partial
from operator import attrgetter

import numpy as np

from dejaqueue import limits
from dejaqueue.broker.pace import Pace, PartitionPace
from dejaqueue.broker.replies import ReplyTo
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.effects import Leased
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.records import Counts
from dejaqueue.journal.interface import Journal
from dejaqueue.metrics import COUNT_BOUNDS, Counter, Histogram, Tallies, coarsen
from dejaqueue.model import RowStatus, TagFilter
from dejaqueue.wire.frames import LatenessReport, Reply

GAUGES = ("scheduled", "leased", "dead", "staged", "staged_acks")
"""Counts of the engine that say how many messages are in a state now."""
_GROWING = tuple(field.name for field in fields(Counts) if field.name not in GAUGES)
TOTALS = (*_GROWING, "died")
"""Counts of the engine that only grow; and how many ever died, buried by now or not."""
_gauges_of = attrgetter(*GAUGES)
_growing_of = attrgetter(*_GROWING)


def _totals_of(counts: Counts) -> tuple[int, ...]:
    return (*_growing_of(counts), counts.dead + counts.buried)


ARRIVALS_KEPT = 4_096
"""How many late entries keep their arrival time."""
SAMPLE_ROWS = 16
"""Rows of a larger dispatch that stand for all of it, where each has to be looked up."""


class BrokerCounts:
    """What belongs to no topic.

    Attributes:
        flight_begun: calls of Flight that began, by method.
        flight_ended: those that ended, by method and status.
    """

    def __init__(self) -> None:
        self.flight_begun = Tallies()
        self.flight_ended = Tallies()


class TopicCounts:
    """What all partitions of a topic count together.

    Attributes:
        lateness: due → pushed to the consumer by the broker, µs. What was due when a seek brought
            it back is in no such count.
        waited: due, or come in if that was later → pushed, µs. Of a larger dispatch SAMPLE_ROWS
            rows stand for all.
        felt: due → handed to the application, µs, as far as clients report it.
        appends: an append to the journal with its sync, µs.
        group_entries, group_rows: entries and rows that one append made durable.
        snapshots: writing a snapshot, µs.
        refused: rows that were not done, by what was asked and status or error.
        misses: messages that should have been leased ahead and were late.
        repeated: batches that came a second time and got their first answer.
        ended: ephemeral subscriptions that nobody consumed any more.
        history_recorded: changes that are in a finished file of history.
        history_missed: changes that history does not have; 1 where it is not known how many.
        cut_bytes: of appends that were not finished, cut off when a partition was read.
        pace: how fast it was in the last hour.
    """

    def __init__(self) -> None:
        self.lateness = Histogram()
        self.waited = Histogram()
        self.felt = Histogram()
        self.appends = Histogram()
        self.group_entries = Histogram(COUNT_BOUNDS)
        self.group_rows = Histogram(COUNT_BOUNDS)
        self.snapshots = Histogram()
        self.refused = Tallies()
        self.misses = Counter()
        self.repeated = Counter()
        self.ended = Counter()
        self.history_recorded = Counter()
        self.history_missed = Counter()
        self.cut_bytes = Counter()
        self.pace = Pace(self.lateness)

    def counted(self, op: str, rows: int, reply_to: ReplyTo) -> ReplyTo:
        """`reply_to`, which counts the rows that were refused before it answers."""
        return partial(self._count_reply, op, rows, reply_to)

    def _count_reply(self, op: str, rows: int, reply_to: ReplyTo, reply: Reply) -> None:
        if reply.error is not None:
            self.refused.add((op, type(reply.error).__name__), rows or reply.rows or 1)
        elif reply.statuses is not None:
            for status, count in enumerate(np.bincount(reply.statuses).tolist()):
                if count and status:
                    self.refused.add((op, RowStatus(status).name), count)
        reply_to(reply)

    def felt_by(self, report: LatenessReport) -> None:
        """Take what a client counted."""
        buckets, counts = np.array(report.buckets, dtype=np.int64), np.array(report.counts)
        self.felt.add_counts(coarsen(buckets, counts), report.sum_us)

    def appended(self, took_us: int, entry_count: int, row_count: int) -> None:
        """A group is durable."""
        self.appends.add(took_us)
        self.group_entries.add(entry_count)
        self.group_rows.add(row_count)


@dataclass(frozen=True, slots=True)
class _Promise:
    """A consumer waits with credit and a known clock, and nothing is left to lease to it.

    Attributes:
        at_ms: as of when.
        next_sequence: that the next new message will get: those below were known.
    """

    at_ms: int
    next_sequence: int


@dataclass(frozen=True, slots=True)
class _ReturnedRows:
    """What came back by a seek, or a subscription began with.

    Attributes:
        end: all of it has lower sequences; 0 = nothing.
        at_ms: when that was, the last time.
    """

    end: int = 0
    at_ms: int = 0


class PartitionCounts:
    """What one partition notes; it survives when the partition is read again.

    Args:
        topic: where what the topic counts together goes.
        in_due_order: messages are delivered in the order of their due times.
    """

    def __init__(self, topic: TopicCounts | None = None, *, in_due_order: bool = False) -> None:
        self._in_due_order = in_due_order
        self.topic = TopicCounts() if topic is None else topic
        self.arrivals = Arrivals()
        self.pace = PartitionPace(self.topic.pace)
        self._base: tuple[int, ...] | None = None
        self._engine: Engine | None = None
        self._journal: Journal | None = None
        self._bytes_before = 0
        self._shown = (0,) * len(TOTALS)
        self._lock = threading.Lock()
        self._promises: dict[TagFilter | None, _Promise] = {}
        self._returned = _ReturnedRows()

    # --- on the worker ------------------------------------------------------------------------

    def loaded(self, engine: Engine, journal: Journal) -> None:
        """The partition was read; what is in the journal by now was counted before."""
        with self._lock:
            if self._base is None:
                self._base = _totals_of(engine.counts)
            if self._journal is not None:
                self._bytes_before += self._journal.appended_bytes
            self._engine, self._journal = engine, journal
        self._promises.clear()
        if journal.cut_bytes:
            self.topic.cut_bytes.add(journal.cut_bytes)

    def came_in(self, position: int, dues_ms: Int64s, now_ms: int) -> None:
        """New messages, stored in the journal entry of this position."""
        if dues_ms.size and int(dues_ms.min()) < now_ms:
            self.arrivals.note(position, now_ms)

    def came_back(self, end: int, now_ms: int) -> None:
        """Messages below this sequence were done and came back now, or this view began with them:
        those that were due by now are not late by that."""
        self._returned = _ReturnedRows(max(end, self._returned.end), now_ms)

    def promised(self, wanted: TagFilter | None, at_ms: int, next_sequence: int) -> None:
        """All that may be leased ahead is leased, and a consumer waits for what comes next."""
        self._promises[wanted] = _Promise(at_ms, next_sequence)

    def unpromised(self, wanted: TagFilter | None) -> None:
        """No consumer that holds messages until they are due waits any more."""
        self._promises.pop(wanted, None)

    def leased(self, wanted: TagFilter | None, leased: Leased, now_ms: int) -> None:
        """Count lease-ahead misses: first deliveries of messages that were known, and not due,
        when a consumer with credit and a known clock already waited for them; leased after due."""
        promise = self._promises.get(wanted)
        if promise is None or not promise.at_ms < int(leased.dues_ms[-1]):
            return
        missed = (leased.dues_ms > promise.at_ms) & (leased.dues_ms < now_ms)
        missed &= (leased.sequences < promise.next_sequence) & (leased.attempts == 1)
        count = int(np.count_nonzero(missed))
        if count:
            self.topic.misses.add(count)

    # --- where groups become durable ----------------------------------------------------------

    def pushed(self, leased: Leased, now_us: int) -> None:
        """Messages go to their consumer now. Cost: about 10 µs for a thousand."""
        dues_ms, locators, back = leased.dues_ms, leased.locators, self._returned
        if back.end and dues_ms.size:
            is_new = (leased.sequences >= back.end) | (dues_ms >= back.at_ms)
            if not is_new.all():
                dues_ms, locators = dues_ms[is_new], locators[is_new]
        size = dues_ms.size
        if not size:
            return
        lateness, waited = self.topic.lateness, self.topic.waited
        first_ms = int(dues_ms[0] if self._in_due_order else dues_ms.min())
        self.pace.pushed(now_us, now_us - first_ms * 1_000)
        if self._in_due_order:
            if first_ms * 1_000 >= now_us:  # all of it was sent ahead
                lateness.add(0, size)
                waited.add(0, size)
                return
            lateness.add_since(now_us, dues_ms)
        else:
            lateness.add_many(now_us - dues_ms * 1_000)
        step = -(-size // SAMPLE_ROWS)
        readies_ms = self.arrivals.readies_ms(locators[::step], dues_ms[::step])
        # The last one stands for fewer, as a rule.
        waited_us = [now_us - ready_ms * 1_000 for ready_ms in readies_ms]
        waited.add_each(waited_us, step, size - step * (len(waited_us) - 1))

    # --- any thread ---------------------------------------------------------------------------

    def read(self) -> tuple[dict[str, int], dict[str, int], int]:
        """Messages by state; how often what was done since the start; bytes appended.

        The engine's counts are read while its worker goes on: each number was true at its moment.
        """
        with self._lock:
            engine, journal, base = self._engine, self._journal, self._base
            if engine is None or journal is None or base is None:
                return dict.fromkeys(GAUGES, 0), dict(zip(TOTALS, self._shown, strict=True)), 0
            # What was not durable when the partition failed is done again, and counted once.
            since = (now - was for now, was in zip(_totals_of(engine.counts), base, strict=True))
            self._shown = tuple(map(max, self._shown, since))
            totals = dict(zip(TOTALS, self._shown, strict=True))
            by_state = dict(zip(GAUGES, _gauges_of(engine.counts), strict=True))
            return by_state, totals, self._bytes_before + journal.appended_bytes


class Arrivals:
    """When late-comers came in: messages that were due already when they were sent.

    >>> arrivals = Arrivals()
    >>> arrivals.note(position=3, now_ms=5_000)
    >>> locators = np.array([2 << 20, 3 << 20 | 7, 3 << 20])
    >>> arrivals.readies_ms(locators, np.array([7, 7, 6_000]))
    [7, 5000, 6000]
    """

    def __init__(self) -> None:
        self._times_ms: dict[int, int] = {}

    def note(self, position: int, now_ms: int) -> None:
        """The messages that are stored at this position came in now."""
        times_ms = self._times_ms
        times_ms[position] = now_ms
        if len(times_ms) > ARRIVALS_KEPT:
            del times_ms[next(iter(times_ms))]

    def readies_ms(self, locators: Int64s, dues_ms: Int64s) -> list[int]:
        """When each could be delivered first: when due, or when it came in if that was later."""
        dues: list[int] = dues_ms.tolist()
        if not self._times_ms:
            return dues
        came_ms = self._times_ms.get
        positions = (locators >> limits.ROW_BITS).tolist()
        return [max(due, came_ms(at, due)) for due, at in zip(dues, positions, strict=True)]
