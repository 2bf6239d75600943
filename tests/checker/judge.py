"""The judge: which rules of the contract a history breaks.

Rules 1 to 6, 9 to 12 are judged message by message, so that a million operations take seconds;
order and fairness (7, 8) dispatch by dispatch (judge_turns.py); dead letters, lives and cron
entries (17, 18) by judge_ends.py; keys and transactions as registers, whose answers must be one
linear order (linear_registers.py). What is unknown counts as both done and not done: a fault is
told only if it is one either way. Not judged: rules 13 to 16, which have tests of their own.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.checker.fault import Fault
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
from tests.checker.judge_ends import judge_ends
from tests.checker.judge_owners import judge_owners
from tests.checker.judge_replays import judge_replays, was_replayed
from tests.checker.judge_turns import judge_turns
from tests.checker.linear_registers import judge_linear


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
    faults += _transactions(history, decided)
    faults += judge_owners(history)
    faults += judge_replays(history)
    return [*faults, *judge_turns(history), *judge_ends(history), *judge_linear(history)]


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
    if history.begun_us or history.seeks:
        return []  # what it never had, passed over or got again has no key here
    by_key: dict[str, list[Send]] = defaultdict(list)
    for send in history.sends:
        if send.key and send.id >= 0 and _ok(send):
            by_key[send.key].append(send)
    if history.on_duplicate == "replace":
        return _replaced(history, by_key)
    gone: dict[int, int] = {letter.origin_id: 0 for letter in history.letters}
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
                if lives and not ended and _lives_on(history, first):
                    text = f"key {key!r} was given to message {second.id} while {first.id} lives"
                    faults.append(Fault(11, text, second.id))
    return faults


def _lives_on(history: History, send: Send) -> bool:
    """Whether it would be known if it had died."""
    return history.letters_read or (not history.max_attempts and not send.expires_ms)


def _replaced(history: History, by_key: dict[str, list[Send]]) -> list[Fault]:
    """Who was replaced never comes again."""
    pushed: dict[int, int] = {}
    for d in history.deliveries:
        pushed[d.id] = max(pushed.get(d.id, 0), d.pushed_us)
    faults = []
    for key, sends in by_key.items():
        sends = [send for send in sends if send.answered_us is not None]
        for first, second in itertools.permutations(sends, 2):
            assert first.answered_us is not None
            assert second.answered_us is not None
            later = first.answered_us < second.called_us
            if later and pushed.get(first.id, 0) > second.answered_us:
                text = f"message {first.id} came after {second.id} had taken its key {key!r}"
                faults.append(Fault(11, text, first.id))
            if later and _is_leased(history, first, second):
                text = f"message {first.id} was replaced by {second.id} while it was leased"
                faults.append(Fault(11, text, first.id))
    return faults


def _is_leased(history: History, first: Send, second: Send) -> bool:
    """Whether `first` was leased, for certain, all the while `second` was being sent."""
    mine = [d for d in history.deliveries if d.id == first.id and d.pushed_us < second.called_us]
    if not mine or second.answered_us is None or second.outcome is not Outcome.OK:
        return False
    last = max(mine, key=lambda d: d.attempt)
    settled = [s for s in history.settles if (s.id, s.attempt) == (last.id, last.attempt)]
    over = any(_maybe(s) and s.called_us <= second.answered_us for s in settled)
    return not over and last.lease_end_ms * 1_000 > second.answered_broker_us


def _transactions(history: History, decided: dict[str, list[Decide]]) -> list[Fault]:
    """All of a transaction's messages, or none."""
    members: dict[str, list[Send]] = defaultdict(list)
    for send in history.sends:
        if send.transaction and _ok(send):
            members[send.transaction].append(send)
    seen: dict[str, int] = {}
    for d in history.deliveries:
        seen[d.token] = min(seen.get(d.token, d.pushed_us), d.pushed_us)
    faults = []
    for name, sends in members.items():
        decisions = decided.get(name, [])
        committed = any(_ok(d) and d.commit for d in decisions)
        possible = any(_maybe(d) and d.commit for d in decisions)
        there = [send for send in sends if send.token in seen]
        if there and not possible:
            faults.append(Fault(12, f"{there[0].token} of {name} came without a commit"))
        commits = [d.called_us for d in decisions if d.commit]
        if there and commits and min(seen[send.token] for send in there) < min(commits):
            faults.append(Fault(12, f"{there[0].token} of {name} came before the commit"))
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
        *_early(story, history),
        *_attempts(story, history),
        *_one_lease(story, history, aways),
        *_resurrected(story, history, aways),
        *_stale(story, history),
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
    if any(_maybe(cancel) for cancel in story.cancels) or _may_be_replaced(send, history):
        return []
    if send.expires_ms and not history.letters_read:
        return []
    if any(seek.to_end and seek.is_about(send) and _maybe(seek) for seek in history.seeks):
        return []
    acked = any(s.op == "ack" and _maybe(s) for s in story.settles)
    if history.letters_read:
        died = send.id in {letter.origin_id for letter in history.letters}
        if died:
            return []
    else:
        died = bool(history.max_attempts and len(story.deliveries) >= history.max_attempts)
    if not story.deliveries:
        return [Fault(1, f"message {send.id} was acknowledged and never delivered", send.id)]
    if not acked and not died:
        text = f"message {send.id} was delivered {len(story.deliveries)} times, then no more"
        return [Fault(5, text, send.id)]
    return []


def _may_be_replaced(send: Send, history: History) -> bool:
    """Whether another message may have taken its key and its place."""
    if history.on_duplicate != "replace" or not send.key:
        return False
    return any(
        other is not send and _maybe(other) and other.owner in (None, send.sender)
        for other in history.with_key(send.key)
    )


def _early(story: _Story, history: History) -> list[Fault]:
    send = story.send
    assert send is not None
    if history.kind == "arrival":
        return []  # due when it came in, whatever was asked for
    dues = {send.due_ms, *(move.due_ms for move in story.moves if _maybe(move))}
    faults = []
    for d in story.deliveries:
        # What it began with is due when it was due elsewhere, also after a failure there.
        is_new = d.attempt == 1 and (send.called_us > history.begun_us or not history.begun_us)
        if is_new and d.due_ms not in dues:
            text = f"message {d.id} has due {d.due_ms}, which nobody asked for"
            faults.append(Fault(9, text, d.id))
        if 0 <= d.handed_broker_us < d.due_ms * 1_000:
            early_us = d.due_ms * 1_000 - d.handed_broker_us
            faults.append(Fault(2, f"message {d.id} came {early_us} µs early", d.id))
        if is_new:
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
        aborted = any(s.staged and s.attempt == attempt - 1 for s in story.settles)
        # What comes back has as many anew.
        is_over = history.max_attempts and attempt > history.max_attempts and not history.seeks
        if is_over and not aborted:
            faults.append(Fault(5, f"message {story.id} had attempt {attempt}", story.id))
    for before, after in itertools.pairwise(story.deliveries):
        if after.surely_pushed_us < before.pushed_us:
            text = f"message {story.id}: attempt {after.attempt} came before {before.attempt}"
            faults.append(Fault(3, text, story.id))
    return faults


def _one_lease(story: _Story, history: History, aways: dict[str, int]) -> list[Fault]:
    """A message is leased again when its lease has ended, not before."""
    faults = []
    for before, after in itertools.pairwise(story.deliveries):
        mine = [s for s in story.settles if s.attempt == before.attempt]
        given_back = any(
            s.op == "nack" and _maybe(s) and s.called_us <= after.surely_pushed_us for s in mine
        )
        given_back |= any(
            s.op == "ack"
            and _maybe(s)
            and was_replayed(history, story.send, s, after.surely_pushed_us)
            for s in mine
        )
        gone = before.consumer in aways and aways[before.consumer] <= after.surely_pushed_us
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


def _resurrected(story: _Story, history: History, aways: dict[str, int]) -> list[Fault]:
    faults = []
    for what, ends in (
        ("ack", [s for s in story.settles if s.op == "ack"]),
        ("cancel", story.cancels),
    ):
        for end in ends:
            if not _ok(end) or end.answered_us is None:
                continue
            late = [d for d in story.deliveries if d.pushed_us > end.answered_us]
            if what == "ack":
                late = [d for d in late if not was_replayed(history, story.send, end, d.pushed_us)]
            if late:
                text = f"message {story.id} was delivered after its {what} was answered"
                faults.append(Fault(6, text, story.id))
            # A cancel that was answered OK means that nobody had it.
            before = [d for d in story.deliveries if d.surely_pushed_us < end.called_us]
            leased = any(not _given_back(story, d, end, history, aways) for d in before)
            if what == "cancel" and leased and not late:
                text = f"message {story.id} was cancelled while it was leased"
                faults.append(Fault(9, text, story.id))
    return faults


def _given_back(
    story: _Story, d: Delivery, end: Operation, history: History, aways: dict[str, int]
) -> bool:
    """Whether the lease of this delivery may be over when this was answered."""
    assert end.answered_us is not None
    if d.consumer in aways and aways[d.consumer] <= end.answered_us:
        return True
    mine = [s for s in story.settles if s.attempt == d.attempt]
    # What is done here may be cancelled where others still have it.
    over = ("nack", "ack") if history.is_one_of_several else ("nack",)
    if any(s.op in over and _maybe(s) and s.called_us <= end.answered_us for s in mine):
        return True
    return _lease_end_ms(d, mine) * 1_000 <= end.answered_broker_us


def _stale(story: _Story, history: History) -> list[Fault]:
    """An ack, nack or extend of an attempt that is not the last one says no."""
    faults = []
    for settle in story.settles:
        if not _ok(settle):
            continue
        newer = [
            d
            for d in story.deliveries
            if d.attempt > settle.attempt and d.surely_pushed_us < settle.called_us
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
            and not was_replayed(history, story.send, other, settle.called_us)
        ]
        if ended:
            text = f"{settle.op} of message {story.id} was accepted after its ack was answered"
            faults.append(Fault(4, text, story.id))
    return faults
