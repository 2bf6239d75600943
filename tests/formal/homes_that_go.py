"""The home of a transaction whose topic is deleted, step by step, and made of its name again.

As docs/adr/0057 means it; in shard_transactions.py a decision stays by itself when the topic goes,
here by what is built. Clocks of brokers differ: `time` is 0, then 1 = over by the fastest clock,
then 2 = over by every clock. Whatever is not in a journal or the catalogue may be lost: a step that
has begun need not go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

STAGED, COMMITTED, ABORTED, UNDECIDED = "staged", "committed", "aborted", "undecided"
LIVES, DELETING, CLOSED, GONE, AGAIN = "lives", "deleting", "closed", "gone", "made again"
PARTS = (0, 1)
OVER_BY_ONE, OVER_BY_ALL = 1, 2


class State(NamedTuple):
    """What was decided where, and who knows.

    Attributes:
        topic: what the catalogue says of the home's topic.
        home: what the home's journal says; once the name was taken again, that of the new topic.
        meant: what its owner is about to append.
        has_let_go: nobody can append to the journal with the epoch that its owner had.
        kept: what the change "closed" says of the transaction.
        parts: what each participant has done, in its journal.
        time: of the transaction.
    """

    topic: str = LIVES
    home: str = UNDECIDED
    meant: str = UNDECIDED
    has_let_go: bool = False
    kept: str = UNDECIDED
    parts: tuple[str, ...] = (STAGED, STAGED)
    time: int = 0
    fault: str = ""


@dataclass(frozen=True)
class Rules:
    """The design; each can be turned off.

    Attributes:
        closed_keeps: the change "closed" names what was decided.
        closed_behind_epoch: what was decided is read behind the epoch that keeps the owner out.
        waits_for_closed: who asks has no answer while the topic is being deleted and not closed.
        no_in_time: that nothing was committed is said when the time is over, not before.
        by_every_clock: and then by the clock of any broker, not by that of who is asked.
        told_first: journals are dropped, and the name is free, when all were told.
        commit_again: a commit that is asked for again is answered by what was kept.
    """

    closed_keeps: bool = True
    closed_behind_epoch: bool = True
    waits_for_closed: bool = True
    no_in_time: bool = True
    by_every_clock: bool = True
    told_first: bool = True
    commit_again: bool = True


def wrong(state: State) -> str:
    """All of it counts, or nothing."""
    if COMMITTED in state.parts and ABORTED in state.parts:
        return "one half counts, the other does not"
    return state.fault


def at_rest(state: State) -> str:
    """In the end everybody knows."""
    return "a participant waits for ever" if STAGED in state.parts else ""


def steps(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    """Whatever may happen next."""
    if state.fault:
        return
    if state.time < OVER_BY_ALL:
        yield "time goes on", state._replace(time=state.time + 1)
    yield from _home(state)
    yield from _delete(state, rules)
    yield from _tell(state)
    yield from _ask(state, rules)
    if state.topic == CLOSED and state.kept == COMMITTED and not rules.commit_again:
        fault = "a commit that counts was denied"
        yield "the commit is asked for again", state._replace(fault=fault)


def _home(state: State) -> Iterator[tuple[str, State]]:
    """Whoever owns the home decides: a commit while its own clock, maybe the slowest, allows. It
    may not have heard that the topic is being deleted."""
    if (
        state.topic in (LIVES, DELETING, AGAIN)
        and state.home == state.meant == UNDECIDED
        and state.time < OVER_BY_ALL
    ):
        yield "a commit is meant", state._replace(meant=COMMITTED)
    if state.meant == UNDECIDED:
        return
    yield "the owner is gone", state._replace(meant=UNDECIDED)
    if state.has_let_go:
        yield "the append is refused", state._replace(meant=UNDECIDED)
    else:
        yield "it is written", state._replace(home=state.meant, meant=UNDECIDED)


def _delete(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    """One step of the topic's end, or of its name's new beginning."""
    if state.topic == LIVES:
        yield "the topic is deleted", state._replace(topic=DELETING)
    if state.topic == DELETING and not state.has_let_go:
        yield "an epoch is begun", state._replace(has_let_go=True)
    if state.topic == DELETING and (state.has_let_go or not rules.closed_behind_epoch):
        kept = state.home if rules.closed_keeps else UNDECIDED
        yield "it is closed", state._replace(topic=CLOSED, kept=kept)
    may_drop = state.kept == UNDECIDED or STAGED not in state.parts or not rules.told_first
    if state.topic == CLOSED and may_drop:
        gone = state._replace(topic=GONE, home=UNDECIDED, kept=UNDECIDED, has_let_go=True)
        yield "its journals are dropped", gone
    if state.topic == GONE and state.meant == UNDECIDED:
        yield "the name is taken again", state._replace(topic=AGAIN, has_let_go=False)


def _do(state: State, part: int, decision: str) -> State:
    """A participant does what it is told, unless it has done something."""
    if state.parts[part] != STAGED:
        return state
    done = tuple(decision if n == part else one for n, one in enumerate(state.parts))
    return state._replace(parts=done)


def _tell(state: State) -> Iterator[tuple[str, State]]:
    """By the owner what its journal says, which it may know still when it has let go; by who drops
    the journals what was kept."""
    for said in {state.home, state.kept} - {UNDECIDED}:
        for part in PARTS:
            yield f"{part} is told", _do(state, part, said)


def _ask(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    """A participant that was not told in time asks, by a clock of its own."""
    if state.time < OVER_BY_ONE and rules.no_in_time:
        return
    is_early = state.time < OVER_BY_ALL and rules.no_in_time and rules.by_every_clock
    is_unclear = state.topic == DELETING and rules.waits_for_closed
    for part in PARTS:
        if state.topic in (LIVES, DELETING, AGAIN) and not state.has_let_go:
            yield from _ask_home(state, part)
        if state.topic in (LIVES, AGAIN) or is_unclear:
            continue
        if state.topic == CLOSED and state.kept != UNDECIDED:
            yield f"{part} asks", _do(state, part, state.kept)
        elif not is_early:
            yield f"{part} asks, and nothing was committed", _do(state, part, ABORTED)


def _ask_home(state: State, part: int) -> Iterator[tuple[str, State]]:
    """The home answers by its journal; what was not decided in time it writes down as aborted."""
    if state.home != UNDECIDED:
        yield f"{part} asks", _do(state, part, state.home)
    elif state.meant == UNDECIDED and state.time == OVER_BY_ALL:
        yield f"{part} asks, and it is aborted", _do(state._replace(home=ABORTED), part, ABORTED)
