"""Leasing: what is due goes to who has credit, and when to look again.

Room: broker. Runs on the partition's worker, as a part of its step.
Holds: nothing is leased before its time by more than its consumer may hold it (rule 2); a lease
that handed nothing out and changed nothing leaves no trace in the journal.
See: partition.py, whose step calls it; dispatch.py for the consumers' turns.
"""

from __future__ import annotations

from typing import NamedTuple

from dejaqueue import limits
from dejaqueue.broker.consumers.dispatch import Consumer, Dispatcher, Push
from dejaqueue.broker.consumers.gathering import AT_HAND_ROWS_MAX
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.engine.arrays import Int64s
from dejaqueue.engine.commands import Ack, Lease
from dejaqueue.journal.interface import Entry, EntryKind
from dejaqueue.model import TagFilter
from dejaqueue.schema.references import MARK

# A message is sent to a client that holds it when this much of the lease-ahead time is still left:
# most of it, for a sync or a garbage collection that takes its time on the way; not all of it, so
# that the messages of the rest come along in the same dispatch.
AHEAD_PERCENT = 80
# What is leased together much ahead of its time is due within so much of each other: if it comes
# back whole, as its consumer broke off, the first of it is no later than that.
EARLY_SPAN_MS = 1_000
# Dispatches in one step, so that requests do not wait behind dispatches.
STEP_DISPATCHES_MAX = 32
# No dispatch begins in a step that has dispatched for so long: others have the same worker.
STEP_US_MAX = 2_000
# While what is due is taken over in pieces, a step has so many at most, and each so many-th step
# dispatches, too: it ends soon, and until then there is something to do for consumers.
STEP_PIECES_MAX = 4
DISPATCH_STEPS = 8
# An entry that is larger is not kept for whoever sends its rows: it may take a while until it does.
AT_HAND_BYTES_MAX = 16 << 10
# So much is kept for one consumer at most: half a megabyte.
AT_HAND_LEASES_MAX = 32


def dispatch(core: PartitionCore, dispatcher: Dispatcher) -> None:
    """Lease what is due, or due so soon that it should be on its way, to whoever has credit."""
    now_ms, began_us = core.now_ms(), core.clock.now_us()
    expiry_ms = core.engine.next_expiry_ms()
    if expiry_ms is not None and expiry_ms <= now_ms:
        _lease_nothing(core)
    if core.engine.is_taking_over and not _take_over_some(core, began_us):
        return
    dispatcher.share_anew(began_us)
    filters = _filters(core, dispatcher)
    for _ in range(STEP_DISPATCHES_MAX):
        # Filters take turns as consumers do.
        if not sum(_dispatch_to(core, dispatcher, wanted) for wanted in filters):
            return
        if core.clock.now_us() - began_us >= STEP_US_MAX:
            return


def _take_over_some(core: PartitionCore, began_us: int) -> bool:
    """Go on with what a dispatch began, though nobody has credit: what is most urgent may be in the
    last piece. True if this step is to dispatch, too."""
    for _ in range(STEP_PIECES_MAX):
        _lease_nothing(core)
        if not core.engine.is_taking_over:
            return True
        if core.clock.now_us() - began_us >= STEP_US_MAX:
            break
    core.take_over_steps += 1
    return core.take_over_steps % DISPATCH_STEPS == 0


def _lease_nothing(core: PartitionCore) -> None:
    """Have leases end and messages die whose time is over, and take a piece of what is due over."""
    now_ms = core.now_ms()
    core.apply_lease(Lease(now_ms, core.next_position(), now_ms, 0, now_ms))


def take_over(core: PartitionCore, rows: int) -> None:
    """Make so many of the messages that are due ready, if so many are, for one lease of them."""
    piece = core.engine.rules.take_over_rows_max
    for _ in range(0, rows if piece else 0, max(1, piece)):
        _lease_nothing(core)
        if not core.engine.is_taking_over:
            return


def _filters(core: PartitionCore, dispatcher: Dispatcher) -> tuple[TagFilter | None, ...]:
    """What consumers take; while the topic is paused they take nothing."""
    return () if core.topic().paused else dispatcher.filters


def _is_free(core: PartitionCore) -> bool:
    """No message is leased: the partition may go to another consumer."""
    return core.engine.counts.leased == 0


def _dispatch_to(core: PartitionCore, dispatcher: Dispatcher, wanted: TagFilter | None) -> bool:
    """One dispatch to one of the consumers with that filter; False if there is none."""
    ahead_ms = _ahead_ms(core)
    now_ms = core.now_ms()
    head_ms = core.engine.next_due_ms(wanted)
    spike_ms = _spike_until_ms(core, now_ms)
    early = head_ms is not None and head_ms > now_ms + ahead_ms * AHEAD_PERCENT // 100
    if head_ms is None or (early and head_ms >= spike_ms):
        dispatcher.has_no_more(core.number)
        return False
    rows_max = _rows_max(core)
    holding = head_ms > now_ms
    grant = dispatcher.reserve(
        rows_max,
        core.clock.now_us(),
        wanted,
        holding=holding,
        early=early,
        partition=core.number,
        free=_is_free(core),
    )
    if grant is None:
        return False
    consumer, rows = grant
    until_ms = now_ms + min(ahead_ms, consumer.ahead_ms)
    if early:
        until_ms = min(spike_ms, head_ms + EARLY_SPAN_MS) - 1
    lease_end_ms = until_ms + (consumer.options.lease_ms or core.topic().lease_ms)
    position = core.next_position()
    command = Lease(now_ms, position, until_ms, rows, lease_end_ms, filter=wanted)
    leased = core.apply_lease(command)
    taken = 0 if leased is None else len(leased.sequences)
    if taken < rows:
        dispatcher.give_back(consumer, rows - taken)
    if leased is None:
        return False
    core.counting.leased(wanted, leased, now_ms)
    is_done, counting = consumer.options.auto_ack, core.counting
    push = Push(
        core.number,
        core.journal,
        leased,
        rows_max,
        is_done,
        counting=counting,
        payloads=core.payloads,
        consumer=consumer,
        entry=_entry_at_hand(core, consumer, leased.locators),
    )
    if push.is_done:  # the same group makes lease and ack durable, before it is sent
        core.apply(Ack(now_ms, position))
    else:
        core.unread.add(push)
    core.commits.group.pushes.append((consumer, push))
    return True


def _entry_at_hand(core: PartitionCore, consumer: Consumer, locators: Int64s) -> Entry | None:
    """The entry that has these rows, if they came in this very group, and are few and small.

    Then nobody has to read them: of a message that is due as it is sent that is a third of what it
    costs the broker to hand it out. Who holds many leases may not be reading at all: for that one
    nothing is kept.
    """
    if len(locators) > AT_HAND_ROWS_MAX or len(consumer.leases) >= AT_HAND_LEASES_MAX:
        return None
    if consumer.options.auto_ack:  # read before it is sent, and kept
        return None
    position = int(locators[0]) >> limits.ROW_BITS
    if position <= core.commits.tail or (locators >> limits.ROW_BITS != position).any():
        return None
    entry = core.commits.entry_at(position)
    if entry is None or entry.kind is not EntryKind.ENQUEUE:
        return None
    if entry.byte_count() > AT_HAND_BYTES_MAX:
        return None
    payload = entry.texts.get("payload")  # a payload that begins with the mark may be elsewhere
    return None if payload is None or MARK in bytes(payload.data) else entry


def _ahead_ms(core: PartitionCore) -> int:
    """How long before its due time a message may be leased. Where another order than time decides
    among those that are due, it can't be known before."""
    topic = core.topic()
    return topic.lease_ahead_ms if topic.kind.is_by_time else 0


def _spike_until_ms(core: PartitionCore, now_ms: int) -> int:
    """What is due before then may be leased now, as there is a spike that cannot wait; 0 = none."""
    spike = core.spike
    if spike is None or now_ms < spike.begins_ms:
        return 0
    return min(spike.until_ms, now_ms + core.topic().spike_ahead_ms)


def _rows_max(core: PartitionCore) -> int:
    """Rows whose payloads together make no more than a wire message should hold."""
    fetched = 0 if core.payloads is None else core.payloads.mean_bytes
    mean = max(core.mean_payload_bytes or 1_024, fetched)
    return max(1, min(limits.DISPATCH_ROWS_MAX, limits.DISPATCH_BYTES_MAX // mean))


class Outlook(NamedTuple):
    """What a partition has to lease, after what could be leased was.

    Attributes:
        wake_us: when there will be something for somebody with credit, clock µs; None = never,
            unless the partition is rung.
        waits: it has something, now or later, that nobody has the credit for who could be sent it
            in time.
        is_empty: there is nothing to lease, and nothing that is leased or dies.
    """

    wake_us: int | None
    waits: bool
    is_empty: bool


def outlook(core: PartitionCore, dispatcher: Dispatcher) -> Outlook:
    """When to look again, and whether credit is waited for."""
    engine = core.engine
    wakes_us: list[int] = []
    ahead_us = core.clock.ahead_us
    now_us, ahead_ms = core.clock.now_us(), _ahead_ms(core) * AHEAD_PERCENT // 100
    spike_ms = _spike_until_ms(core, (now_us - ahead_us) // 1_000)
    anyone_at_all = waits = False
    # A full group rings when it has landed.
    if engine.is_taking_over and not core.commits.group.is_full(core.settings.dispatch):
        wakes_us.append(now_us)
    share_us = dispatcher.next_share_us()
    if share_us is not None:
        wakes_us.append(share_us)
    expiry_ms = engine.next_expiry_ms()
    first_ms = engine.next_due_ms()
    for wanted in _filters(core, dispatcher):
        anyone, holder = dispatcher.has_credit(
            now_us, wanted, partition=core.number, free=_is_free(core)
        )
        if holder and ahead_ms:
            core.counting.promised(wanted, (now_us - ahead_us) // 1_000, engine.next_sequence)
        else:
            core.counting.unpromised(wanted)
        head_ms = first_ms if wanted is None else engine.next_due_ms(wanted)
        if not anyone:
            waits |= head_ms is not None or expiry_ms is not None
            continue
        anyone_at_all = True
        if head_ms is not None:
            waits |= bool(ahead_ms) and not holder
            wakes_us.append((head_ms - (ahead_ms if holder else 0)) * 1_000 + ahead_us)
            if head_ms < spike_ms:
                now = dispatcher.can_hold_early(core.number, now_us, wanted, free=_is_free(core))
                waits |= not now
                wakes_us += [now_us] if now else []
    if expiry_ms is not None and (anyone_at_all or share_us is not None or engine.has_mortals):
        wakes_us.append(expiry_ms * 1_000 + ahead_us)
    is_empty = expiry_ms is None and first_ms is None
    return Outlook(min(wakes_us, default=None), waits, is_empty)
