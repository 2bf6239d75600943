"""Shards and the catalogue as journals, before they are built: one topic name, made and made again.

As docs/adr/0030-shards.md means it. What a broker knows of the catalogue may be old; it may sleep
through the end of its lease, and go on.

    catalogue   a journal of changes of the topic; a change is compared with all before it
    shard       a journal that holds the topic's partition, by the number that the catalogue gave;
                who wrote the last epoch into it alone can append; it says up to which revision of
                the catalogue its owner knew, and what is kept of each life of the topic
    client      makes, sends, deletes, makes again; may not wait for an answer, as when it was lost

Who is asked decides by what it knows. An answer must hold against all answers before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

BROKERS = (0, 1)
NOBODY = -1


class Shard(NamedTuple):
    """The journal.

    Attributes:
        owner: who wrote the last epoch.
        revision: of the catalogue, up to which that is said to be known.
        kept: messages in it: the number of their partition, and the life they were sent to.
    """

    owner: int = 0
    revision: int = 0
    kept: frozenset[tuple[int, int]] = frozenset()


class Broker(NamedTuple):
    """What a broker believes: how much of the catalogue it has heard, and that it has the shard.

    `opened`: its epoch is written, or it does not look whether it is, and it may serve.
    """

    known: int = 0
    serves: bool = False
    epoch: bool = False


class State(NamedTuple):
    """All of it.

    Attributes:
        changes: how often the topic was made or deleted, in turn: an odd number = it is there.
        asked: changes that the client has asked for; answered: that it was told are done.
        leased_to, is_over: whom the coordinator names, and whether its lease is over.
        sent: the lives to which something was sent and acknowledged.
    """

    changes: int = 0
    asked: int = 0
    answered: int = 0
    shard: Shard = Shard()
    leased_to: int = 0
    is_over: bool = False
    brokers: tuple[Broker, ...] = (Broker(0, serves=True, epoch=True), Broker())
    sent: frozenset[int] = frozenset()
    ends: int = 0
    fault: str = ""


@dataclass(frozen=True)
class Rules:
    """The design; each can be turned off.

    Attributes:
        fences: the shard's journal takes appends of whoever wrote the last epoch alone.
        compares: the catalogue takes a change only from who knows all changes before it.
        waits: a change is answered when the shard is known to know it; else when it is written.
        journal_says: it is known from the shard's journal; else from what its owner says.
        lease_is_enough: a change is answered, too, when the owner's lease is over.
        reads_after_epoch: whoever takes over reads the catalogue when its epoch is written; else
            it serves by what it had heard.
        reads_first: it reads it before it writes the epoch, and not after.
        numbers_once: partitions of a topic that is made again have other numbers.
        opens_again: whoever is fenced, and has the lease, writes an epoch again: the one that
            fenced it may have been late, and of nobody who serves.
        ids_go_on: ids of a topic that is made again go on behind those of the one before; else a
            late ack of a message that is gone may name one that is there.
        unknown_is_asked: that there is no such topic is said after reading the catalogue.
        changes_max, ends_max: bounds.
    """

    fences: bool = True
    compares: bool = True
    waits: bool = True
    journal_says: bool = True
    lease_is_enough: bool = False
    reads_after_epoch: bool = True
    reads_first: bool = False
    numbers_once: bool = True
    opens_again: bool = True
    ids_go_on: bool = True
    unknown_is_asked: bool = True
    changes_max: int = 3
    ends_max: int = 2


def with_rules(rules: Rules, **changes: object) -> Rules:
    """The same design but for this."""
    return replace(rules, **changes)  # type: ignore[arg-type]


def wrong(state: State) -> str:
    """What must never be."""
    return state.fault


def at_rest(state: State) -> str:
    """What must not stay when nothing more happens."""
    if state.answered < state.asked:
        return "a change is never answered"
    life = _life(state.changes)
    if any(one != life for _, one in state.shard.kept):
        return "messages of a topic that is gone stay for ever"
    if life in state.sent and not any(one == life for _, one in state.shard.kept):
        return "what was acknowledged is gone"
    return ""


def _life(changes: int) -> int:
    """Which topic of the name lives after so many changes; 0 = none."""
    return (changes + 1) // 2 if changes % 2 else 0


def _number(life: int, rules: Rules) -> int:
    """Of the partition of that topic."""
    return life if rules.numbers_once else 1


def _broker(state: State, number: int, **changes: object) -> State:
    changed = state.brokers[number]._replace(**changes)  # type: ignore[arg-type]
    brokers = tuple(changed if n == number else b for n, b in enumerate(state.brokers))
    return state._replace(brokers=brokers)


def steps(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    """Whatever may happen next."""
    if state.fault:
        return
    if state.asked <= state.answered + 1 and state.asked < rules.changes_max:
        what = "asks to delete" if _life(state.asked) else "asks to make"
        yield what, state._replace(asked=state.asked + 1)
    if state.answered < state.asked:
        yield from _answer(state, rules)
    if not state.is_over and state.ends < rules.ends_max:
        yield "a lease ends", state._replace(is_over=True, ends=state.ends + 1)
    for number in BROKERS:
        for name, after in _broker_steps(state, number, rules):
            yield f"{number}: {name}", after


def _answer(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    """The client is told that a change is done."""
    change = state.answered + 1
    if state.changes < change:
        return
    owner = state.brokers[state.leased_to]
    if rules.journal_says:
        is_known = state.shard.revision >= change
    else:  # the broker that the coordinator names says that it knows
        is_known = owner.serves and owner.known >= change
    if not rules.waits or is_known or (rules.lease_is_enough and state.is_over):
        yield "it is answered", state._replace(answered=change)


def _broker_steps(state: State, number: int, rules: Rules) -> Iterator[tuple[str, State]]:
    me = state.brokers[number]
    if me.known < state.changes:
        yield "hears of a change", _broker(state, number, known=me.known + 1)
    if state.changes < state.asked:
        yield from _change(state, number, rules)
    if state.is_over and state.leased_to != number:
        known = state.changes if rules.reads_first else me.known
        claimed = state._replace(leased_to=number, is_over=False)
        yield "takes it over", _broker(claimed, number, known=known, serves=True, epoch=False)
    if rules.opens_again and not me.serves and state.leased_to == number and not state.is_over:
        yield "opens it again", _broker(state, number, serves=True, epoch=False)
    if me.serves and (state.leased_to != number or state.is_over):
        # It learns that its lease is over, or has slept and does not know yet.
        yield "lets go", _broker(state, number, serves=False, epoch=False)
    if me.serves and not me.epoch:
        yield from _write_epoch(state, number, rules)
    if me.serves and me.epoch:
        yield from _serve(state, number, rules)


def _change(state: State, number: int, rules: Rules) -> Iterator[tuple[str, State]]:
    """Append to the catalogue what the client asks for, by what is known here."""
    me = state.brokers[number]
    if me.known == state.changes:
        written = state._replace(changes=state.changes + 1)
        yield "writes the change", _broker(written, number, known=state.changes + 1)
    elif not rules.compares:
        # What it has not heard of is written over: the last change is all there is.
        wanted = _life(state.asked) != 0
        if (_life(me.known) != 0) != wanted:
            yield "writes over a change", state._replace(fault="a change was written over")


def _write_epoch(state: State, number: int, rules: Rules) -> Iterator[tuple[str, State]]:
    """From now on nobody else can append."""
    shard = state.shard._replace(owner=number)
    after = _broker(state._replace(shard=shard), number, epoch=True)
    if rules.reads_after_epoch and not rules.reads_first:
        # Between the two it serves nobody, so that they may be one step; the change that it reads
        # may be one that nobody has confirmed.
        after = _broker(after, number, known=state.changes)
    yield "writes its epoch", after


def _serve(state: State, number: int, rules: Rules) -> Iterator[tuple[str, State]]:
    me, shard = state.brokers[number], state.shard
    life = _life(me.known)
    if rules.fences and shard.owner != number:
        yield "is fenced", _broker(state, number, serves=False, epoch=False)
    else:
        if life:
            yield "takes a message", _take(state, life, rules)
        if shard.revision < me.known:
            yield "writes what it knows", _write_known(state, me.known, life, rules)
        yield from _show(state, life, rules)
    if not life and not rules.unknown_is_asked:
        since = _life(state.answered)
        if since and state.asked == state.answered:
            yield "says there is none", state._replace(fault="a living topic was called unknown")


def _take(state: State, life: int, rules: Rules) -> State:
    """A message comes and is acknowledged, by what its owner knows of the topic."""
    if life < _life(state.answered) or 2 * life <= state.answered:
        return state._replace(fault="acknowledged in a topic that is gone")
    kept = state.shard.kept | {(_number(life, rules), life)}
    return state._replace(shard=state.shard._replace(kept=kept), sent=state.sent | {life})


def _write_known(state: State, known: int, life: int, rules: Rules) -> State:
    """Into the shard's journal; partitions of topics that are gone end with it."""
    number = _number(life, rules) if life else 0
    kept = frozenset(one for one in state.shard.kept if one[0] == number)
    return state._replace(shard=state.shard._replace(revision=known, kept=kept))


def _show(state: State, life: int, rules: Rules) -> Iterator[tuple[str, State]]:
    """Somebody looks at the topic, or acks what it has of an earlier one."""
    number = _number(life, rules)
    if (number, life) in state.shard.kept and min(state.sent) < life and not rules.ids_go_on:
        yield "acks one of before", state._replace(fault="acked by whom it was not given to")
    if life and any(one[0] == number and one[1] != life for one in state.shard.kept):
        yield "shows it", state._replace(fault="messages of a topic that is gone are shown")
