"""Bugs that are planted in what answers of a cluster say about keys, topics and transactions; see
tests/simulation/mutants.py."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.partition import duplicates
from dejaqueue.broker.shard import opening
from dejaqueue.broker.transactions import coordinator, home
from dejaqueue.broker.transactions.home import Decision
from dejaqueue.broker.transactions.record import Record
from dejaqueue.catalogue.log import CatalogueLog
from dejaqueue.engine.key_index import KeyIndex
from dejaqueue.model import Topic

Mutant = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, Mutant] = {}


def mutant(function: Mutant) -> Mutant:
    """Register a planted bug."""
    MUTANTS[function.__name__] = function
    return function


# --- keys -----------------------------------------------------------------------------------------


@mutant
def the_index_of_keys_is_lost_on_hand_over(patch: pytest.MonkeyPatch) -> None:
    inner = opening.read_again

    def read_again(core: Any, door: Any) -> opening.Opened:
        opened = inner(core, door)
        state = opened.views.unnamed.state
        state.keys = KeyIndex(state.layout)
        return opened

    patch.setattr(opening, "read_again", read_again)


@mutant
def a_key_that_is_leased_is_taken_for_free(patch: pytest.MonkeyPatch) -> None:
    """Whoever sends to it while a consumer has its message is told that it is there."""
    inner = duplicates.resolve_batch

    def resolve_batch(core: Any, merged: Any, now_ms: int) -> Any:
        if merged.key_hashes is not None and core.engine.counts.leased:
            return None
        return inner(core, merged, now_ms)

    patch.setattr("dejaqueue.broker.partition.enqueueing.resolve_batch", resolve_batch)


# --- topics ---------------------------------------------------------------------------------------


@mutant
def a_topic_is_described_as_it_was_last_heard_of(patch: pytest.MonkeyPatch) -> None:
    """From what the broker knows, without asking whether it changed since."""

    def topic(self: Broker, name: str, *, newest: bool = False) -> Topic:
        self.check_running()
        return self._catalogue.get(name)

    patch.setattr(Broker, "topic", topic)


@mutant
def a_topic_is_changed_from_what_was_last_heard(patch: pytest.MonkeyPatch) -> None:
    """Without a look at what others appended, before or after: of two changes one is lost."""
    inner_make, inner_append = CatalogueLog._make, CatalogueLog._append

    def make(self: CatalogueLog, group: Any) -> None:
        if self._journal is not None:
            vars(self)["_read_to_end"] = lambda: None
        try:
            inner_make(self, group)
        finally:
            vars(self).pop("_read_to_end", None)

    def append(self: CatalogueLog, changes: Any) -> bool:
        vars(self).pop("_read_to_end", None)
        while not inner_append(self, changes):
            self._read_to_end()
        return True

    patch.setattr(CatalogueLog, "_make", make)
    patch.setattr(CatalogueLog, "_append", append)


# --- transactions ---------------------------------------------------------------------------------


@mutant
def a_decision_is_told_twice_differently(patch: pytest.MonkeyPatch) -> None:
    """The home answers by what is asked for, and not by what it has decided before."""
    inner = home.remember

    def remember(home: Any, name: Any, record: Record, commit: bool) -> Decision:
        return replace(inner(home, name, record, commit), commit=commit)

    patch.setattr(home, "remember", remember)


@mutant
def a_commit_is_answered_before_all_know_it(patch: pytest.MonkeyPatch) -> None:
    inner = coordinator._Call.home_decided

    def home_decided(self: coordinator._Call, future: Future[Decision]) -> None:
        if future.exception() is not None:
            inner(self, future)
            return
        decision = future.result()
        self._all_answered(decision, None)
        coordinator._SpreadDecision(
            self._coordinator, self._name, decision, lambda _error: None
        ).begin()

    patch.setattr(coordinator._Call, "home_decided", home_decided)
