"""A topic that is made, deleted and made again: facts, owners and journals of a cluster.

As cluster/catalogue.py, cluster/node.py and the store of journals are meant to work together. What
a broker knows of a fact may be old; it may sleep through the end of its membership, and go on.

    fact      what the coordinator has: state, the name of the journals, whether its owner let go
    owner     the broker that the coordinator names, and whether its membership is over
    journals  by name: may be opened, is there, who opened it last
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

BROKERS = (0, 1)
NOBODY = -1
NONE, MAKING, LIVING, DELETING = "none", "making", "living", "deleting"


class Fact(NamedTuple):
    """What is said of the topic; `word` is the name of its journals, 0 = there never were any.

    `waits`: its owner has not let go yet; while it is being made: whoever did so has died.
    """

    state: str = NONE
    word: int = 0
    waits: bool = False


class Journal(NamedTuple):
    """One name of journals: `owner` has opened it last, and alone can append."""

    is_made: bool = False
    is_there: bool = False
    owner: int = NOBODY


class Broker(NamedTuple):
    """What a broker believes: the fact, whether it owns the topic, which journals it has open."""

    fact: Fact = Fact()
    owns: bool = False
    serves: int = 0


class State(NamedTuple):
    """All of it; `fault` is what an operation that was acknowledged has broken.

    `late`: journals that a broker still means to mark as made, though it was given up; 0 = none.
    `copies`: how often the coordinator was restored from a copy of while a topic was made.
    """

    fact: Fact
    owner: int
    is_over: bool
    journals: tuple[Journal, ...]
    brokers: tuple[Broker, ...]
    spoilt: int
    ends: int = 0
    late: int = 0
    copies: int = 0
    fault: str = ""


@dataclass(frozen=True)
class Rules:
    """The design; each can be turned back to what was before it.

    Attributes:
        two_steps: journals are dropped when the owner has let go, not when the topic is deleted.
        compares_words: a topic that lives under another name of journals is not the same.
        only_making_makes: opening makes no journals that nobody allowed.
        gone_is_said: a fact that is missing in a list is not taken for deleted.
        drops_again: the fact names what was deleted, and that is dropped again if it comes back.
        words_max: topics of this name, one after the other.
        others_finish: what a broker began to make that died, others finish.
        what_is_made_lives: they delete it only if its journals are not marked as made.
        spoilt_max: lists that are not whole.
        ends_max: memberships that end.
        copies_max: copies of the coordinator that are restored.
    """

    two_steps: bool = True
    compares_words: bool = True
    only_making_makes: bool = True
    gone_is_said: bool = True
    others_finish: bool = True
    what_is_made_lives: bool = True
    drops_again: bool = True
    words_max: int = 2
    spoilt_max: int = 1
    ends_max: int = 2
    copies_max: int = 1


def first(rules: Rules) -> State:
    """Nothing was made yet; broker 0 owns the topic's unit."""
    brokers = (Broker(owns=True), Broker())
    return State(Fact(), 0, False, (Journal(),) * (rules.words_max + 1), brokers, 0)


def wrong(state: State) -> str:
    """What must never be."""
    return state.fault


def at_rest(state: State) -> str:
    """What must not stay: a topic on its way, or journals of none."""
    if state.fact.state in (MAKING, DELETING):
        return f"the topic is {state.fact.state} for ever"
    for word, journal in enumerate(state.journals):
        living = state.fact.state == LIVING and state.fact.word == word
        if (journal.is_there or journal.is_made) and not living:
            return f"journals {word} are of no topic"
    return ""


def _broker(state: State, number: int, broker: Broker) -> State:
    brokers = tuple(broker if n == number else b for n, b in enumerate(state.brokers))
    return state._replace(brokers=brokers)


def _journal(state: State, word: int, **changes: object) -> State:
    changed = state.journals[word]._replace(**changes)  # type: ignore[arg-type]
    journals = tuple(changed if n == word else j for n, j in enumerate(state.journals))
    return state._replace(journals=journals)


def steps(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    """Whatever may happen next."""
    fact = state.fact
    if state.fault:
        return
    # Anybody makes and deletes; changes of the fact compare it, so they know it as it is.
    if fact.state == NONE and fact.word < rules.words_max:
        yield "make", state._replace(fact=Fact(MAKING, fact.word + 1))
    if fact.state == MAKING and fact.waits and rules.others_finish:
        yield _finished(state, rules)
    if fact.state == MAKING and not fact.waits:
        made = _journal(state, fact.word, is_made=True)
        yield "it is made", made._replace(fact=Fact(LIVING, fact.word))
        yield "its maker dies", state._replace(fact=Fact(MAKING, fact.word, waits=True))
        yield "its maker dies late", made._replace(fact=Fact(MAKING, fact.word, waits=True))
        given_up = state._replace(fact=Fact(MAKING, fact.word, waits=True))
        yield "its maker sleeps", given_up._replace(late=fact.word)
    if state.late:
        yield "it wakes, and marks it", _journal(state, state.late, is_made=True)._replace(late=0)
    if rules.drops_again:
        yield from _drop_again(state)
    if fact.state == LIVING:
        yield from _delete(state, rules)
        if state.copies < rules.copies_max:  # and its maker has died since
            copied = state._replace(fact=Fact(MAKING, fact.word, waits=True))
            yield "a copy is restored", copied._replace(copies=state.copies + 1)
    if fact.state == DELETING and not fact.waits:
        dropped = _journal(state, fact.word, is_made=False, is_there=False, owner=NOBODY)
        yield "drop", dropped._replace(fact=Fact(NONE, fact.word))
    if not state.is_over and state.ends < rules.ends_max:
        yield "its membership ends", state._replace(is_over=True, ends=state.ends + 1)
    for number in BROKERS:
        for name, after in _broker_steps(state, number, rules):
            yield f"{number}: {name}", after


def _finished(state: State, rules: Rules) -> tuple[str, State]:
    """Others look for the mark, and compare the fact: a mark that comes after that is late."""
    word = state.fact.word
    if state.journals[word].is_made and rules.what_is_made_lives:
        return "others say that it lives", state._replace(fact=Fact(LIVING, word))
    gone = state._replace(fact=Fact(DELETING, word))
    if state.journals[word].is_there:
        gone = gone._replace(fault="others delete what somebody was told is made, and sent to")
    return "others delete it", gone


def _drop_again(state: State) -> Iterator[tuple[str, State]]:
    """What the fact knows as deleted."""
    deleted = state.fact.word + (state.fact.state == NONE)
    for word in range(deleted):
        if state.journals[word].is_made:
            dropped = _journal(state, word, is_made=False, is_there=False, owner=NOBODY)
            yield "drop it again", dropped


def _delete(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    if rules.two_steps:
        yield "delete", state._replace(fact=Fact(DELETING, state.fact.word, waits=True))
    else:
        dropped = _journal(state, state.fact.word, is_made=False, is_there=False, owner=NOBODY)
        yield "delete", dropped._replace(fact=Fact(NONE, state.fact.word))


def _broker_steps(state: State, number: int, rules: Rules) -> Iterator[tuple[str, State]]:
    me, fact = state.brokers[number], state.fact
    in_touch = state.owner == number and not state.is_over
    yield "hears", _broker(state, number, _heard(me, fact, rules))
    if state.spoilt < rules.spoilt_max and me.fact != Fact():
        missed = me if rules.gone_is_said else _heard(me, Fact(NONE, me.fact.word), rules)
        spoilt = _broker(state, number, missed)._replace(spoilt=state.spoilt + 1)
        yield "hears a list that is not whole", spoilt
    if me.fact.state == NONE and fact.state == LIVING:
        yield from _asked(state, number, rules)
    if state.is_over and state.owner != number:
        mine = _broker(state, number, me._replace(owns=True))
        yield "takes it over", mine._replace(owner=number, is_over=False)
    if state.owner != number or state.is_over:
        # It learns that its membership is over, or has slept and does not know yet.
        yield "lets go", _broker(state, number, me._replace(owns=False, serves=0))
    if me.owns and not me.serves and me.fact.state == LIVING:
        yield from _open(state, number, rules)
    if me.serves:
        yield from _append(state, number, me.serves)
    if fact.state == DELETING and fact.waits and in_touch and me.fact == fact and not me.serves:
        yield "says that it let go", state._replace(fact=fact._replace(waits=False))


def _heard(me: Broker, fact: Fact, rules: Rules) -> Broker:
    """What a broker does when it hears of a fact: it serves what is gone no more."""
    if fact.state == MAKING and (me.fact.state, me.fact.word) == (LIVING, fact.word):
        return me  # the coordinator went back: what is known holds
    same = fact.state == LIVING
    if rules.compares_words:
        same = same and fact.word == me.serves
    return me._replace(fact=fact, serves=me.serves if same else 0)


def _asked(state: State, number: int, rules: Rules) -> Iterator[tuple[str, State]]:
    """Somebody asks for the topic, which this broker does not know."""
    if rules.gone_is_said:  # it asks for that fact, and most of the coordinator's servers
        yield "is asked", _broker(state, number, _heard(state.brokers[number], state.fact, rules))
    elif state.brokers[number].fact.word == state.fact.word:  # it has known it
        yield "is asked", state._replace(fault="a living topic was called unknown")


def _open(state: State, number: int, rules: Rules) -> Iterator[tuple[str, State]]:
    """Whoever opens it last has it; before, it is seen that it was made."""
    word = state.brokers[number].fact.word
    if state.journals[word].is_made or not rules.only_making_makes:
        opened = _journal(state, word, is_there=True, owner=number)
        yield "opens", _broker(opened, number, state.brokers[number]._replace(serves=word))


def _append(state: State, number: int, word: int) -> Iterator[tuple[str, State]]:
    journal = state.journals[word]
    if not journal.is_there or journal.owner != number:
        yield "is fenced", _broker(state, number, state.brokers[number]._replace(serves=0))
    elif state.fact.state == LIVING and state.fact.word != word:
        yield "appends", state._replace(fault="acknowledged in journals of a topic that is gone")


def with_rules(rules: Rules, **changes: object) -> Rules:
    """The same design but for this."""
    return replace(rules, **changes)  # type: ignore[arg-type]
