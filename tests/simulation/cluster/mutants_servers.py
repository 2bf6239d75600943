"""Bugs that are planted in what nodes do about the servers beside brokers; see mutants.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import pytest

from dejaqueue.cluster import servers
from dejaqueue.cluster.disk import Restarter
from dejaqueue.cluster.jetstream_settings import Node
from dejaqueue.cluster.servers import ServerAddress
from dejaqueue.cluster.turn import KEY, RENEW_US, Keep, Turn
from dejaqueue.coordinator.interface import Conflict
from dejaqueue.errors import DejaQError, Refused, Unavailable

Mutant = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, Mutant] = {}


def mutant(function: Mutant) -> Mutant:
    """Register a planted bug."""
    MUTANTS[function.__name__] = function
    return function


@mutant
def whose_turn_it_is_does_not_matter_at_its_end(patch: pytest.MonkeyPatch) -> None:
    """Who slept through its turn ends that of the next node."""
    inner = Turn.__call__

    @contextmanager
    def call(self: Turn) -> Iterator[Keep]:
        with inner(self) as keep:
            try:
                yield keep
            finally:
                with suppress(DejaQError, Conflict):
                    self._coordinator.delete(KEY)

    patch.setattr(Turn, "__call__", call)


@mutant
def a_turn_lasts_while_the_coordinator_is_away(patch: pytest.MonkeyPatch) -> None:
    def keep(self: Turn) -> None:
        if self._clock.now_us() - self._renewed_us < RENEW_US:
            return
        with suppress(Unavailable):
            if not self._coordinator.renew(KEY):
                raise Refused("another node has begun to change the servers of the cluster")
            self._renewed_us = self._clock.now_us()

    patch.setattr(Turn, "_keep", keep)


@mutant
def settings_go_before_what_was_said(patch: pytest.MonkeyPatch) -> None:
    """A node that has left is taken up again by settings that still name it."""

    def merged(
        settings: Sequence[Node], said: Mapping[str, ServerAddress], own: Node
    ) -> list[Node]:
        known = {name: address.node for name, address in said.items() if not address.left}
        known |= {node.name: node for node in settings}
        return [known[name] for name in sorted(known)]

    patch.setattr(servers, "merged", merged)


@mutant
def a_server_is_started_again_once(patch: pytest.MonkeyPatch) -> None:
    """And no more, whatever its disk does after that."""
    inner = Restarter._start_again

    def start_again(self: Restarter) -> None:
        if self.count < 1:
            inner(self)

    patch.setattr(Restarter, "_start_again", start_again)
