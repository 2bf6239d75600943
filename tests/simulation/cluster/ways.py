"""The way from a broker to a server of facts: calls take time, and are lost, they or their answers.

What was sent arrives, also when its sender is dead. Nobody may wait on the world's own fiber, where
brokers die: a call from there takes no time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from dejaqueue.testing.simulation.world import World
from tests.simulation.cluster.fibers import Waiter
from tests.simulation.cluster.stand_ins import fibers_here

Answer = TypeVar("Answer")
NEAR_US_MAX = 3_000
LATE_SHARE = 0.05
PATIENCE_US = 5_000_000
"""What a library waits for an answer."""


class Lost(Exception):
    """No answer came."""


@dataclass
class PlainWay:
    """What can break between a broker and where facts are kept. See coordinators.Way."""

    is_cut: bool = False
    answers_lost: int = 0

    def mend(self) -> None:
        """It is there again."""
        self.is_cut = False


@dataclass
class FarWay:
    """The same, to a server.

    Attributes:
        is_cut: nothing gets through.
        answers_lost: of so many of the next changes nobody hears.
        late_us_max: so long some calls take at most, each way; 0 = none takes any time.
        on_mend: called when it is there again.
        on_end: called when what the server pushes ends; with True: and nobody is told of that.
    """

    world: World
    is_cut: bool = False
    answers_lost: int = 0
    late_us_max: int = 0
    on_mend: list[Callable[[], None]] = field(default_factory=list)
    on_end: list[Callable[[bool], None]] = field(default_factory=list)

    def mend(self) -> None:
        """It is there again."""
        was_cut, self.is_cut = self.is_cut, False
        for call in list(self.on_mend) if was_cut else ():
            call()

    def end_watches(self, *, silently: bool) -> None:
        """What the server pushes comes no more; `silently`: and nobody is told of that."""
        for call in list(self.on_end):
            call(silently)

    def travel_us(self) -> int:
        """How long a message is on its way."""
        world = self.world
        longest_us = self.late_us_max if world.chance(LATE_SHARE) else NEAR_US_MAX
        return world.between(20, max(20, longest_us))

    def ask(self, call: Callable[[], Answer], *, changes: bool) -> Answer:
        """Have the server do something. Raises Lost, and what the call raises."""

        def begin(give: Callable[[Callable[[], Answer]], None]) -> None:
            give(call)

        return self.ask_later(begin, changes=changes)

    def ask_later(
        self,
        begin: Callable[[Callable[[Callable[[], Answer]], None]], None],
        *,
        changes: bool,
        patience_us: int = PATIENCE_US,
    ) -> Answer:
        """The same of a server that may answer later, or never.

        Args:
            begin: is given what is to be called with the answer, or with what raises it.
        """
        world, fibers = self.world, fibers_here()
        if self.is_cut:
            raise Lost
        found: list[Callable[[], Answer]] = []
        if fibers is None:
            begin(found.append)
            if not found:
                raise Lost
            return found[0]()
        waiter = Waiter(fibers)

        def come(answer: Callable[[], Answer]) -> None:
            found.append(answer)
            waiter.tell()

        def give(answer: Callable[[], Answer]) -> None:
            kept = _outcome(answer)
            if self.late_us_max:
                world.after(self.travel_us(), partial(come, kept))
            else:
                come(kept)

        if self.late_us_max:
            world.after(self.travel_us(), lambda: begin(give))
        else:
            begin(give)
        if not found:
            waiter.wait(world.now_us + patience_us)
        if self.is_cut or not found:
            raise Lost
        if changes and self.answers_lost:
            self.answers_lost -= 1
            raise Lost
        return found[0]()


def _outcome(call: Callable[[], Answer]) -> Callable[[], Answer]:
    """What a call came to, to be told later."""
    try:
        answer = call()
    except Exception as wrong:  # noqa: BLE001 - whoever asked gets it
        error = wrong

        def fail() -> Answer:
            raise error

        return fail
    return lambda: answer
