"""Leasing: what is due goes to who has credit, and when to look again.

Room: broker. Runs on the partition's worker, as a part of its step.
Holds: nothing is leased before its time by more than its consumer may hold it (rule 2); a lease
that handed nothing out and changed nothing leaves no trace in the journal.
See: partition.py, whose step calls it; dispatch.py for the consumers' turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dejaqueue import limits
from dejaqueue.broker import entries
from dejaqueue.broker.cron.fire import next_wake_ms
from dejaqueue.broker.dispatch import Push
from dejaqueue.engine.commands import Ack, Lease
from dejaqueue.engine.effects import Leased
from dejaqueue.model import TagFilter, TopicKind

if TYPE_CHECKING:
    from dejaqueue.broker.partition import Partition

# A message is sent to a client that holds it when this much of the lease-ahead time is still left:
# most of it, for a sync or a garbage collection that takes its time on the way; not all of it, so
# that the messages of the rest come along in the same dispatch.
AHEAD_PERCENT = 80
# Dispatches in one step, for the same reason the other way round.
STEP_DISPATCHES_MAX = 32


def dispatch(place: Partition) -> None:
    """Lease what is due, or due so soon that it should be on its way, to whoever has credit."""
    now_ms = place.now_ms()
    expiry_ms = place.engine.next_expiry_ms()
    if expiry_ms is not None and expiry_ms <= now_ms:
        apply_lease(place, Lease(now_ms, place.next_position(), now_ms, 0, now_ms))
    place.dispatcher.share_anew(place.clock.now_us())
    filters = _filters(place)
    for _ in range(STEP_DISPATCHES_MAX):
        # Filters take turns as consumers do.
        if not sum(_dispatch_to(place, wanted) for wanted in filters):
            return


def _filters(place: Partition) -> tuple[TagFilter | None, ...]:
    """What consumers take; while the topic is paused they take nothing."""
    return () if place.topic().paused else place.dispatcher.filters


def _is_free(place: Partition) -> bool:
    """No message is leased: the partition may go to another consumer."""
    return place.engine.counts.leased == 0


def _dispatch_to(place: Partition, wanted: TagFilter | None) -> bool:
    """One dispatch to one of the consumers with that filter; False if there is none."""
    ahead_ms = _ahead_ms(place)
    now_ms = place.now_ms()
    head_ms = place.engine.next_due_ms(wanted)
    if head_ms is None or head_ms > now_ms + ahead_ms * AHEAD_PERCENT // 100:
        return False
    rows_max = _rows_max(place)
    dispatcher, holding = place.dispatcher, head_ms > now_ms
    grant = dispatcher.reserve(
        rows_max,
        place.clock.now_us(),
        wanted,
        holding=holding,
        partition=place.number,
        free=_is_free(place),
    )
    if grant is None:
        return False
    consumer, rows = grant
    until_ms = now_ms + min(ahead_ms, consumer.ahead_ms)
    lease_end_ms = until_ms + (consumer.options.lease_ms or place.topic().lease_ms)
    position = place.next_position()
    command = Lease(now_ms, position, until_ms, rows, lease_end_ms, filter=wanted)
    leased = apply_lease(place, command)
    taken = 0 if leased is None else len(leased.sequences)
    if taken < rows:
        dispatcher.give_back(consumer, rows - taken)
    if leased is None:
        return False
    place.counting.leased(wanted, leased, now_ms)
    push = Push(place.number, place.journal, leased, rows_max, consumer.options.auto_ack)
    if push.is_done:  # the same group makes lease and ack durable, before it is sent
        place.apply(Ack(now_ms, position))
    place.commits.group.pushes.append((consumer, push))
    return True


def apply_lease(place: Partition, command: Lease) -> Leased | None:
    """Apply a lease; if it changed nothing it leaves no trace."""
    effects = place.engine.apply(command)
    if not effects.is_void:
        taken = 0 if effects.leased is None else len(effects.leased.sequences)
        place.commits.group.add(entries.to_entry(command, taken), effects)
    return effects.leased


def _ahead_ms(place: Partition) -> int:
    """How long before its due time a message may be leased. Where another order than time decides
    among those that are due, it can't be known before."""
    topic = place.topic()
    by_time = topic.kind in (TopicKind.TIMELINE, TopicKind.CRON)
    return topic.lease_ahead_ms if by_time else 0


def _rows_max(place: Partition) -> int:
    """Rows whose payloads together make no more than a wire message should hold."""
    mean = place.mean_payload_bytes or 1_024
    return max(1, min(limits.DISPATCH_ROWS_MAX, limits.DISPATCH_BYTES_MAX // mean))


def next_wake_us(place: Partition) -> int | None:
    """When there will be something to lease to somebody with credit, or a chore to do, clock µs;
    None = never, unless the partition is rung."""
    wakes_us = [wake_us for wake_us in _chores_us(place) if wake_us is not None]
    ahead_us = place.clock.ahead_us
    now_us, ahead_ms = place.clock.now_us(), _ahead_ms(place) * AHEAD_PERCENT // 100
    anyone_at_all = False
    share_us = place.dispatcher.next_share_us()
    if share_us is not None:
        wakes_us.append(share_us)
    for wanted in _filters(place):
        anyone, holder = place.dispatcher.has_credit(
            now_us, wanted, partition=place.number, free=_is_free(place)
        )
        if holder and ahead_ms:
            place.counting.promised(
                wanted, (now_us - ahead_us) // 1_000, place.engine.next_sequence
            )
        else:
            place.counting.unpromised(wanted)
        if not anyone:
            continue
        anyone_at_all = True
        head_ms = place.engine.next_due_ms(wanted)
        if head_ms is not None:
            wakes_us.append((head_ms - (ahead_ms if holder else 0)) * 1_000 + ahead_us)
    if anyone_at_all or share_us is not None or place.engine.has_mortals:
        expiry_ms = place.engine.next_expiry_ms()
        if expiry_ms is not None:
            wakes_us.append(expiry_ms * 1_000 + ahead_us)
    return min(wakes_us, default=None)


def _chores_us(place: Partition) -> list[int | None]:
    """When each of the partition's chores is to be done next."""
    chore_ms = place.maintenance.next_ms(place) if place.maintenance is not None else None
    staged_ms = place.staged_watch.next_ms(place) if place.staged_watch is not None else None
    forecast_ms = place.forecast.next_ms(place) if place.forecast is not None else None
    letters_us = place.dead_letters.next_us() if place.dead_letters is not None else None
    recorder_ms = place.recorder.next_ms() if place.recorder is not None else None
    times_ms = (staged_ms, forecast_ms, recorder_ms, next_wake_ms(place))
    ahead_us = place.clock.ahead_us
    wakes_us = [ms and ms * 1_000 + ahead_us for ms in times_ms]
    return [*wakes_us, chore_ms and chore_ms * 1_000, letters_us, place.rest.next_us()]
