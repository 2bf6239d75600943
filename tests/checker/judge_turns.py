"""The judge of turns: order within a dispatch (rule 7), shares and caps of groups (rule 8), and
whether whatever was due came soon once nothing was broken any more.

A dispatch is one moment of one partition, so its order can be told for certain; what was ready at
that moment is known of messages that were answered and due before, and came first later.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeAlias

from tests.checker.fault import Fault
from tests.checker.history import Delivery, History, Outcome, Settle

Spans: TypeAlias = dict[tuple[int, int, str], list[tuple[int, int]]]
"""From when until when messages of a partition, level and group were ready, in ms."""

LATE_SECONDS_MAX = 30
"""Once everything is mended, what is due comes within this."""


def judge_turns(history: History) -> list[Fault]:
    """Every fault of order, fairness and liveness."""
    faults = _late(history)
    dispatches = _dispatches(history)
    if history.kind == "timeline":
        faults += _order(dispatches, lambda d: (d.due_ms, d.id), "which is due later")
    elif history.kind == "priority":
        faults += _order(dispatches, lambda d: (d.priority, d.id), "which is less urgent")
    if history.kind == "fair":
        faults += _groups(history, dispatches)
    if history.group_in_flight_max:
        faults += _caps(history)
    elif history.kind == "fair":
        faults += _shares(history, dispatches)
    return faults


def _groups(history: History, dispatches: list[list[Delivery]]) -> list[Fault]:
    """Within a dispatch each group by its order; where priority is first, all of the dispatch."""
    faults = []
    by_arrival = history.group_order == "arrival"
    if history.group_order == "priority_first":
        faults += _order(dispatches, lambda d: (d.priority, 0), "which is less urgent")
    groups: dict[tuple[int, str], list[Delivery]] = defaultdict(list)
    for number, rows in enumerate(dispatches):
        for d in rows:
            groups[number, d.group].append(d)
    what = "which was sent later" if by_arrival else "which is less urgent, or was sent later"
    parts = list(groups.values())
    faults += _order(parts, lambda d: (0 if by_arrival else d.priority, d.id), what)
    return faults


def _dispatches(history: History) -> list[list[Delivery]]:
    """The deliveries of each dispatch, in order."""
    found: dict[tuple[str, int, int], list[Delivery]] = defaultdict(list)
    for d in history.deliveries:
        found[d.consumer, d.partition, d.dispatch[0]].append(d)
    for rows in found.values():
        rows.sort(key=lambda d: d.dispatch[1])
    return list(found.values())


def _order(
    dispatches: list[list[Delivery]], key: Callable[[Delivery], tuple[int, int]], what: str
) -> list[Fault]:
    """Within a dispatch by this key; what came back has lost its place."""
    faults = []
    for rows in dispatches:
        for before, after in itertools.pairwise(rows):
            first = before.attempt == after.attempt == 1
            if first and key(before) > key(after):
                text = f"message {after.id} came behind {before.id}, {what}"
                faults.append(Fault(7, text, after.id))
    return faults


def _late(history: History) -> list[Fault]:
    """What is due comes soon, once nothing is broken."""
    if not history.healed_us:
        return []
    faults = []
    for d in history.deliveries:
        from_us = max(history.healed_broker_us, d.due_ms * 1_000)
        late_us = d.pushed_broker_us - from_us
        if d.attempt == 1 and late_us > LATE_SECONDS_MAX * 1_000_000:
            text = f"message {d.id} came {late_us // 1_000} ms late, though nothing was broken"
            faults.append(Fault(5, text, d.id))
    return faults


# --- caps -----------------------------------------------------------------------------------------


def _caps(history: History) -> list[Fault]:
    """No more of a group and partition is leased than its cap: as far as it is certain."""
    over: dict[tuple[int, int], int] = {}
    settled: dict[tuple[int, int], list[Settle]] = defaultdict(list)
    for settle in history.settles:
        settled[settle.id, settle.attempt].append(settle)
    for key, settles in settled.items():
        if any(settle.op == "extend" for settle in settles):
            over[key] = 0  # its end is not certain: it does not count
        ends = [s.called_us for s in settles if s.outcome is not Outcome.REFUSED]
        over[key] = min([over.get(key, 1 << 62), *ends])
    aways = {away.consumer: away.at_us for away in history.aways}
    groups: dict[tuple[int, str], list[Delivery]] = defaultdict(list)
    for d in history.deliveries:
        groups[d.partition, d.group].append(d)
    faults = []
    for (_, group), rows in groups.items():
        rows.sort(key=lambda d: d.pushed_us)
        for place, d in enumerate(rows):
            held = _held(rows[:place], d, over, aways)
            if held + 1 > history.group_in_flight_max:
                text = f"message {d.id} of group {group!r} came while {held} were leased"
                faults.append(Fault(8, text, d.id))
    return faults


def _held(
    before: Iterable[Delivery],
    d: Delivery,
    over: dict[tuple[int, int], int],
    aways: dict[str, int],
) -> int:
    """How many of these were leased for certain when `d` was."""
    held = 0
    for other in before:
        ends_us = min(
            over.get((other.id, other.attempt), 1 << 62), aways.get(other.consumer, 1 << 62)
        )
        lasts = other.lease_end_ms * 1_000 > d.pushed_broker_us
        held += other.id != d.id and ends_us > d.pushed_us and lasts
    return held


# --- shares ---------------------------------------------------------------------------------------


def _shares(history: History, dispatches: list[list[Delivery]]) -> list[Fault]:
    """In a dispatch, two groups that had more than they got came by their weights, ± one each.

    Groups within groups share what their parent gets; those are left to the model's test. Where
    priority is first, groups share in each priority by itself.
    """
    changed = {move.id for move in history.moves} | {one.id for one in history.cancels}
    changed |= {send.id for send in history.sends if send.expires_ms or send.transaction}
    first: dict[int, Delivery] = {}
    for d in history.deliveries:
        if d.attempt == 1 and d.id not in changed:
            first[d.id] = d
    ready: Spans = defaultdict(list)
    for send in history.sends:
        taken = first.get(send.id)
        if taken is not None and send.answered_us is not None and "." not in send.group:
            since_ms = max(-(-send.answered_broker_us // 1_000), send.due_ms)
            place = taken.partition, _level(history, taken), send.group
            ready[place].append((since_ms, taken.decided_ms))
    faults = []
    for rows in dispatches:
        for level in sorted({_level(history, d) for d in rows}):
            faults += _shares_of(history, rows, level, ready)
    return faults


def _level(history: History, d: Delivery) -> int:
    """Among which messages of the partition this one's group had its turns."""
    return d.priority if history.group_order == "priority_first" else 0


def _shares_of(
    history: History,
    rows: list[Delivery],
    level: int,
    ready: Spans,
) -> list[Fault]:
    decided_ms, partition = rows[0].decided_ms, rows[0].partition
    counts: dict[str, int] = defaultdict(int)
    for d in rows:
        counts[d.group] += _level(history, d) == level
    # Leased later than this dispatch, and ready before it: they were there and had to wait.
    waiting = [
        group
        for (*place, group), spans in ready.items()
        if place == [partition, level]
        and any(since < decided_ms and decided_ms + 100 < taken for since, taken in spans)
    ]
    faults = []
    for one, other in itertools.combinations(sorted(waiting), 2):
        first, second = history.weights.get(one, 1), history.weights.get(other, 1)
        # |n / w - m / v| <= 1 / w + 1 / v, in whole numbers.
        apart = abs(counts[one] * second - counts[other] * first)
        if apart > first + second:
            text = f"groups {one} and {other} got {counts[one]} and {counts[other]} of a dispatch"
            faults.append(Fault(8, f"{text}; their weights are {first} and {second}"))
    return faults
