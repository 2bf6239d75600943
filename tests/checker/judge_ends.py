"""The judge of ends: dead letters (rule 18), lives (`expires`), and what cron entries made (17)."""

from __future__ import annotations

from collections import defaultdict

from tests.checker.fault import Fault
from tests.checker.history import Firing, History, Letter, Outcome, PutEntry, Send

ORIGIN = "t"


def judge_ends(history: History) -> list[Fault]:
    """Every fault of these."""
    faults = [*_letters(history), *_outlived(history)]
    made: dict[str, list[Firing]] = defaultdict(list)
    for firing in history.firings:
        made[firing.entry].append(firing)
    known = {entry.name for entry in history.entries}
    faults += [
        Fault(17, f"an entry {name!r} fired that nobody put") for name in made.keys() - known
    ]
    for entry in history.entries:
        faults += _entry(entry, made[entry.name], drained=history.drained)
    return faults


# --- dead letters ---------------------------------------------------------------------------------


def _letters(history: History) -> list[Fault]:
    tokens = {send.token: send for send in history.sends}
    by_origin: dict[int, dict[int, Letter]] = defaultdict(dict)
    faults = []
    for letter in history.letters:
        by_origin[letter.origin_id][letter.id] = letter
        send = tokens.get(letter.token)
        if send is None:
            faults.append(
                Fault(18, f"a letter has a payload that nobody sent: {letter.token!r:.60}")
            )
            continue
        faults += _letter(letter, send, history)
    if history.seeks:
        return faults  # what died may come back, and die again
    for origin, letters in by_origin.items():
        if len(letters) > 1:
            text = f"message {origin} has {len(letters)} letters: {sorted(letters)}"
            faults.append(Fault(18, text, origin))
    ended = {
        settle.id
        for settle in history.settles
        if settle.op == "ack" and settle.outcome is Outcome.OK
    }
    if not history.is_one_of_several:
        ended |= {cancel.id for cancel in history.cancels if cancel.outcome is Outcome.OK}
    faults += [
        Fault(6, f"message {origin} was acked or cancelled, and has a letter", origin)
        for origin in by_origin.keys() & ended
    ]
    return [*faults, *_after_death(history, by_origin)]


def _letter(letter: Letter, send: Send, history: History) -> list[Fault]:
    faults = []
    if letter.origin != ORIGIN or (send.id >= 0 and letter.origin_id != send.id):
        text = f"the letter of {send.token} names {letter.origin}/{letter.origin_id} as its origin"
        faults.append(Fault(18, text, letter.origin_id))
    if letter.reason == "expired":
        if not 0 < send.expires_ms <= letter.died_ms:
            text = f"message {send.token} died of age before its time was over"
            faults.append(Fault(18, text, letter.origin_id))
    elif not history.max_attempts or letter.attempts < history.max_attempts:
        text = f"message {send.token} died after {letter.attempts} attempts: {letter.reason}"
        faults.append(Fault(18, text, letter.origin_id))
    return faults


def _after_death(history: History, by_origin: dict[int, dict[int, Letter]]) -> list[Fault]:
    read_us = {
        origin: min(letter.pushed_us for letter in letters.values())
        for origin, letters in by_origin.items()
    }
    return [
        Fault(6, f"message {d.id} was delivered after its letter", d.id)
        for d in history.deliveries
        if d.id in read_us and d.pushed_us > read_us[d.id]
    ]


def _outlived(history: History) -> list[Fault]:
    """Nobody gets a message whose life is over."""
    ends = {send.token: send.expires_ms for send in history.sends if send.expires_ms}
    return [
        Fault(18, f"message {d.id} was leased after its life was over", d.id)
        for d in history.deliveries
        if d.token in ends and d.decided_ms >= ends[d.token]
    ]


# --- cron -----------------------------------------------------------------------------------------


def _entry(entry: PutEntry, made: list[Firing], *, drained: bool) -> list[Fault]:
    """Each firing is one message; which ones there must be, the policy says."""
    ids: dict[int, set[int]] = defaultdict(set)
    faults = []
    for firing in made:
        ids[firing.firing_ms].add(firing.id)
        at_ms = firing.firing_ms
        on_time = entry.start_ms <= at_ms < entry.end_ms
        if not on_time or (at_ms - entry.start_ms) % entry.every_ms:
            faults.append(Fault(17, f"entry {entry.name} fired at {at_ms}, which is not its time"))
    for at_ms, found in ids.items():
        if len(found) > 1:
            text = f"entry {entry.name} fired for {at_ms} {len(found)} times"
            faults.append(Fault(17, f"{text}: messages {sorted(found)}"))
    if not drained or entry.outcome is not Outcome.OK:
        return faults
    expected = range(entry.start_ms, entry.end_ms, entry.every_ms)
    # Those that passed before it was there were not missed.
    wanted = [at_ms for at_ms in expected if at_ms * 1_000 > entry.answered_broker_us]
    if entry.misfire == "once":
        wanted = wanted[-1:]  # the last may stand for others
    elif entry.misfire == "skip":
        wanted = []
    return [
        *faults,
        *(
            Fault(17, f"entry {entry.name} did not fire for {at_ms}")
            for at_ms in wanted
            if at_ms not in ids
        ),
    ]
