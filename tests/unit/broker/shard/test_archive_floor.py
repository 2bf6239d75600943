"""Covers: how long entries stay in a journal for backups.

Not covered: that any instant is restored by it (tests/unit/backup/test_instants.py).
"""

from __future__ import annotations

from dejaqueue.broker.shard.archive_floor import KEEP_MS, ArchiveFloor


class Times:
    now_ms = 0
    is_wanted = True


def floor_of(times: Times) -> ArchiveFloor:
    return ArchiveFloor(lambda: times.is_wanted, lambda: times.now_ms)


def test_entries_stay_until_a_backup_has_them__none_where_none_are_taken() -> None:
    times = Times()
    floor = floor_of(times)
    assert floor.limit(30) == 0
    floor.reach(20)
    floor.reach(10)  # an older one was slow
    assert (floor.limit(30), floor.limit(5)) == (20, 5)
    times.is_wanted = False
    assert floor.limit(30) == 30
    assert not floor.give_up()


def test_they_stay_for_a_while_only__and_again_from_the_next_backup_on() -> None:
    times = Times()
    floor = floor_of(times)
    times.now_ms = KEEP_MS
    assert not floor.is_late()
    times.now_ms += 1
    assert floor.is_late()
    assert floor.give_up()
    assert not floor.give_up(), "it is told once"
    assert floor.limit(30) == 30
    floor.reach(20)
    assert (floor.limit(30), floor.is_late()) == (20, False)
