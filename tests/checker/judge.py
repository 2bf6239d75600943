"""The judge: which rules of the contract a history breaks.

Rules 1 to 6, 9 to 12 are judged message by message, so that a million operations take seconds;
order and fairness (7, 8) dispatch by dispatch. What is unknown counts as both done and not done: a
fault is told only if it is one either way. What is not judged: rules 13 to 18, which have tests of
their own.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.checker.history import (
    Cancel,
    Decide,
    Delivery,
    History,
    Move,
    Operation,
    Outcome,
    Send,
    Settle,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule that was broken, and how; `id` is of the message, -1 = more than one."""

    rule: int
    text: str
    id: int = -1

    def __str__(self) -> str:
        return f"rule {self.rule}: {self.text}"


@dataclass(slots=True)
class _Story:
    """Everything about one message."""

    send: Send | None = None
    moves: list[Move] = field(default_factory=list)
    cancels: list[Cancel] = field(default_factory=list)
    settles: list[Settle] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)

    @property
    def id(self) -> int:
        return self.send.id if self.send is not None else self.deliveries[0].id


def judge(history: History) -> list[Fault]:
    """Every fault of a history; empty = all rules held."""
    faults = [*_invented(history), *_doubled(history)]
    aways = _aways(history)
    decided = _decided(history)
    for story in _stories(history).values():
        faults += _judge_one(story, history, aways, decided)
    faults += _keys(history)
    if history.kind == "timeline":
        faults += _order(history)
    faults += _transactions(history, decided)
    return faults


def _ok(operation: Operation) -> bool:
    return operation.outcome is Outcome.OK


def _maybe(operation: Operation) -> bool:
    return operation.outcome is not Outcome.REFUSED


def _stories(history: History) -> dict[int, _Story]:
    stories: dict[int, _Story] = defaultdict(_Story)
    by_token = {send.token: send for send in history.sends}
    for send in history.sends:
        if send.id >= 0:
            stories[send.id].send = send
    for delivery in history.deliveries:
        story = stories[delivery.id]
        story.deliveries.append(delivery)
        if story.send is None:  # its answer was lost
            story.send = by_token.get(delivery.token)
    for move in history.moves:
        stories[move.id].moves.append(move)
    for cancel in history.cancels:
        stories[cancel.id].cancels.append(cancel)
    for settle in history.settles:
        stories[settle.id].settles.append(settle)
    for story in stories.values():
        story.deliveries.sort(key=lambda d: d.attempt)
    return stories


def _aways(history: History) -> dict[str, int]:
    return {away.consumer: away.at_us for away in history.aways}


def _decided(history: History) -> dict[str, list[Decide]]:
    decided: dict[str, list[Decide]] = defaultdict(list)
    for decision in history.decisions:
        decided[decision.transaction].append(decision)
    return decided


# --- of the whole history -----------------------------------------------------------------------


def _invented(history: History) -> list[Fault]:
    """Nobody gets what nobody sent."""
    sent = {send.token for send in history.sends}
    return [
        Fault(1, f"message {d.id} has a payload that nobody sent: {d.token!r:.60}", d.id)
        for d in history.deliveries
        if d.token not in sent
    ]


def _doubled(history: History) -> list[Fault]:
    """A message that was sent once is there once, however often its batch was sent again."""
    ids: dict[str, set[int]] = defaultdict(set)
    for delivery in history.deliveries:
        ids[delivery.token].add(delivery.id)
    for send in history.sends:
        if send.id >= 0:
            ids[send.token].add(send.id)
    return [
        Fault(10, f"{token} exists as messages {sorted(found)}", max(found))
        for token, found in ids.items()
        if len(found) > 1
    ]


def _keys(history: History) -> list[Fault]:
    """Two messages with one key are never live at once."""
    by_key: dict[str, list[Send]] = defaultdict(list)
    for send in history.sends:
        if send.key and send.id >= 0 and _ok(send):
            by_key[send.key].append(send)
    gone: dict[int, int] = {}
    for ends in (history.cancels, [s for s in history.settles if s.op == "ack"]):
        for end in ends:
            if _maybe(end):
                gone[end.id] = min(gone.get(end.id, end.called_us), end.called_us)
    faults = []
    for key, sends in by_key.items():
        sends.sort(key=lambda send: send.id)
        for first in sends:
            for second in sends:
                if first is second or second.answered_us is None or first.answered_us is None:
                    continue
                lives = first.answered_us < second.called_us
                ended = gone.get(first.id, second.answered_us + 1) <= second.answered_us
                if lives and not ended and not history.max_attempts and not first.expires_ms:
                    text = f"key {key!r} was given to message {second.id} while {first.id} lives"
                    faults.append(Fault(11, text, second.id))
    return faults


def _order(history: History) -> list[Fault]:
    """Within a dispatch of a timeline: by due time, then by sequence."""
    dispatches: dict[tuple[str, int, int], list[Delivery]] = defaultdict(list)
    for d in history.deliveries:
        dispatches[d.consumer, d.partition, d.dispatch[0]].append(d)
    faults = []
    for rows in dispatches.values():
        rows.sort(key=lambda d: d.dispatch[1])
        for before, after in itertools.pairwise(rows):
            first = before.attempt == after.attempt == 1
            if first and (before.due_ms, before.id) > (after.due_ms, after.id):
                text = f"message {after.id} came behind {before.id}, which is due later"
                faults.append(Fault(7, text, after.id))
    return faults


def _transactions(history: History, decided: dict[str, list[Decide]]) -> list[Fault]:
    """All of a transaction's messages, or none."""
    members: dict[str, list[Send]] = defaultdict(list)
    for send in history.sends:
        if send.transaction and _ok(send):
            members[send.transaction].append(send)
    seen = {d.token for d in history.deliveries}
    faults = []
    for name, sends in members.items():
        decisions = decided.get(name, [])
        committed = any(_ok(d) and d.commit for d in decisions)
        possible = any(_maybe(d) and d.commit for d in decisions)
        there = [send for send in sends if send.token in seen]
        if there and not possible:
            faults.append(Fault(12, f"{there[0].token} of {name} came without a commit"))
        if history.drained and (committed or there) and len(there) < len(sends):
            missing = next(send for send in sends if send.token not in seen)
            faults.append(Fault(12, f"{name}: {missing.token} is missing, others came"))
    return faults


# --- of one message -----------------------------------------------------------------------------


def _judge_one(
    story: _Story, history: History, aways: dict[str, int], decided: dict[str, list[Decide]]
) -> list[Fault]:
    if story.send is None:
        return []
    return [
        *_lost(story, history, decided),
        *_early(story),
        *_attempts(story, history),
        *_one_lease(story, aways),
        *_resurrected(story),
        *_stale(story),
    ]


def _lost(story: _Story, history: History, decided: dict[str, list[Decide]]) -> list[Fault]:
    send = story.send
    assert send is not None
    if not history.drained or not _ok(send):
        return []
    if send.transaction:
        decisions = decided.get(send.transaction, [])
        if not any(_ok(d) and d.commit for d in decisions):
            return []
    if any(_maybe(cancel) for cancel in story.cancels) or send.expires_ms:
        return []
    acked = any(s.op == "ack" and _maybe(s) for s in story.settles)
    died = history.max_attempts and len(story.deliveries) >= history.max_attempts
    if not story.deliveries:
        return [Fault(1, f"message {send.id} was acknowledged and never delivered", send.id)]
    if not acked and not died:
        text = f"message {send.id} was delivered {len(story.deliveries)} times, then no more"
        return [Fault(5, text, send.id)]
    return []


def _early(story: _Story) -> list[Fault]:
    send = story.send
    assert send is not None
    dues = {send.due_ms, *(move.due_ms for move in story.moves if _maybe(move))}
    faults = []
    for d in story.deliveries:
        if d.attempt == 1 and d.due_ms not in dues:
            text = f"message {d.id} has due {d.due_ms}, which nobody asked for"
            faults.append(Fault(9, text, d.id))
        if 0 <= d.handed_broker_us < d.due_ms * 1_000:
            early_us = d.due_ms * 1_000 - d.handed_broker_us
            faults.append(Fault(2, f"message {d.id} came {early_us} µs early", d.id))
        if d.attempt == 1:
            faults += _not_moved(story, d)
    return faults


def _not_moved(story: _Story, d: Delivery) -> list[Fault]:
    """A first delivery has a due time that no later, answered move has replaced."""
    latest = max(
        (m.called_us for m in story.moves if _ok(m) and (m.answered_us or 0) < d.pushed_us),
        default=None,
    )
    if latest is None:
        return []
    ending = [
        move.due_ms
        for move in story.moves
        if _maybe(move) and (move.answered_us is None or move.answered_us >= latest)
    ]
    if d.due_ms in ending:
        return []
    return [Fault(9, f"message {d.id} was moved, and came with its old due time", d.id)]


def _attempts(story: _Story, history: History) -> list[Fault]:
    faults = []
    counted = Counter(d.attempt for d in story.deliveries)
    for attempt, times in counted.items():
        if times > 1:
            text = f"attempt {attempt} of message {story.id} was delivered {times} times"
            faults.append(Fault(3, text, story.id))
        if history.max_attempts and attempt > history.max_attempts:
            faults.append(Fault(5, f"message {story.id} had attempt {attempt}", story.id))
    for before, after in itertools.pairwise(story.deliveries):
        if after.pushed_us < before.pushed_us:
            text = f"message {story.id}: attempt {after.attempt} came before {before.attempt}"
            faults.append(Fault(3, text, story.id))
    return faults


def _one_lease(story: _Story, aways: dict[str, int]) -> list[Fault]:
    """A message is leased again when its lease has ended, not before."""
    faults = []
    for before, after in itertools.pairwise(story.deliveries):
        mine = [s for s in story.settles if s.attempt == before.attempt]
        given_back = any(
            s.op == "nack" and _maybe(s) and s.called_us <= after.pushed_us for s in mine
        )
        gone = aways.get(before.consumer, after.pushed_us + 1) <= after.pushed_us
        end_ms = _lease_end_ms(before, mine)
        if not given_back and not gone and after.pushed_broker_us < end_ms * 1_000:
            early_ms = end_ms - after.pushed_broker_us // 1_000
            text = (
                f"message {story.id}: attempt {after.attempt} came {early_ms} ms before the lease"
            )
            faults.append(Fault(3, f"{text} of attempt {before.attempt} ended", story.id))
    return faults


def _lease_end_ms(delivery: Delivery, settles: list[Settle]) -> int:
    """The earliest end that the lease may have had: an extension sets it anew, also to earlier."""
    end_ms = delivery.lease_end_ms
    for settle in sorted(settles, key=lambda s: s.called_us):
        if settle.op == "extend" and _ok(settle):
            end_ms = settle.lease_end_ms
        elif settle.op == "extend" and _maybe(settle):
            end_ms = min(end_ms, settle.lease_end_ms)
    return end_ms


def _resurrected(story: _Story) -> list[Fault]:
    faults = []
    for what, ends in (
        ("ack", [s for s in story.settles if s.op == "ack"]),
        ("cancel", story.cancels),
    ):
        for end in ends:
            if not _ok(end) or end.answered_us is None:
                continue
            late = [d for d in story.deliveries if d.pushed_us > end.answered_us]
            if late:
                text = f"message {story.id} was delivered after its {what} was answered"
                faults.append(Fault(6, text, story.id))
            # A cancel that was answered OK means that nobody had it.
            before = [d for d in story.deliveries if d.pushed_us < end.called_us]
            leased = any(not _given_back(story, d, end) for d in before)
            if what == "cancel" and leased and not late:
                text = f"message {story.id} was cancelled while it was leased"
                faults.append(Fault(9, text, story.id))
    return faults


def _given_back(story: _Story, d: Delivery, end: Operation) -> bool:
    """Whether the lease of this delivery may be over when this was answered."""
    assert end.answered_us is not None
    mine = [s for s in story.settles if s.attempt == d.attempt]
    if any(s.op == "nack" and _maybe(s) and s.called_us <= end.answered_us for s in mine):
        return True
    return _lease_end_ms(d, mine) * 1_000 <= end.answered_broker_us


def _stale(story: _Story) -> list[Fault]:
    """An ack, nack or extend of an attempt that is not the last one says no."""
    faults = []
    for settle in story.settles:
        if not _ok(settle):
            continue
        newer = [
            d
            for d in story.deliveries
            if d.attempt > settle.attempt and d.pushed_us < settle.called_us
        ]
        if newer:
            text = f"{settle.op} of attempt {settle.attempt} of message {story.id} was accepted "
            faults.append(Fault(4, f"{text}after attempt {newer[0].attempt} had come", story.id))
        ended = [
            other
            for other in story.settles
            if other is not settle
            and other.op == "ack"
            and _ok(other)
            and other.answered_us is not None
            and other.answered_us < settle.called_us
        ]
        if ended:
            text = f"{settle.op} of message {story.id} was accepted after its ack was answered"
            faults.append(Fault(4, text, story.id))
    return faults
