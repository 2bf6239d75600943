"""Whether what was answered about one register is a linear order of what was asked of it.

After Wing and Gong, with Lowe's memory of what was tried: an answer is possible if the call took
effect at one moment between its being called and its being answered. A call without an answer took
effect at any later moment, or never. Each register (a key, a topic, a transaction) is searched by
itself, so that a long history takes seconds.

Holds: the search goes forward through time and keeps every state in which the register may be, so
that the first answer which fits none of them is named. It is bounded: what is too much for it is
said to be so, and never taken for right.
See: linear_registers.py for what the registers do; test_linear.py for planted histories.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

PLACES_MAX = 20_000
"""Places that one answer may be looked for from; more are not looked at."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a register.

    Attributes:
        op: what it is.
        given: what it was called with.
        told: what was answered; None = nothing, and it may take effect at any time, or never.
        called_us, answered_us: when; without an answer `answered_us` means nothing.
        who: for people: who called whom.
    """

    op: str
    given: Hashable
    told: Hashable
    called_us: int
    answered_us: int = 0
    who: str = ""

    def __str__(self) -> str:
        told = "no answer" if self.told is None else f"{self.told} at {self.answered_us}"
        return f"{self.called_us} {self.op} {self.given}: {told} {self.who}".rstrip()


@dataclass(frozen=True)
class Register:
    """What a register does.

    Attributes:
        first: its state before all calls.
        after: the states that a call may leave behind, given what it was answered; none = it cannot
            have been answered so in this state.
        reads: calls that never change anything.
    """

    first: Hashable
    after: Callable[[Hashable, Call], Iterable[Hashable]]
    reads: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Broken:
    """Why there is no such order.

    Attributes:
        call: the first whose answer fits no order; None = the search became too large.
        states: what the register may have been before that.
        before: what was called before, the newest last.
    """

    call: Call | None
    states: tuple[Hashable, ...] = ()
    before: tuple[Call, ...] = ()

    def __str__(self) -> str:
        if self.call is None:
            return "too many orders to try them all"
        states = ", ".join(str(state) for state in self.states[:4])
        lines = "".join(f"\n    {call}" for call in self.before)
        return f"no order explains [{self.call}]; before it was {states}; after{lines}"


Place = tuple[Hashable, frozenset[int]]
"""A state, and which of the calls that are under way have taken effect in it."""


def linear(
    register: Register, calls: Sequence[Call], places_max: int = PLACES_MAX
) -> Broken | None:
    """Look for an order; None = there is one."""
    calls = [call for call in calls if call.told is not None or call.op not in register.reads]
    # What is called at the very moment of an answer may have come before it.
    events = [(call.called_us, 0, number) for number, call in enumerate(calls)]
    events += [
        (call.answered_us, 1, number) for number, call in enumerate(calls) if call.told is not None
    ]
    places: set[Place] = {(register.first, frozenset())}
    under_way: set[int] = set()
    for _, is_answer, number in sorted(events):
        if not is_answer:
            under_way.add(number)
            continue
        found = _take_effect(register, calls, places, under_way, number, places_max)
        if not found:
            states = tuple(sorted({state for state, _ in places}, key=str))
            before = sorted(calls, key=lambda call: call.called_us)
            before = [one for one in before if one.called_us <= calls[number].answered_us]
            return Broken(None if found is None else calls[number], states, tuple(before[-12:]))
        under_way.discard(number)
        places = found
    return None


def _take_effect(
    register: Register,
    calls: Sequence[Call],
    places: set[Place],
    under_way: set[int],
    number: int,
    places_max: int,
) -> set[Place] | None:
    """The places in which a call has taken effect, and others only as far as that needs them.

    None = there are too many.
    """
    reads = [n for n in under_way if calls[n].op in register.reads]
    others = sorted(n for n in under_way if calls[n].op not in register.reads)
    done, seen = _Fewest(calls), _Fewest(calls)
    # The fewest calls first, so that places with more of them are known to be of no use.
    waiting = deque(_read(register, calls, reads, place) for place in places)
    while waiting:
        place = waiting.popleft()
        if not seen.add(place):
            continue
        if seen.count > places_max:
            return None
        state, effective = place
        if number in effective:
            done.add((state, effective - {number}))
            continue
        tried: set[tuple[str, Hashable]] = set()
        for other in others:
            kind = (calls[other].op, calls[other].given)
            if other in effective or (calls[other].told is None and kind in tried):
                continue  # of calls without an answer that are alike, one is as good as another
            if calls[other].told is None:
                tried.add(kind)
            for after in register.after(state, calls[other]):
                if after == state and calls[other].told is None:
                    continue  # as if it never took effect
                following = (after, effective | {other})
                waiting.append(_read(register, calls, reads, following))
    return done.places()


def _read(register: Register, calls: Sequence[Call], reads: list[int], place: Place) -> Place:
    """What only reads, and fits, has read here: to wait longer is of no use to it."""
    state, effective = place
    left = [n for n in reads if n not in effective]
    fitting = [n for n in left if list(register.after(state, calls[n]))]
    return (state, effective.union(fitting)) if fitting else place


class _Fewest:
    """Places, without those from which no more can follow than from another one: the same, but for
    calls without an answer that have taken effect there, and may still do so here."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls
        self._kept: dict[tuple[Hashable, frozenset[int]], list[frozenset[int]]] = {}
        self.count = 0

    def add(self, place: Place) -> bool:
        """Keep a place; False if it is there, or one that is as good."""
        state, effective = place
        free = frozenset(n for n in effective if self._calls[n].told is None)
        kept = self._kept.setdefault((state, effective - free), [])
        if any(other <= free for other in kept):
            return False
        kept[:] = [other for other in kept if not free < other]
        kept.append(free)
        self.count += 1
        return True

    def places(self) -> set[Place]:
        """All that were kept."""
        return {
            (state, bound | free) for (state, bound), sets in self._kept.items() for free in sets
        }
