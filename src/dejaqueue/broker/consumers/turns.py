"""Turns: which of several consumers gets the next dispatch of a partition.

Room: broker. Pure; whoever has one calls it under a lock of its own.
Holds: the turn goes round over those who can take something; nobody gets more in a row than each
has been given on average, nor more than RUN_MAX.
See: dispatch.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

RUN_MAX = 8
"""Dispatches that one consumer gets in a row at most, from a partition with a deep backlog: they
are read together and sent by one thread. With 16 it costs the same, and parts are less even. Nobody
gets more in a row than each has been given on average, so a short backlog goes round."""

_Taker = TypeVar("_Taker")


@dataclass(slots=True)
class _Run(Generic[_Taker]):
    """Dispatches of a partition that go to one consumer before the next has its turn.

    Attributes:
        left: how many more.
        count: dispatches since there was last nothing to lease.
    """

    taker: _Taker
    left: int
    count: int


class Turns(Generic[_Taker]):
    """Whose turn it is.

    >>> turns = Turns[str]()
    >>> [turns.next(0, ["a", "b"], lambda _: True, in_a_row=True) for _ in range(6)]
    ['a', 'b', 'a', 'b', 'a', 'a']
    """

    def __init__(self) -> None:
        self._turn = 0
        self._runs: dict[int, _Run[_Taker]] = {}

    def next(
        self,
        partition: int,
        takers: Sequence[_Taker],
        can_take: Callable[[_Taker], bool],
        *,
        in_a_row: bool,
    ) -> _Taker | None:
        """Who is next; None = nobody can take anything.

        Args:
            partition: where the messages are.
            in_a_row: somebody may get several dispatches, one after the other.
        """
        run = self._runs.get(partition) if in_a_row else None
        if run is not None and run.left > 0 and can_take(run.taker):
            run.left -= 1
            run.count += 1
            return run.taker
        count = len(takers)
        for step in range(count):
            index = (self._turn + step) % count
            taker = takers[index]
            if can_take(taker):
                self._turn = (index + 1) % count
                given = 0 if run is None else run.count
                more = max(min(given // count, RUN_MAX) - 1, 0)
                self._runs[partition] = _Run(taker, more, given + 1)
                return taker
        return None

    def ended(self, partition: int) -> None:
        """The partition has nothing more: what comes later is dealt out one by one."""
        self._runs.pop(partition, None)
