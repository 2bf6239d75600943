"""Bugs that are planted in what nodes do about the servers beside brokers; see mutants.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from dejaqueue.cluster import child, servers
from dejaqueue.cluster.care import Care
from dejaqueue.cluster.child import Child, end_left_behind
from dejaqueue.cluster.disk import Restarter
from dejaqueue.cluster.jetstream import ClusterStatus, JetStreamServer
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


# --- servers and their copies ---------------------------------------------------------------------


@mutant
def a_node_is_emptied_whatever_the_others_have(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClusterStatus, "flaw", lambda self, lasts, but="": "")


@mutant
def a_stream_that_nobody_leads_is_no_flaw(patch: pytest.MonkeyPatch) -> None:
    """It counts only if somebody led it when that was asked first."""
    inner = ClusterStatus.flaw

    def flaw(self: ClusterStatus, lasts: dict[str, int], but: str = "") -> str:
        copies = tuple(one for one in self.copies if one.stream in self.lasts() | lasts)
        return inner(replace(self, copies=copies), lasts, but)

    patch.setattr(ClusterStatus, "flaw", flaw)


@mutant
def a_server_that_ends_is_not_started_again(patch: pytest.MonkeyPatch) -> None:
    def keep(self: Child) -> None:
        end_left_behind(self._pid_file, self._command()[0])
        self._run_once()

    patch.setattr(Child, "_keep", keep)


@mutant
def who_was_left_behind_is_not_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(child, "end_left_behind", lambda pid_file, program: None)


@mutant
def a_repair_is_tried_once(patch: pytest.MonkeyPatch) -> None:
    def heal(self: JetStreamServer) -> None:
        with suppress(Refused, Unavailable), self.turn() as alive:
            self.repair(alive=alive)

    patch.setattr(JetStreamServer, "_heal", heal)


@mutant
def a_server_that_hangs_is_left_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JetStreamServer, "_hangs", lambda self: False)


@mutant
def who_joins_is_not_told_to_the_server(patch: pytest.MonkeyPatch) -> None:
    def use_nodes(self: JetStreamServer, nodes: Sequence[Node]) -> None:
        self.nodes = tuple(nodes)

    patch.setattr(JetStreamServer, "use_nodes", use_nodes)


@mutant
def who_has_left_counts_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Care, "_forget", lambda self, node, url, keep: None)
