"""A partition's core: built in three lines, applies into its group, keeps its time."""

from __future__ import annotations

import pytest

from dejaqueue.broker.shard.commit import CommitPorts, Commits
from dejaqueue.broker.shard.committer import Committer
from dejaqueue.broker.shard.core import ENTRY_ROW_BYTES, PartitionCore
from dejaqueue.broker.shard.opening import JournalDoor, read_again
from dejaqueue.engine.commands import Cancel, Depart
from dejaqueue.errors import BadRequest
from dejaqueue.journal.interface import EntryKind
from dejaqueue.model import Topic
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.unit.broker.cores import Served, journals, sequences


def test_it_is_built_in_three_lines() -> None:
    core = PartitionCore(lambda: Topic("t"), 0, VirtualClock())
    opened = read_again(core, JournalDoor(journals()))
    ports = CommitPorts(core.clock, Committer("test"))
    core.serve(opened.views, opened.journal, Commits(opened.journal, opened.tail, 1, ports))
    assert (core.position, core.next_position()) == (1, 2)  # the first entry begins the epoch


def test_a_command_is_in_the_group_until_it_is_durable() -> None:
    core = Served().core
    core.apply(Cancel(core.now_ms(), sequences(7)))
    assert (core.position, core.next_position(), len(core.commits.group.entries)) == (1, 3, 1)
    core.commits.commit_all()
    assert (core.position, core.next_position(), core.commits.group.entries) == (2, 3, [])


def test_a_command_of_which_no_entry_can_be_made_changes_nothing() -> None:
    core = Served().core
    began = core.engine.applied_count
    with pytest.raises((BadRequest, UnicodeError)):
        core.apply(Depart(core.now_ms(), sequences(0), "\ud800"))
    assert core.engine.applied_count == began
    assert core.commits.group.entries == []


def test_its_time_never_runs_backwards__and_is_put_right_by_a_command() -> None:
    served = Served()
    core, clock = served.core, served.clock
    clock.advance(ms=1_000)
    core.apply(Cancel(core.now_ms(), sequences(7)))
    before_ms = core.now_ms()
    clock.jump(ms=-86_400_000)
    assert core.now_ms() == before_ms  # it is not believed yet
    for _ in range(40):
        clock.advance(ms=1_000)
    assert core.now_ms() >= before_ms
    core.keep_time()
    assert core.now_ms() == clock.utc_ms() < before_ms
    assert (core.time.set_count, core.time.set_by_ms // 86_400_000) == (1, 1)
    assert core.commits.group.entries[-1].kind is EntryKind.SET_TIME


def test_what_has_no_known_size_counts_with_the_mean() -> None:
    served = Served()
    served.send([b"12345", b"123"])
    assert served.core.mean_payload_bytes == 4
    live = served.core.live()
    assert (live.count, live.byte_count) == (2, 8)


def test_who_makes_room_is_told_that_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Served().core
    assert core.has_room(1_000, 1_000)
    assert not core.lacks_room
    asked: list[int] = []

    def has_room(byte_count: int) -> bool:
        asked.append(byte_count)
        return False

    monkeypatch.setattr(core.journal, "has_room", has_room)
    assert not core.has_room(2, 100)
    assert core.lacks_room
    assert asked == [100 + 2 * ENTRY_ROW_BYTES]
