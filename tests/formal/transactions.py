"""A transaction over two topics, each with an owner of its own, which changes.

As broker/transactions/ is meant to work: the home decides once, durably; it tells whoever owns
the participant now, and the participant asks whoever owns the home, again and again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

STAGED, COMMITTED, ABORTED, UNDECIDED = "staged", "committed", "aborted", "undecided"


class State(NamedTuple):
    """Who owns what, what was decided, and what the participant made of it.

    Attributes:
        home_at, part_at: the brokers that own them.
        home: what the home has decided.
        part: what the participant, in the other topic, has done.
        is_over: the transaction's time.
        told: the home has noted that the participant knows.
        on_way: decisions that were sent and may come late, or never.
        moves: hand-overs so far.
    """

    home_at: int = 0
    part_at: int = 0
    home: str = UNDECIDED
    part: str = STAGED
    is_over: bool = False
    told: bool = False
    on_way: frozenset[str] = frozenset()
    moves: int = 0


@dataclass(frozen=True)
class Rules:
    """The design; each can be turned back.

    Attributes:
        over_the_wire: brokers tell and ask one another; else only what is served here.
        elsewhere_is_told: what is not served here counts as told.
        silence_aborts: whoever gets no answer to its question aborts.
        moves_max: hand-overs.
    """

    over_the_wire: bool = True
    elsewhere_is_told: bool = False
    silence_aborts: bool = False
    moves_max: int = 3


def wrong(state: State) -> str:
    """All of it counts, or nothing."""
    if COMMITTED in (state.home, state.part) and ABORTED in (state.home, state.part):
        return "one half counts, the other does not"
    return ""


def at_rest(state: State) -> str:
    """In the end everybody knows."""
    return "" if state.part != STAGED else f"the participant waits for ever; home: {state.home}"


def steps(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    """Whatever may happen next."""
    if state.moves < rules.moves_max:
        moved = state._replace(moves=state.moves + 1)
        yield "the home moves", moved._replace(home_at=1 - state.home_at)
        yield "the participant moves", moved._replace(part_at=1 - state.part_at)
    if not state.is_over:
        yield "its time is over", state._replace(is_over=True)
    if state.home == UNDECIDED:
        yield "abort", state._replace(home=ABORTED)
        if not state.is_over:
            yield "commit", state._replace(home=COMMITTED)
    else:
        yield from _tell(state, rules)
    for decision in sorted(state.on_way):
        left = state._replace(on_way=state.on_way - {decision})
        yield f"{decision} arrives", _decide(left, decision)
        yield f"{decision} is lost", left
    if state.part == STAGED and state.is_over:
        yield from _ask(state, rules)


def _decide(state: State, decision: str) -> State:
    return state._replace(part=decision) if state.part == STAGED else state


def _tell(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    """Sent once more while it is not known to have arrived."""
    near = state.home_at == state.part_at
    if near or rules.over_the_wire:
        if not state.told and state.part == STAGED:
            yield "tell", state._replace(on_way=state.on_way | {state.home})
        if state.part != STAGED:
            yield "it is told", state._replace(told=True)
    elif rules.elsewhere_is_told and not state.told:
        yield "it counts as told", state._replace(told=True)


def _ask(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    near = state.home_at == state.part_at
    if near or rules.over_the_wire:
        answered = state if state.home != UNDECIDED else state._replace(home=ABORTED)
        yield "ask", _decide(answered, answered.home)
    elif rules.silence_aborts:
        yield "no answer", _decide(state, ABORTED)
