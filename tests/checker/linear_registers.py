"""What a key, a topic and a transaction do, as registers; and their calls in a history of clients.

    key           which message has it: send, cancel, ack, and whoever looks
    topic         its settings, or that there is none: create, alter, delete, describe
    transaction   decided once; where it counts each partition shows all of it or nothing, and all
                  of them do when a commit is answered

A message that may die by itself (its life, its attempts) may do so at any time after it was sent.
See: linear.py for the search.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import cast

from dejaqueue import limits
from dejaqueue.model import RowStatus
from tests.checker.fault import Fault
from tests.checker.history import Cancel, Delivery, History, Operation, Outcome, Settle
from tests.checker.linear import Broken, Call, Register, linear

Calls = dict[str, list[Call]]
NOTHING: Mapping[str, list[Call]] = {}

# --- a key ----------------------------------------------------------------------------------------

FREE = ""
LOOKS = frozenset({"look", "is there"})


def key_register(*, replaces: bool) -> Register:
    """Which message has a key: its token, FREE = none.

    Args:
        replaces: a new message takes the place of the one that is there.
    """

    def after(state: Hashable, call: Call) -> Iterable[Hashable]:
        told = call.told
        if call.op == "send":
            if told in (None, "OK"):
                return (call.given,) if replaces or state == FREE else ()
            return (state,) if state != FREE and told in (state, "TAKEN") else ()
        if call.op in ("end", "end any"):  # an ack, or a cancel
            is_it = state == call.given if call.op == "end" else state != FREE
            if told == "NOT_FOUND":
                return () if is_it else (state,)
            if told == "LEASED":
                return (state,) if is_it else ()
            return (FREE,) if is_it else ()
        if call.op == "is there":
            return (state,) if state == call.given else ()
        return (state,) if told == state or (told == "NONE" and state == FREE) else ()

    return Register(FREE, after, LOOKS)


def key_calls(history: History) -> Calls:
    """What a history says of each key, of messages outside of transactions."""
    tokens, keys = _names(history)
    senders = {send.token: send.sender for send in history.sends}
    calls: Calls = defaultdict(list)
    for send in history.sends:
        if not send.key or send.transaction:
            continue
        told: str | None = None
        if send.outcome is Outcome.OK:
            told = "OK"
        elif send.outcome is Outcome.REFUSED:
            told = tokens.get(send.told_id, "TAKEN")
        calls[send.key].append(_call("send", send.token, told, send))
        if send.expires_ms or history.max_attempts:
            calls[send.key].append(Call("end", send.token, None, send.called_us))
    for cancel in history.cancels:
        told = _told(cancel)
        if cancel.key:
            calls[cancel.key].append(_call("end any", FREE, told, cancel))
        elif cancel.id in keys and not _is_hidden(cancel, senders[tokens[cancel.id]], told):
            calls[keys[cancel.id]].append(_call("end", tokens[cancel.id], told, cancel))
    for settle in history.settles:
        # A refusal says little: an earlier try may have done it.
        if settle.op == "ack" and settle.id in keys and settle.outcome is not Outcome.REFUSED:
            calls[keys[settle.id]].append(_call("end", tokens[settle.id], _told(settle), settle))
    for look in history.looks:
        if look.outcome is Outcome.OK:
            there = tokens.get(look.id, f"message {look.id}") if look.id >= 0 else "NONE"
            calls[look.key].append(_call("look", FREE, there, look))
    _add_deliveries(history, keys, calls)
    return calls


def _add_deliveries(history: History, keys: dict[int, str], calls: Calls) -> None:
    """Whoever is leased is there: some time after it was leased the last time."""
    called = {send.token: send.called_us for send in history.sends}
    before: dict[int, int] = {}
    for d in sorted(history.deliveries, key=lambda d: (d.id, d.attempt)):
        if d.id in keys and d.token in called:
            since_us = before.get(d.id, called[d.token])
            until_us = max(since_us, d.surely_pushed_us)
            calls[keys[d.id]].append(Call("is there", d.token, "OK", since_us, until_us))
            before[d.id] = d.pushed_us


def _names(history: History) -> tuple[dict[int, str], dict[int, str]]:
    """The token and the key of each id that has a key."""
    sends = {send.token: send for send in history.sends if send.key and not send.transaction}
    tokens = {send.id: send.token for send in sends.values() if send.id >= 0}
    tokens |= {d.id: d.token for d in history.deliveries if d.token in sends}
    tokens |= {one.id: one.token for one in history.looks if one.token in sends}
    return tokens, {number: sends[token].key for number, token in tokens.items()}


def _is_hidden(cancel: Cancel, sender: str, told: str | None) -> bool:
    """Why it was refused was not noted, or it was refused because it is another one's message."""
    is_others = cancel.owner not in (None, sender)
    return told == "UNCLEAR" or (told == "NOT_FOUND" and is_others)


def _told(end: Cancel | Settle) -> str | None:
    if end.outcome is Outcome.UNKNOWN:
        return None
    if end.outcome is Outcome.OK:
        return "OK"
    return RowStatus(end.status).name if end.status > 0 else "UNCLEAR"


def _call(op: str, given: Hashable, told: str | None, one: Operation) -> Call:
    return Call(op, given, told, one.called_us, one.answered_us or 0)


# --- a topic --------------------------------------------------------------------------------------

GONE = "UNKNOWN"
EXISTS = "EXISTS"
TopicState = tuple[object, int]
"""Its settings, None = there is no such topic; and since when whoever deleted it has answered."""


def topic_register() -> Register:
    """The settings of a topic of one name.

    create, given settings: OK, or EXISTS. With "or equal" before them, an equal one is fine.
    alter, given settings: OK, or GONE. delete: OK or GONE. describe: settings, or GONE.
    Two deletes that meet are both answered OK.
    """

    def after(state: Hashable, call: Call) -> Iterable[Hashable]:
        settings, deleted_us = cast(TopicState, state)
        told = call.told
        if told == GONE:
            return (state,) if settings is None else ()
        if call.op == "describe":
            return (state,) if settings is not None and settings == told else ()
        if call.op == "alter":
            return ((call.given, 0),) if settings is not None else ()
        if call.op == "delete":
            met = settings is None and call.called_us <= deleted_us
            end_us = call.answered_us if told is not None else NEVER_US
            return ((None, max(end_us, deleted_us)),) if settings is not None or met else ()
        if told == EXISTS:
            is_other = call.op != "create or equal" or settings != call.given
            return (state,) if settings is not None and is_other else ()
        fits = settings is None or (call.op == "create or equal" and settings == call.given)
        return ((call.given, 0),) if fits else ()

    return Register((None, 0), after, frozenset({"describe"}))


NEVER_US = 1 << 62

# --- a transaction --------------------------------------------------------------------------------

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


def transaction_register(places: frozenset[str]) -> Register:
    """What was decided, and the places (partitions with messages of it) that show it.

    commit, abort: OK, or REFUSED: it is decided otherwise. "shows" of a place takes no answer.
    "told": a commit was answered, so that every place shows it. see, miss: what a look has found.
    """

    def after(state: Hashable, call: Call) -> Iterable[Hashable]:
        decided, shown = cast(tuple[str, frozenset[str]], state)
        if call.op in ("commit", "abort"):
            meant = COMMITTED if call.op == "commit" else ABORTED
            if call.told == "REFUSED":  # its time may be over: then it is aborted
                meant = ABORTED if call.op == "commit" else COMMITTED
            if decided == OPEN and not (call.told == "REFUSED" and meant == COMMITTED):
                return ((meant, shown),)
            return (state,) if decided == meant else ()
        if call.op == "shows":
            return ((decided, shown | {str(call.given)}),) if decided == COMMITTED else ()
        if call.op == "told":
            return (state,) if shown == places else ()
        fits = (call.given in shown) == (call.op == "see")
        return (state,) if fits else ()

    return Register((OPEN, frozenset()), after, frozenset({"told", "see", "miss"}))


def transaction_calls(history: History) -> tuple[Calls, dict[str, frozenset[str]]]:
    """What a history says of each transaction, and where each has messages that were staged."""
    named = {send.token: send for send in history.sends if send.transaction}
    places: dict[str, set[str]] = defaultdict(set)
    calls: Calls = defaultdict(list)
    seen: dict[str, list[Delivery]] = defaultdict(list)
    for d in history.deliveries:
        if d.token in named:
            seen[d.token].append(d)
    for send in named.values():
        # One that nobody was told of may not be there.
        if send.outcome is Outcome.OK:
            place = str(send.id >> limits.SEQUENCE_BITS)
            if place not in places[send.transaction]:
                places[send.transaction].add(place)
                calls[send.transaction].append(Call("shows", place, None, send.called_us))
            for d in seen[send.token]:
                until_us = max(send.called_us, d.surely_pushed_us)
                calls[send.transaction].append(Call("see", place, "OK", send.called_us, until_us))
    for decision in history.decisions:
        op = "commit" if decision.commit else "abort"
        told = None if decision.outcome is Outcome.UNKNOWN else decision.outcome.name
        at_us = decision.answered_us or 0
        calls[decision.transaction].append(Call(op, "", told, decision.called_us, at_us))
        if op == "commit" and told == "OK":
            calls[decision.transaction].append(Call("told", "", "OK", at_us, at_us))
    return calls, {name: frozenset(found) for name, found in places.items()}


# --- all of a history -----------------------------------------------------------------------------


def judge_linear(history: History, glimpses: Mapping[str, list[Call]] = NOTHING) -> list[Fault]:
    """Keys and transactions of a history that no linear order explains.

    Args:
        glimpses: what else was seen of transactions: "see" and "miss" of their places.
    """
    keys = key_register(replaces=history.on_duplicate == "replace")
    # A key is taken while any subscription has its message, which the history of one does not say.
    told = {} if history.is_one_of_several else key_calls(history)
    faults = [Fault(11, f"key {key!r}: {broken}") for key, broken in _broken(keys, told)]
    calls, places = transaction_calls(history)
    for name, mine in calls.items():
        mine += glimpses.get(name, [])
        broken = linear(transaction_register(places.get(name, frozenset())), mine)
        if broken is not None:
            faults.append(Fault(12, f"transaction {name}: {broken}"))
    return faults


def judge_topics(calls: Calls) -> list[Fault]:
    """Topics whose answers no linear order explains."""
    return [
        Fault(1, f"topic {name}: {broken}") for name, broken in _broken(topic_register(), calls)
    ]


def _broken(register: Register, calls: Calls) -> Iterator[tuple[str, Broken]]:
    for name, mine in calls.items():
        broken = linear(register, mine)
        if broken is not None:
            yield name, broken
