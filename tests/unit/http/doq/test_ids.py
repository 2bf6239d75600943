"""Ids for producers: unique, ascending, never the broker's own."""

from __future__ import annotations

import pytest

from dejaqueue.errors import ResourceExhausted
from dejaqueue.http.doq.ids import FIRST, Ids
from dejaqueue.testing.virtual_clock import VirtualClock


def test_no_id_is_given_twice_and_none_is_the_brokers() -> None:
    clock = VirtualClock()
    ids, given = Ids(clock), []
    for step in range(20):
        given += [int(text) for text in ids.take(1_000)]
        clock.advance(ms=step)
    assert given == sorted(set(given))
    assert given[0] >= FIRST
    assert given[-1] < 1 << 63


def test_a_restart_gives_other_ids_unless_too_many_were_asked_for() -> None:
    clock = VirtualClock()
    before = Ids(clock)
    given = before.take(9_000)
    with pytest.raises(ResourceExhausted):
        before.take(9_000)
    clock.advance(ms=100)
    assert int(Ids(clock).take(1)[0]) > int(given[-1])
