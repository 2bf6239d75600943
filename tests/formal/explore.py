"""Every state that a small specification can come to, breadth first.

Not the code: what it is meant to do, small enough that all orders of events can be tried. Whatever
is found is found by the shortest way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)
Step = tuple[str, State]


@dataclass(frozen=True)
class Explored(Generic[State]):
    """What was found.

    Attributes:
        state_count: how many different states there are.
        wrong: what a state breaks; "" = none does.
        way: what happened until then.
    """

    state_count: int
    wrong: str = ""
    way: tuple[str, ...] = ()


def explore(
    first: State,
    steps: Callable[[State], Iterator[Step[State]]],
    wrong: Callable[[State], str],
    at_rest: Callable[[State], str] = lambda state: "",
    states_max: int = 2_000_000,
) -> Explored[State]:
    """Try everything.

    Args:
        steps: what can happen in a state, and what comes of it.
        wrong: what is wrong with a state; "" = nothing.
        at_rest: the same, of one in which nothing more can happen.
    """
    came_by: dict[State, tuple[State, str] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        following = [step for step in steps(state) if step[1] != state]
        found = wrong(state) or ("" if following else at_rest(state))
        if found:
            return Explored(len(came_by), found, _way(state, came_by))
        for name, after in following:
            if after not in came_by:
                came_by[after] = (state, name)
                waiting.append(after)
        assert len(came_by) <= states_max, "the specification is too large for its bounds"
    return Explored(len(came_by))


def _way(state: State, came_by: dict[State, tuple[State, str] | None]) -> tuple[str, ...]:
    names: list[str] = []
    before = came_by[state]
    while before is not None:
        state, name = before
        names.append(name)
        before = came_by[state]
    return tuple(reversed(names))
