"""Bugs planted in what a partition makes of several subscriptions, retention and replay.

As mutants.py, for runs of the kind `views`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dejaqueue.broker.calls import seek
from dejaqueue.broker.shard import key_retention_chore
from dejaqueue.broker.topic.attendance import Presence
from dejaqueue.broker.topic.subscription import ServedSubscription
from dejaqueue.engine import commands, replay, view_snapshots
from dejaqueue.engine.arrays import Int64s, UInt8s
from dejaqueue.engine.arrivals import Arrivals
from dejaqueue.engine.effects import Effects, Leased
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.retention import Retention
from dejaqueue.engine.selection import selected_mask
from dejaqueue.engine.state import PartitionState
from dejaqueue.engine.table import SCHEDULED
from dejaqueue.engine.views import NamedView, PartitionViews

Mutant = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, Mutant] = {}


def mutant(function: Mutant) -> Mutant:
    """Register a planted bug."""
    MUTANTS[function.__name__] = function
    return function


# --- several views --------------------------------------------------------------------------------


@mutant
def a_payload_goes_with_the_first_view(patch: pytest.MonkeyPatch) -> None:
    def freed(self: PartitionViews, parts: list[tuple[Int64s, Int64s]]) -> Int64s:
        none = np.zeros(0, dtype=np.int64)
        return np.unique(np.concatenate([none, *(locators for _, locators in parts)]))

    patch.setattr(PartitionViews, "_freed", freed)


@mutant
def an_ack_counts_in_every_view(patch: pytest.MonkeyPatch) -> None:
    inner = PartitionViews._in_view

    def in_view(self: PartitionViews, command: commands.InView) -> Effects:
        if isinstance(command.command, commands.Ack) and command.command.stage is None:
            for number in self.named:
                inner(self, replace(command, number=number))
        return inner(self, command)

    patch.setattr(PartitionViews, "_in_view", in_view)


@mutant
def a_cancel_is_the_unnamed_views_alone(patch: pytest.MonkeyPatch) -> None:
    def seen(self: PartitionViews, engine: Engine, command: Any) -> Any:
        return None if isinstance(command, commands.Cancel) else command

    patch.setattr(PartitionViews, "_seen_move", seen)


@mutant
def a_cancel_does_not_ask_who_has_it(patch: pytest.MonkeyPatch) -> None:
    def look(self: PartitionViews, sequences: Int64s) -> tuple[UInt8s, Int64s]:
        return self.unnamed.states(sequences), self.unnamed.dues(sequences)

    inner = PartitionViews._change

    def change(self: PartitionViews, command: Any) -> Effects:
        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(PartitionViews, "look", look)
            return inner(self, command)

    patch.setattr(PartitionViews, "_change", change)


@mutant
def a_decision_is_the_unnamed_views_alone(patch: pytest.MonkeyPatch) -> None:
    def decide(self: PartitionViews, command: commands.Decide) -> Effects:
        return self._alone(command)

    patch.setattr(PartitionViews, "_decide", decide)


@mutant
def a_snapshot_leaves_the_last_view_out(patch: pytest.MonkeyPatch) -> None:
    inner = view_snapshots.restore_views

    def restore(*given: Any) -> PartitionViews:
        views = inner(*given)
        if views.named:
            views.named.popitem()
            views.settle()
        return views

    patch.setattr("dejaqueue.broker.shard.reading.restore_views", restore)


@mutant
def a_view_delays_what_comes_in(patch: pytest.MonkeyPatch) -> None:
    def seen_by(self: NamedView, command: commands.Enqueue) -> commands.Enqueue:
        return replace(command, dues_ms=command.dues_ms + 3_600_000, sub_batches=(), firings=())

    patch.setattr(NamedView, "seen_by", seen_by)


# --- retention and replay -------------------------------------------------------------------------


@mutant
def everything_is_old_enough(patch: pytest.MonkeyPatch) -> None:
    def came_by(self: Arrivals, cutoff_ms: int, next_sequence: int) -> int:
        return next_sequence

    patch.setattr(Arrivals, "came_by", came_by)


@mutant
def a_replayed_message_begins_its_attempts_anew(patch: pytest.MonkeyPatch) -> None:
    def handed_out(self: Retention, leased: Leased) -> None:
        return None

    patch.setattr(Retention, "handed_out", handed_out)


@mutant
def a_seek_goes_to_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(seek, "parse_place", lambda value: -1)


@mutant
def what_is_forgotten_is_taken_from_views(patch: pytest.MonkeyPatch) -> None:
    inner = PartitionViews._forget

    def forget(self: PartitionViews, command: commands.Forget) -> Effects:
        kept = self.retained
        assert kept is not None
        before = np.concatenate([*kept.engine.live_sequences(), np.zeros(0, dtype=np.int64)])
        effects = inner(self, command)
        gone = before[kept.engine.states(before) != SCHEDULED]
        for engine in self.engines():
            waiting = gone[engine.states(gone) == SCHEDULED]
            replay._pass_over(engine.state, waiting)
            engine.state.finished = []  # their places stay taken
        return effects

    patch.setattr(PartitionViews, "_forget", forget)


@mutant
def a_seek_forgets_its_filter(patch: pytest.MonkeyPatch) -> None:
    def wanted(state: PartitionState, wanted: Any, sequences: Int64s) -> Any:
        return np.ones(sequences.size, dtype=np.bool_)

    patch.setattr(replay, "_wanted", wanted)


@mutant
def a_filter_asks_what_is_done_in_the_view_itself(patch: pytest.MonkeyPatch) -> None:
    def wanted(state: PartitionState, wanted: Any, sequences: Int64s) -> Any:
        return selected_mask(state, wanted, state.table.places(sequences))

    patch.setattr(replay, "_wanted", wanted)


@mutant
def of_all_keys_together_the_newest_is_kept(patch: pytest.MonkeyPatch) -> None:
    inner = Retention.keyed

    def keyed(self: Retention, first: int, end: int, limit: int) -> tuple[Int64s, Int64s]:
        sequences, hashes = inner(self, first, end, limit)
        return sequences, np.ones_like(hashes)

    def same_key(core: Any, sequences: Int64s, newer: Int64s) -> Any:
        return np.ones(sequences.size, dtype=np.bool_)

    patch.setattr(Retention, "keyed", keyed)
    patch.setattr(key_retention_chore, "_same_key", same_key)


# --- views that begin late, and end ---------------------------------------------------------------


@mutant
def a_view_begins_with_its_first_piece_alone(patch: pytest.MonkeyPatch) -> None:
    inner = PartitionViews._seed_more

    def seed_more(self: PartitionViews, command: commands.SeedView) -> Effects:
        effects = inner(self, command)
        self.named[command.number].seeding = None
        return effects

    patch.setattr(PartitionViews, "_seed_more", seed_more)


@mutant
def an_ephemeral_view_ends_beside_its_consumers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        ServedSubscription, "presence", lambda self: Presence(is_used=False, event_count=0)
    )
