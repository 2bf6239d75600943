"""Covers: walks, pages and histograms of a selection against a list that is looked through.

Not covered: what users may ask (tests/rules/test_browsing.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue.engine.arrays import Words
from dejaqueue.engine.commands import Ack, Cancel, Configure, Enqueue, Lease, Move
from dejaqueue.engine.engine import Engine
from dejaqueue.engine.layout import STANDARD, TINY
from dejaqueue.engine.message_filter import Selection
from dejaqueue.engine.rules import Rules
from dejaqueue.model import MessageState, TagFilter, Topic, TopicKind

GROUPS = ("", "a", "b")
SETS = ("", "x", "x\x1fy", "y")
COUNT = 60


@dataclass
class Known:
    """What a list says of a message."""

    due_ms: int
    group: str
    tags: frozenset[str]
    priority: int
    state: MessageState = MessageState.SCHEDULED


def words(names: tuple[str, ...], indices: list[int]) -> Words:
    return Words(names, np.array(indices, dtype=np.int32))


@st.composite
def histories(draw: st.DrawFn) -> tuple[Engine, dict[int, Known]]:
    """An engine after some sends, moves, leases and cancels, and what must be in it."""
    engine = Engine(0, draw(st.sampled_from((TINY, STANDARD))))
    if draw(st.booleans()):
        topic = Topic("t", kind=TopicKind.PRIORITY)
        engine.apply(Configure(0, Rules.of(topic).to_text()))
    known: dict[int, Known] = {}
    small = st.integers(0, 40)
    position = 0
    for now_ms in range(draw(st.integers(1, 5))):
        rows = draw(st.integers(1, COUNT // 4))
        dues = [draw(small) for _ in range(rows)]
        groups = [draw(st.integers(0, 2)) for _ in range(rows)]
        sets = [draw(st.integers(0, 3)) for _ in range(rows)]
        priorities = [draw(st.integers(0, 3)) for _ in range(rows)]
        position += 1
        effects = engine.apply(
            Enqueue(
                now_ms,
                position,
                np.array(dues),
                (),
                priorities=np.array(priorities, dtype=np.uint16),
                groups=words(GROUPS, groups),
                tags=words(SETS, sets),
            )
        )
        for row in range(rows):
            known[effects.first_sequence + row] = Known(
                dues[row],
                GROUPS[groups[row]],
                frozenset(SETS[sets[row]].split("\x1f")) - {""},
                priorities[row],
            )
        position += 1
        _disturb(draw, engine, known, now_ms, position)
    return engine, known


def _disturb(
    draw: st.DrawFn, engine: Engine, known: dict[int, Known], now_ms: int, position: int
) -> None:
    """Move some, cancel some, lease some, ack some."""
    waiting = [s for s, k in known.items() if k.state is MessageState.SCHEDULED]
    for sequence in draw(st.lists(st.sampled_from(waiting), max_size=5, unique=True)):
        known[sequence].due_ms = draw(st.integers(0, 40))
        known[sequence].group = draw(st.sampled_from(GROUPS))
        engine.apply(
            Move(
                now_ms,
                np.array([sequence]),
                np.array([known[sequence].due_ms]),
                groups=words((known[sequence].group,), [0]),
            )
        )
    gone = draw(st.lists(st.sampled_from(waiting), max_size=5, unique=True))
    engine.apply(Cancel(now_ms, np.array(gone, dtype=np.int64)))
    for sequence in gone:
        del known[sequence]
    lease = Lease(now_ms, position, now_ms, draw(st.integers(0, 5)), 50)
    leased = engine.apply(lease).leased
    if leased is None:
        return
    for sequence in leased.sequences.tolist():
        known[sequence].state, known[sequence].due_ms = MessageState.LEASED, 50
    if draw(st.booleans()):
        engine.apply(Ack(now_ms, position))
        for sequence in leased.sequences.tolist():
            del known[sequence]


filters = st.builds(
    TagFilter,
    st.sampled_from(((), ("x",), ("x", "y"))),
    st.sampled_from(((), ("y",), ("x", "y"))),
    st.sampled_from(((), ("x",), ("z",))),
)
states = st.sampled_from(
    (
        (MessageState.SCHEDULED,),
        (MessageState.LEASED,),
        (MessageState.SCHEDULED, MessageState.LEASED),
    )
)
selections = st.builds(
    Selection,
    states,
    st.integers(0, 30),
    st.integers(10, 60),
    st.none() | st.sampled_from(("", "a", "never")),
    st.none() | filters,
    st.integers(0, 2),
    st.sampled_from((1, 2, 65_535)),
)


def is_selected(wanted: Selection, message: Known) -> bool:
    tags = wanted.tags or TagFilter()
    return (
        message.state in wanted.states
        and wanted.due_from_ms <= message.due_ms < wanted.due_to_ms
        and wanted.group in (None, message.group)
        and (not tags.any_of or bool(message.tags & set(tags.any_of)))
        and message.tags >= set(tags.all_of)
        and not message.tags & set(tags.none_of)
        and wanted.priority_from <= message.priority <= wanted.priority_to
    )


@given(histories(), selections, st.integers(1, 9), st.integers(1, 20))
def test_a_walk_finds_what_a_look_through_a_list_finds(
    history: tuple[Engine, dict[int, Known]], wanted: Selection, limit: int, rows_max: int
) -> None:
    engine, known = history
    expected = [s for s in sorted(known) if is_selected(wanted, known[s])]
    found: list[int] = []
    first: int | None = 0
    end = engine.next_sequence
    while first is not None:
        page, first = engine.find(wanted, first=first, end=end, limit=limit, rows_max=rows_max)
        assert page.size <= limit
        found += page.tolist()
    assert found == expected
    every = np.arange(end + 1)
    assert np.flatnonzero(engine.selected(every, wanted)).tolist() == expected


@given(histories(), selections, st.integers(1, 9), st.integers(1, 20))
def test_pages_of_a_timeline_are_in_order_and_leave_nothing_out(
    history: tuple[Engine, dict[int, Known]], wanted: Selection, limit: int, rows_max: int
) -> None:
    engine, known = history
    if engine.rules.kind is not TopicKind.TIMELINE:
        return
    chosen = [s for s in known if is_selected(wanted, known[s])]
    expected = sorted(chosen, key=lambda s: (known[s].due_ms, s))
    found: list[int] = []
    after: tuple[int, int] | None = (-1, -1)
    while after is not None:
        page, after = engine.page(wanted, after=after, limit=limit, rows_max=rows_max)
        assert page.size <= limit
        found += page.tolist()
    assert found == expected


@given(histories(), selections, st.integers(1, 7), st.integers(1, 20))
def test_a_histogram_adds_up(
    history: tuple[Engine, dict[int, Known]], wanted: Selection, bucket_ms: int, rows_max: int
) -> None:
    engine, known = history
    bucket_count = max(1, -(-(wanted.due_to_ms - wanted.due_from_ms) // bucket_ms))
    expected = [0] * bucket_count
    for message in known.values():
        if is_selected(wanted, message):
            expected[(message.due_ms - wanted.due_from_ms) // bucket_ms] += 1
    counts = np.zeros(bucket_count, dtype=np.int64)
    first: int | None = 0
    while first is not None:
        part, first = engine.tally(
            wanted, first=first, rows_max=rows_max, bucket_ms=bucket_ms, bucket_count=bucket_count
        )
        counts += part
    assert counts.tolist() == expected


@given(histories(), st.integers(0, 20), st.integers(1, 30), st.integers(1, 9))
def test_the_index_alone_is_off_by_no_more_than_it_says(
    history: tuple[Engine, dict[int, Known]], due_from_ms: int, span_ms: int, bucket_ms: int
) -> None:
    engine, known = history
    if engine.rules.kind is not TopicKind.TIMELINE:
        return
    bucket_count = -(-span_ms // bucket_ms)
    due_to_ms = due_from_ms + span_ms
    expected = np.zeros(bucket_count, dtype=np.int64)
    for message in known.values():
        if message.state is MessageState.SCHEDULED and due_from_ms <= message.due_ms < due_to_ms:
            expected[(message.due_ms - due_from_ms) // bucket_ms] += 1
    counts, error_max = engine.tally_index(due_from_ms, due_to_ms, bucket_ms, bucket_count)
    assert (counts >= expected).all()
    assert int((counts - expected).sum()) <= error_max
    waiting = [k.due_ms for k in known.values() if k.state is MessageState.SCHEDULED]
    until_ms = due_to_ms
    assert engine.due_count(until_ms) == sum(due_ms <= until_ms for due_ms in waiting)


@pytest.mark.parametrize("layout", [TINY, STANDARD])
def test_a_walk_that_moves_what_it_finds_meets_each_message_once(layout: object) -> None:
    engine = Engine(0, layout)  # type: ignore[arg-type]
    engine.apply(Enqueue(0, 1, np.arange(100), ()))
    first: int | None = 0
    met: list[int] = []
    while first is not None:
        page, first = engine.find(Selection(), first=first, end=100, limit=7, rows_max=9)
        engine.apply(Move(0, page, engine.dues(page) + 50))
        engine.apply(Enqueue(0, 2, np.array([5]), ()))
        met += page.tolist()
    assert met == list(range(100))
    assert engine.dues(np.arange(100)).tolist() == list(range(50, 150))
