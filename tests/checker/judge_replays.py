"""The judge of replays (rule 21): what a subscription was done with comes again when it goes back,
what waits is passed over when it goes to the end, and a filter says of which messages that is said.

A history with seeks is of a topic that retains all that was ever sent, or with `keeps_keys` at
least the newest of each key; its seeks go to the beginning, or to the end.
"""

from __future__ import annotations

import itertools
from collections import defaultdict

from dejaqueue import limits
from tests.checker.fault import Fault
from tests.checker.history import Delivery, History, Operation, Outcome, Seek, Send, Settle

KEY_SECONDS = 10
"""So long after a newer message of its key came in, an older one is retained no more."""
MARGIN_US = 1_000_000
"""What a broker's clock may have been put back by between two looks at it, and more."""


def was_replayed(history: History, send: Send | None, end: Operation, by_us: int) -> bool:
    """Whether a seek may have brought back by then what had ended so."""
    return any(
        not seek.to_end
        and seek.called_us <= by_us
        and (seek.answered_us is None or seek.answered_us >= end.called_us)
        and (send is None or seek.is_about(send))
        for seek in history.seeks
    )


def judge_replays(history: History) -> list[Fault]:
    """What was acked for certain before a seek that was answered came again after it, and what was
    passed over did not."""
    if not history.seeks:
        return []
    by_id: dict[int, list[Delivery]] = defaultdict(list)
    for d in history.deliveries:
        by_id[d.id].append(d)
    acks: dict[int, list[Settle]] = defaultdict(list)
    for settle in history.settles:
        if settle.op == "ack":
            acks[settle.id].append(settle)
    cancelled = {one.id for one in history.cancels if one.outcome is not Outcome.REFUSED}
    newest = _newest(history)
    faults = []
    for send in history.sends:
        if send.id < 0 or send.id in cancelled or send.expires_ms:
            continue
        about = [seek for seek in history.seeks if seek.is_about(send)]
        mine, done = by_id[send.id], acks[send.id]
        if history.drained and newest.get(send.key, send) is send:
            faults += _missing(send, about, mine, done)
        if history.keeps_keys:
            faults += _outdated(history, send, mine, done)
        faults += _passed_over(history, send, about, mine)
    return faults


def _missing(
    send: Send, seeks: list[Seek], deliveries: list[Delivery], acks: list[Settle]
) -> list[Fault]:
    """It was done when the last seek back was called, and did not come again."""
    back = [one for one in seeks if not one.to_end and one.outcome is Outcome.OK]
    if not back:
        return []
    last = max(back, key=lambda seek: seek.called_us)
    if any(one.to_end and (one.answered_us or 1 << 62) >= last.called_us for one in seeks):
        return []  # it may have been passed over
    before = [one for one in acks if one.outcome is Outcome.OK and _is_before(one, last)]
    if not before or any(d.surely_pushed_us >= last.called_us for d in deliveries):
        return []
    text = f"message {send.id} was done, and did not come again after a seek"
    return [Fault(21, text, send.id)]


def _is_before(one: Operation, other: Operation) -> bool:
    return one.answered_us is not None and one.answered_us < other.called_us


def _newest(history: History) -> dict[str, Send | None]:
    """By key the message that is retained for certain; None = it is not certain which is."""
    by_key: dict[str, list[Send]] = defaultdict(list)
    for send in history.sends if history.keeps_keys else ():
        if send.key and send.outcome is not Outcome.REFUSED:
            by_key[send.key].append(send)
    known: dict[str, Send | None] = {}
    for key, sends in by_key.items():
        # What was sent in a transaction came in when that was committed.
        sure = all(send.outcome is Outcome.OK and not send.transaction for send in sends)
        known[key] = max(sends, key=lambda send: send.called_us) if sure else None
        for before, after in itertools.pairwise(sends):
            if not _is_before(before, after):
                known[key] = None
    known.pop("", None)
    return known


def _outdated(
    history: History, send: Send, deliveries: list[Delivery], acks: list[Settle]
) -> list[Fault]:
    """It came again though a newer message of its key had been retained for long."""
    if not send.key or send.answered_us is None:
        return []
    cancelled = {one.id for one in history.cancels if one.outcome is not Outcome.REFUSED}
    newer = [
        other.answered_us
        for other in history.with_key(send.key)
        if other.outcome is Outcome.OK
        and other.answered_us is not None
        and other.called_us > send.answered_us
        and other.id > send.id
        and other.id >> limits.SEQUENCE_BITS == send.id >> limits.SEQUENCE_BITS
        and other.id not in cancelled
        and not other.expires_ms
        and not other.transaction
    ]
    for seek in history.seeks:
        if seek.to_end or not any(at + KEY_SECONDS * 1_000_000 < seek.called_us for at in newer):
            continue
        if seek.called_us < history.healed_us:
            continue  # whatever was broken may have kept it from being forgotten
        done = [one for one in acks if one.outcome is Outcome.OK and _is_before(one, seek)]
        if not done or was_replayed(history, send, done[-1], seek.called_us - 1):
            continue
        if any(d.pushed_us > seek.called_us for d in deliveries):
            text = f"message {send.id} came again though key {send.key!r} has a newer one"
            return [Fault(21, text, send.id)]
    return []


def _passed_over(
    history: History, send: Send, seeks: list[Seek], deliveries: list[Delivery]
) -> list[Fault]:
    """It waited and was due when a seek to the end was called, and came after its answer."""
    if send.transaction or send.answered_us is None or not deliveries:
        return []
    dues_ms = [one.due_ms for one in history.moves if one.id == send.id]
    due_us = 0 if history.kind == "arrival" else max([send.due_ms, *dues_ms]) * 1_000
    first = min(deliveries, key=lambda d: d.attempt)
    for seek in seeks:
        if not seek.to_end or seek.outcome is not Outcome.OK or seek.answered_us is None:
            continue
        waited = _is_before(send, seek) and first.attempt == 1
        waited &= due_us + MARGIN_US < seek.called_broker_us
        waited &= first.decided_ms * 1_000 > seek.called_broker_us + MARGIN_US
        back = any(
            not one.to_end and (one.answered_us or 1 << 62) >= seek.called_us for one in seeks
        )
        if waited and not back and first.pushed_us > seek.answered_us + MARGIN_US:
            return [Fault(21, f"message {send.id} was passed over, and came", send.id)]
    return []
