"""Each invariant is breached once, to see that the check would notice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dejaqueue.engine import invariants
from dejaqueue.engine.arrays import Words
from dejaqueue.engine.commands import Enqueue, Lease, PutEntries
from dejaqueue.engine.dictionary import of_runs
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.key_index import KeyIndex
from dejaqueue.engine.layout import TINY
from dejaqueue.errors import InternalError
from dejaqueue.model import MessageState


def filled() -> Engine:
    engine = Engine(0, TINY)
    for position in range(1, 11):
        groups = Words(("a", "b"), np.arange(10, dtype=np.int32) % 2)
        dues_ms = np.arange(10) + position
        senders = of_runs([("s", 10)])
        command = Enqueue(0, position, dues_ms, (), np.arange(10), groups=groups, senders=senders)
        engine.apply(command)
    engine.apply(Lease(5, 11, 5, 7, 80))
    engine.apply(PutEntries(5, (("e", "{}", 9, 9),)))
    engine.check()
    return engine


def swap(engine: Engine) -> None:
    run = engine.state.order.sealed[0]
    run.keys = run.keys[::-1].copy()


BREACHES: dict[str, Callable[[Engine], object]] = {
    "dead_rows_are_in_groups": lambda e: e.state.table.states.__setitem__(50, MessageState.DEAD),
    "names_count_their_messages": lambda e: e.state.groups.lives.__setitem__(1, 7),
    "counts_are_those_of_the_table": lambda e: setattr(e.state.counts, "leased", 3),
    "what_came_in_is_live_or_went": lambda e: setattr(e.state.counts, "acked", 3),
    "slabs_count_their_live_rows": lambda e: e.state.table.slab_lives.__setitem__(0, 1),
    "runs_are_sorted": swap,
    "entries_are_counted": lambda e: setattr(e.state.order, "entry_count", 3),
    "scheduled_rows_are_in_the_order_index": lambda e: e.state.table.dues_ms.__setitem__(50, 7777),
    "leased_rows_are_in_leases": lambda e: e.state.leases.by_id.clear(),
    "next_end_is_that_of_the_table": lambda e: e.state.leases._checks.clear(),
    "entries_are_listed_at_their_times": lambda e: setattr(
        e.state.entries.by_name["e"], "wake_ms", 8
    ),
    "every_sender_has_a_name": lambda e: e.state.senders.names.__setitem__(1, ""),
    "payloads_add_up": lambda e: setattr(e.state, "payload_bytes", 3),
    "every_key_finds_its_messages": lambda e: setattr(e.state, "keys", KeyIndex()),
}


@pytest.mark.parametrize("invariant", invariants.INVARIANTS, ids=lambda f: f.__name__)
def test_a_breach_is_noticed_and_named(invariant: Callable[..., bool]) -> None:
    engine = filled()
    BREACHES[invariant.__name__](engine)
    assert not invariant(engine.state)
    with pytest.raises(InternalError, match="breached: "):
        engine.check()
