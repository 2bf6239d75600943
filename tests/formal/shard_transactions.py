"""A transaction over two shards that is decided in a third, its home, and the home's topic may go.

As docs/adr/0030-shards.md means it. A hand-over is modelled as the loss of whatever was only in
memory: the next owner knows what the shard's journal says. The clock of the next owner may be
behind that of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

STAGED, COMMITTED, ABORTED, UNDECIDED = "staged", "committed", "aborted", "undecided"
PARTS = (0, 1)


class State(NamedTuple):
    """What was decided, and who knows.

    Attributes:
        home: what the home's journal says; meant: what its owner has in memory.
        parts: what each participant has done, in its journal.
        is_over: its time, by the clock of the home's owner.
        is_gone: the home's topic was deleted.
        answered: a commit was answered with OK.
        moves: hand-overs of the home so far.
    """

    home: str = UNDECIDED
    meant: str = UNDECIDED
    parts: tuple[str, ...] = (STAGED, STAGED)
    is_over: bool = False
    is_gone: bool = False
    answered: bool = False
    moves: int = 0
    fault: str = ""


@dataclass(frozen=True)
class Rules:
    """The design; each can be turned off.

    Attributes:
        written_first: nobody is told of a decision before it is in the home's journal.
        silence_is_written: who asks after the time is told "aborted" when that is written.
        kept_by_shard: decisions stay when the topic goes; as built, in the catalogue until all
            who take part were told (docs/adr/0057).
        asks: participants ask when the time is over.
        told_first: a commit is answered when all participants have it in their journals.
        moves_max: hand-overs.
    """

    written_first: bool = True
    silence_is_written: bool = True
    kept_by_shard: bool = True
    asks: bool = True
    told_first: bool = True
    moves_max: int = 2


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
    if state.moves < rules.moves_max:
        kept = state._replace(meant=state.home, moves=state.moves + 1)
        yield "the home moves", kept
        yield "the home moves to a slower clock", kept._replace(is_over=False)
    if not state.is_over:
        yield "its time is over", state._replace(is_over=True)
    if not state.is_gone:
        gone = state._replace(is_gone=True)
        yield (
            "the home's topic is deleted",
            gone if rules.kept_by_shard else gone._replace(home=UNDECIDED, meant=UNDECIDED),
        )
        yield from _decide(state, rules)
    if state.meant != state.home:
        yield "it is written", state._replace(home=state.meant)
    yield from _tell(state, rules)
    if rules.asks and state.is_over:
        yield from _ask(state, rules)


def _decide(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    if state.meant != UNDECIDED:
        return
    for decision in (COMMITTED, ABORTED):
        if decision == ABORTED or not state.is_over:
            yield f"{decision} is meant", state._replace(meant=decision)


def _do(state: State, part: int, decision: str) -> State:
    """A participant does what it is told, unless it has done something."""
    if state.parts[part] != STAGED:
        return state
    done = tuple(decision if n == part else one for n, one in enumerate(state.parts))
    return state._replace(parts=done)


def _tell(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    said = state.home if rules.written_first else state.meant
    if said == UNDECIDED:
        return
    for part in PARTS:
        yield f"{part} is told", _do(state, part, said)
    if said == COMMITTED and (not rules.told_first or STAGED not in state.parts):
        yield "the commit is answered", state._replace(answered=True)
    if state.answered and STAGED in state.parts:
        yield "somebody looks", state._replace(fault="a commit was answered, and is not seen")


def _ask(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    """A participant that was not told in time asks the home; undecided means aborted."""
    for part in PARTS:
        if state.meant != UNDECIDED and state.home == UNDECIDED:
            continue  # it is being decided: there is an answer when it is written
        if state.home != UNDECIDED:
            yield f"{part} asks", _do(state, part, state.home)
        elif rules.silence_is_written:
            written = state._replace(home=ABORTED, meant=ABORTED)
            yield f"{part} asks, and it is aborted", _do(written, part, ABORTED)
        else:
            yield f"{part} asks, and is told so", _do(state, part, ABORTED)
