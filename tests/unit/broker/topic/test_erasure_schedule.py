"""Journals are pressed by the clock, four times within the time of the setting.

Not covered: that what is done is gone by then (tests/crash/test_erasure_bound.py,
tests/integration/test_erasure_bound_on_servers.py).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from dejaqueue.broker.topic.erasure_schedule import ErasureSchedule, check_bound
from dejaqueue.clock import Clock, Wake
from dejaqueue.errors import BadRequest, Unavailable
from dejaqueue.journal.interface import JournalStore
from dejaqueue.settings import JournalSettings


class Turns:
    """A clock that moves on when it is waited for, and a store that notes when it is pressed."""

    def __init__(self, turns: int) -> None:
        self.now, self.turns = 0, turns
        self.pressed: list[tuple[int, int]] = []
        self.schedule: ErasureSchedule | None = None

    def now_us(self) -> int:
        return self.now

    def wait_until(self, at_us: int, _wake: Wake) -> None:
        self.now = at_us
        self.turns -= 1
        if not self.turns:
            assert self.schedule is not None
            self.schedule.stop()

    def press_dead(self, now_ms: int, age_ms: int) -> None:
        self.pressed.append((now_ms, age_ms))
        if len(self.pressed) == 1:
            raise Unavailable("not now")


def test_it_presses_four_times_within_the_time__whatever_fails() -> None:
    turns = Turns(3)
    settings = JournalSettings(erase_ms_max=4_000)
    clock, store = cast("Clock", turns), cast("JournalStore", turns)
    turns.schedule = ErasureSchedule(settings, clock, store)
    turns.schedule.run()
    assert turns.pressed == [(0, 2_000), (1_000, 2_000), (2_000, 2_000)]


def test_a_bound_is_refused_by_its_name__where_journals_cannot_keep_it() -> None:
    store = cast("JournalStore", SimpleNamespace(erases=False))
    check_bound(JournalSettings(), store)
    with pytest.raises(BadRequest, match="journal.erase_ms_max: 0 where .*, got: 4000"):
        check_bound(JournalSettings(erase_ms_max=4_000), store)
    check_bound(
        JournalSettings(erase_ms_max=4_000),
        cast("JournalStore", SimpleNamespace(erases=True)),
    )
