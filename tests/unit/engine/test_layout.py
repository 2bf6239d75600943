"""Covers: sizes change an engine's speed and memory, never its answers.

Not covered: every command on small layouts (tests/model), and what each size bounds
(test_table.py, test_runs.py, test_key_index.py, test_leases.py).
"""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from dejaqueue.engine.commands import Ack, Cancel, Configure, Enqueue, Lease, Move, Nack
from dejaqueue.engine.dictionary import of_runs
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.layout import STANDARD, TINY, Layout
from dejaqueue.engine.rules import Rules
from dejaqueue.model import Topic, TopicKind

LAYOUTS = (
    STANDARD,
    TINY,
    dataclasses.replace(TINY, slab_bits=4, seal_rows=3, draw_rows=1, key_bucket_bits=3),
    dataclasses.replace(STANDARD, slab_bits=5, young_batches_max=1, sweep_rows_min=0),
)


def answers(layout: Layout, kind: TopicKind, seed: int) -> tuple[list[list[int]], int]:
    """What leases handed out in a small history, drawn by the seed, and the state's hash."""
    chance, engine = random.Random(seed), Engine(0, layout)
    engine.apply(Configure(0, Rules.of(Topic("t", kind=kind)).to_text()))
    handed_out: list[list[int]] = []
    for now_ms in range(1, 30):
        count = chance.randint(1, 9)
        dues_ms = np.array([chance.randint(0, 90) for _ in range(count)], dtype=np.int64)
        hashes = np.array([chance.randint(0, 30) for _ in range(count)], dtype=np.int64)
        groups = of_runs([(chance.choice("abc"), 1) for _ in range(count)])
        engine.apply(Enqueue(now_ms, 2 * now_ms, dues_ms, (), hashes, groups=groups))
        known = np.array([chance.randrange(engine.next_sequence) for _ in range(4)])
        engine.apply(Move(now_ms, known, dues_ms=known * 0 + chance.randint(0, 90)))
        engine.apply(Cancel(now_ms, known[:1]))
        leased = engine.apply(
            Lease(now_ms, 2 * now_ms + 1, now_ms, chance.randint(1, 6), now_ms + 5)
        ).leased
        if leased is not None:
            handed_out.append(leased.sequences.tolist())
            if chance.random() < 0.5:
                engine.apply(Ack(now_ms, leased.lease_id))
            elif chance.random() < 0.5:
                engine.apply(Nack(now_ms, now_ms + 3, leased.lease_id))
        places, found = engine.find_keys(np.array([chance.randint(1, 30)], dtype=np.int64))
        handed_out.append([*places.tolist(), *found.tolist()])
    engine.check()
    return handed_out, engine.state_hash()


@pytest.mark.parametrize("kind", tuple(TopicKind), ids=lambda kind: str(kind.name).lower())
def test_engines_of_different_layouts_agree(kind: TopicKind) -> None:
    first = answers(STANDARD, kind, seed=3)
    assert sum(map(len, first[0])) > 80, "the history hands out too little to tell them apart"
    for layout in LAYOUTS[1:]:
        assert answers(layout, kind, seed=3) == first


def test_the_tests_layout_is_smaller_in_everything() -> None:
    """A size that is left at what brokers use is a mechanism that no test of few rows meets."""
    for field in dataclasses.fields(Layout):
        tiny, standard = getattr(TINY, field.name), getattr(STANDARD, field.name)
        assert 0 < tiny < standard, field.name


def test_a_handful_of_rows_is_several_slabs_in_the_tests_layout() -> None:
    """What happens at the end of a slab is met by tests of few rows, and by them alone."""
    slab_counts = []
    for layout in (TINY, STANDARD):
        engine = Engine(0, layout)
        engine.apply(Enqueue(0, 1, np.arange(20, dtype=np.int64), ()))
        slab_counts.append(len(list(engine.state.table.live_slabs())))
    assert slab_counts == [3, 1]


def test_a_layout_of_a_running_engine_cannot_be_changed() -> None:
    """Columns are laid out by it already."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        STANDARD.slab_bits = 3  # type: ignore[misc]
    assert Layout() == STANDARD
