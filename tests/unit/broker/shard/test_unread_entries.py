"""What partitions have in no snapshot. What becomes of it: test_maintenance.py."""

from __future__ import annotations

from dejaqueue.broker.shard.unread_entries import (
    ENTRIES_MIN,
    NOTED_ENTRIES,
    ROWS_PER_ENTRY,
    UnreadEntries,
    UnreadShare,
)


def test_the_sum_follows_in_steps__and_what_is_served_no_more_is_not_in_it() -> None:
    unread = UnreadEntries()
    first, second = UnreadShare(unread), UnreadShare(unread)
    first.note(NOTED_ENTRIES - 1)
    assert unread.count == 0
    first.note(NOTED_ENTRIES)
    second.note(3_000)
    assert unread.count == NOTED_ENTRIES + 3_000
    second.note(10)
    assert unread.count == NOTED_ENTRIES + 10
    first.end()
    first.end()
    assert unread.count == 10


def test_who_has_few_or_much_to_write_leaves_it_to_others() -> None:
    unread = UnreadEntries()
    UnreadShare(unread).note(9_999)
    share = UnreadShare(unread)
    assert not share.is_too_much(2_000, 0, 10_000)
    share.note(2_000)
    assert share.is_too_much(2_000, 0, 10_000)
    assert not share.is_too_much(ENTRIES_MIN - 1, 0, 10_000)
    assert not share.is_too_much(2_000, 2_001 * ROWS_PER_ENTRY, 10_000)


def test_what_is_too_much_by_itself_does_not_wait_for_others() -> None:
    assert UnreadShare(UnreadEntries()).is_too_much(10, 10**9, 10)
