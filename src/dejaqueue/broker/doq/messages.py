"""Messages of DOQ on their partition: found by name, acked, touched, deleted, put back.

Room: broker. What takes a `PartitionCore` runs on its worker; `submit` is for any thread.
Holds: what one piece of work raises comes before it applies anything, so that the others that are
submitted with it are not touched; all of them are answered once, when they are durable.
See: http/doq/rows.py for what the fields of a message mean there; at_once.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from dejaqueue import limits
from dejaqueue.access.senders import NOBODY, Sender
from dejaqueue.broker.calls.at_once import Name as Name
from dejaqueue.broker.calls.at_once import find, is_leased, lease_now, read_headers
from dejaqueue.broker.consumers.dispatch import Push
from dejaqueue.broker.doq.lapses import Lapses
from dejaqueue.broker.partition.requests import ChangeRequest
from dejaqueue.broker.replies import ReplyTo
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.digits import number_of
from dejaqueue.engine.arrays import Int64s, Words
from dejaqueue.engine.commands import Ack, Cancel, Extend, Move, Nack
from dejaqueue.errors import BadRequest, Refused, TryLater
from dejaqueue.model import GroupOrder, RowStatus, Topic, TopicKind

Work: TypeAlias = Callable[[PartitionCore], Any]
"""What is done at a partition: one of the functions below, with its other arguments bound."""
PRIORITY = "doq-priority"
"""The header with a message's priority; a user's own of that name is refused."""
CHANGED = f"{PRIORITY}:"
"""What the group of a message begins with whose priority was changed."""
PRIORITY_MAX = limits.INSTANT_MS_MAX // 1_000
"""Of a delayed queue: the last second that a message can wait for."""
ORDERED_MAX = limits.PRIORITY_MAX - 1
"""Of a fair queue: those above come behind these, as they were sent; their header tells them."""


def submit(
    topic: ServedTopic, number: int, works: Sequence[Work], found: list[Any], reply: ReplyTo
) -> None:
    """Leave work for a partition, all of it for one step.

    Args:
        found: gets what each returns, or the error by which it was refused.
        reply: called once, when what they applied is durable.
    """
    topic.submit(number, ChangeRequest(partial(_do_all, works, found), reply))


def _do_all(works: Sequence[Work], found: list[Any], core: PartitionCore) -> None:
    for work in works:
        try:
            found.append(work(core))
        except (BadRequest, Refused, TryLater) as refused:
            found.append(refused)


def due_ms_of(priority: int) -> int:
    """When a message of a delayed queue is due. Raises BadRequest."""
    if priority > PRIORITY_MAX:
        raise BadRequest("priority", f"from 0 to {PRIORITY_MAX} in a delayed queue", priority)
    # A due time before 1973 is taken for a mistake (INSTANT_MS_MIN). Small priorities are overdue
    # all the same, and keep their order there.
    return max(priority * 1_000, limits.INSTANT_MS_MIN + priority) if priority else 0


def orders_by_priority(topic: Topic) -> bool:
    """True for a fair queue in which priorities decide, within a group or before turns."""
    return topic.kind is TopicKind.FAIR and topic.group_order is not GroupOrder.ARRIVAL


def check_ordered(priority: int) -> None:
    """Raise BadRequest for a priority that a message of a fair queue cannot be given later."""
    if priority > ORDERED_MAX:
        raise BadRequest("priority", f"from 0 to {ORDERED_MAX} in a fair queue", priority)


def priority_of(stored: str, group: str, otherwise: int) -> int:
    """The priority of a message: of its group if it was changed, else of its header."""
    for text in (group.removeprefix(CHANGED) if group.startswith(CHANGED) else "", stored):
        # Any client may write such a header: what is no priority is none.
        priority = number_of(text)
        if priority is not None and priority <= PRIORITY_MAX:
            return priority
    return otherwise


# --- on the worker --------------------------------------------------------------------------------


def take(core: PartitionCore, lapses: Lapses | None, *, done: bool) -> Push | None:
    """Lease the first message that is due; None if none is.

    Args:
        lapses: leases whose end is looked for first; None = of no kind of queue that needs it.
        done: ack it in the same step.
    """
    if lapses is not None:
        lapses.bring_back(core)
    return lease_now(core, done=done)


def _one(sequence: int) -> Any:
    return np.array([sequence], dtype=np.int64)


def sender_of(core: PartitionCore, sequence: int) -> Sender:
    """Who sent a live message."""
    senders = core.engine.senders(_one(sequence))
    return NOBODY if senders is None else Sender(senders.names[int(senders.indices[0])])


def ack(core: PartitionCore, name: Name) -> RowStatus:
    """A message that is leased is done."""
    sequence = find(core, name)
    if sequence is None:
        return RowStatus.NOT_FOUND
    if not is_leased(core, sequence):
        return RowStatus.LEASE_LOST
    rows = _one(sequence)
    core.apply(Ack(core.now_ms(), -1, rows, core.engine.attempts(rows)))
    return RowStatus.OK


def touch(core: PartitionCore, name: Name) -> RowStatus:
    """The lease of a message begins anew."""
    sequence = find(core, name)
    if sequence is None:
        return RowStatus.NOT_FOUND
    if not is_leased(core, sequence):
        return RowStatus.LEASE_LOST
    rows, now_ms = _one(sequence), core.now_ms()
    end_ms = now_ms + core.topic().lease_ms
    core.apply(Extend(now_ms, end_ms, -1, rows, core.engine.attempts(rows)))
    return RowStatus.OK


def _find_owned(core: PartitionCore, name: Name, owner: str | None) -> int | None:
    """As `find`, of the messages that this sender sent; None = anybody's."""
    sequence = find(core, name)
    if sequence is None or owner is None or core.engine.sent_by(_one(sequence), owner)[0]:
        return sequence
    return None


def delete(core: PartitionCore, name: Name, owner: str | None) -> RowStatus:
    """A message is gone, whether it waits or is leased."""
    sequence = _find_owned(core, name, owner)
    if sequence is None:
        return RowStatus.NOT_FOUND
    rows, now_ms = _one(sequence), core.now_ms()
    if is_leased(core, sequence):
        core.apply(Ack(now_ms, -1, rows, core.engine.attempts(rows)))
    else:
        core.apply_unnamed(Cancel(now_ms, rows))
    return RowStatus.OK


def put_back(core: PartitionCore, name: Name, priority: int) -> RowStatus:
    """A leased message goes back to its place in the queue.

    Args:
        priority: another one for it; 0 = it keeps its own.
    """
    sequence = find(core, name)
    if sequence is None:
        return RowStatus.NOT_FOUND
    if not is_leased(core, sequence):
        return RowStatus.LEASE_LOST
    rows, now_ms = _one(sequence), core.now_ms()
    due_ms = now_ms
    is_delayed = core.topic().kind is TopicKind.TIMELINE
    if is_delayed:
        due_ms = _due_ms(core, sequence, priority)
    core.apply(Nack(now_ms, due_ms, -1, rows, core.engine.attempts(rows)))
    if priority:
        core.apply(_move(core, rows, None, priority))
    return RowStatus.OK


def _move(core: PartitionCore, rows: Int64s, dues_ms: Int64s | None, priority: int) -> Move:
    """What gives messages another priority: in a column or, where order is by time, a group."""
    if orders_by_priority(core.topic()):
        priorities = np.full(rows.size, priority, dtype=np.uint16)
        return Move(core.now_ms(), rows, None, priorities)
    return Move(core.now_ms(), rows, dues_ms, None, _changed(priority))


def _due_ms(core: PartitionCore, sequence: int, priority: int) -> int:
    """When a message that goes back is due: as when it was sent, or by its new priority."""
    if priority:
        return due_ms_of(priority)
    groups = core.engine.moved_groups(_one(sequence))
    group = "" if groups is None else groups.names[groups.indices[0]]
    stored = read_headers(core, sequence).get(PRIORITY, "")
    return due_ms_of(priority_of(stored, group, core.now_ms() // 1_000))


def _changed(priority: int) -> Words:
    return Words((f"{CHANGED}{priority}",), np.zeros(1, dtype=np.int32))


def set_priority(core: PartitionCore, name: Name, priority: int, owner: str | None) -> RowStatus:
    """A message that waits gets another priority."""
    sequence = _find_owned(core, name, owner)
    if sequence is None:
        return RowStatus.NOT_FOUND
    if is_leased(core, sequence):
        return RowStatus.LEASED
    dues_ms = None
    if core.topic().kind is TopicKind.TIMELINE:
        dues_ms = np.array([due_ms_of(priority)], dtype=np.int64)
    core.apply(_move(core, _one(sequence), dues_ms, priority))
    return RowStatus.OK
