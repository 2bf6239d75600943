"""What belongs to a whole topic: its home decides, the owners of its partitions carry it out.

As docs/adr/0030-shards.md means it, in the two cases that can do harm. A hand-over is the loss of
whatever was only in memory; what was sent may come late, in another order, or never.

    exclusive   one consumer has a partition at a time; nothing of it is leased to two at once
    allotments  two partitions share a limit of two messages, and together never keep more
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

LIMIT = 2
OWNERS = (0, 1)
MOVES_MAX = 2
CHANGES_MAX = 2

# --- exclusive ------------------------------------------------------------------------------------


class Exclusive(NamedTuple):
    """One partition that is not the home's, and two consumers, 1 and 2.

    Attributes:
        decided: whom the home means; written: whom its journal names.
        on_way: whom it has named to the owner, who has not heard it yet.
        given: whom the partition's owner goes by; leased: to whom it knows messages to be leased.
        held: who holds messages, whatever brokers know of it.
    """

    decided: int = 1
    written: int = 1
    on_way: frozenset[int] = frozenset()
    given: int = 1
    leased: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    changes: int = 0
    moves: int = 0


@dataclass(frozen=True)
class ExclusiveRules:
    """The design; each can be turned off.

    Attributes:
        waits_for_leases: a partition changes hands when nothing of it is leased.
        keeps_leases: who is leased what outlives a hand-over: it is in the shard's journal.
        repeats: the home names whom it means until the owner goes by it; else it does so once.
    """

    waits_for_leases: bool = True
    keeps_leases: bool = True
    repeats: bool = True


def wrong_exclusive(state: Exclusive) -> str:
    """One consumer at a time."""
    return "two consumers have a partition" if len(state.held) > 1 else ""


def exclusive_at_rest(state: Exclusive) -> str:
    """In the end the owner goes by what the home decided."""
    return "" if state.given == state.decided else "the owner goes by an older decision"


def exclusive_steps(state: Exclusive, rules: ExclusiveRules) -> Iterator[tuple[str, Exclusive]]:
    """Whatever may happen next. Whether the home writes what it means is of no matter here."""
    if state.changes < CHANGES_MAX:
        other = 3 - state.decided
        after = state._replace(decided=other, changes=state.changes + 1)
        yield "the home decides", after._replace(on_way=state.on_way | {other})
    if rules.repeats and state.given != state.decided:
        yield "it says so again", state._replace(on_way=state.on_way | {state.decided})
    if state.decided != state.written:
        yield "it writes it", state._replace(written=state.decided)
    for said in sorted(state.on_way):
        left = state._replace(on_way=state.on_way - {said})
        if not (rules.waits_for_leases and state.leased - {said}):
            yield f"the owner hears of {said}", left._replace(given=said)
        yield f"{said} is lost", left
    leased, held = state.leased | {state.given}, state.held | {state.given}
    if state.changes < CHANGES_MAX or state.given == state.decided:
        yield "a message is leased", state._replace(leased=leased, held=held)
    for one in sorted(state.held):
        done = state._replace(leased=state.leased - {one}, held=state.held - {one})
        yield f"{one} acks all", done
    if state.moves < MOVES_MAX:
        moved = state._replace(moves=state.moves + 1)
        yield "the home moves", moved._replace(decided=state.written)
        kept = state.leased if rules.keeps_leases else frozenset[int]()
        yield "the partition moves", moved._replace(leased=kept)


# --- allotments -----------------------------------------------------------------------------------

Pair = tuple[int, int]
"""Of each owner."""


class Allotments(NamedTuple):
    """Two owners; each keeps at most so many messages.

    Attributes:
        home: what the home has given to each, in memory; written: in its journal.
        heard: what each owner goes by; journal: what its journal says.
        kept: messages of each.
    """

    home: Pair = (2, 0)
    written: Pair = (2, 0)
    heard: Pair = (2, 0)
    journal: Pair = (2, 0)
    kept: Pair = (0, 0)
    moves: int = 0
    changes: int = 0


@dataclass(frozen=True)
class AllotmentRules:
    """The design; each can be turned off.

    Attributes:
        written_by_home: the home writes what it decides before it says it.
        lowers_first: an allotment is raised when another one is known to be lowered by as much.
        lowered_in_journal: it is known when the owner has it in its journal; else when it heard.
        raised_in_journal: an owner goes by more when it has it in its journal; else at once.
        empties_first: an owner that keeps more than it may does not say that it is lowered.
    """

    written_by_home: bool = True
    lowers_first: bool = True
    lowered_in_journal: bool = True
    raised_in_journal: bool = True
    empties_first: bool = True


def wrong_allotments(state: Allotments) -> str:
    """Never more than the limit."""
    return "more is kept than the limit" if sum(state.kept) > LIMIT else ""


def _set(values: Pair, place: int, value: int) -> Pair:
    return (value, values[1]) if place == 0 else (values[0], value)


def allotment_steps(state: Allotments, rules: AllotmentRules) -> Iterator[tuple[str, Allotments]]:
    """Whatever may happen next."""
    yield from _home_steps(state, rules)
    for owner in OWNERS:
        kept, mine, wanted = state.kept[owner], state.heard[owner], state.home[owner]
        if kept < mine:
            yield f"{owner} takes a message", state._replace(kept=_set(state.kept, owner, kept + 1))
        if kept:
            yield f"{owner} is rid of one", state._replace(kept=_set(state.kept, owner, kept - 1))
        if wanted != mine and (kept <= wanted or not rules.empties_first):
            heard = state._replace(heard=_set(state.heard, owner, wanted))
            if wanted > mine and rules.raised_in_journal:
                heard = heard._replace(journal=_set(state.journal, owner, wanted))
            yield f"{owner} hears", heard
        if state.journal[owner] != mine:
            yield f"{owner} writes", state._replace(journal=_set(state.journal, owner, mine))
        if state.moves < MOVES_MAX:
            back = _set(state.heard, owner, state.journal[owner])
            yield f"{owner} moves", state._replace(heard=back, moves=state.moves + 1)


def _home_steps(state: Allotments, rules: AllotmentRules) -> Iterator[tuple[str, Allotments]]:
    known = state.journal if rules.lowered_in_journal else state.heard
    for owner in OWNERS:
        mine, others = state.home[owner], state.home[1 - owner]
        if rules.lowers_first:
            others = max(others, known[1 - owner])
        changed: dict[str, int] = {}
        if mine and state.changes < CHANGES_MAX:
            changed["lowers"] = mine - 1
        if mine + others < LIMIT:
            changed["raises"] = LIMIT - others
        for what, value in changed.items():
            home = _set(state.home, owner, value)
            written = home if rules.written_by_home else state.written
            count = state.changes + (what == "lowers")
            after = state._replace(home=home, written=written, changes=count)
            yield f"the home {what} {owner}", after
    if state.home != state.written:
        yield "the home writes", state._replace(written=state.home)
    if state.moves < MOVES_MAX:
        yield "the home moves", state._replace(home=state.written, moves=state.moves + 1)
