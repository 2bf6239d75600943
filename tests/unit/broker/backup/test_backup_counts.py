"""Covers: what is told of how backups went."""

from __future__ import annotations

from dejaqueue.broker.backup.backup_counts import LATE_MS_MIN, BackupCounts

TURN_MS = 60_000


def test_a_failure_is_told_until_one_is_done() -> None:
    counts = BackupCounts()
    assert counts.trouble(1_000, 0) == ""
    counts.fail()
    assert "the last backup failed" in counts.trouble(1_000, 0)
    counts.succeed(900, 77)
    assert counts.trouble(1_000, 0) == ""
    assert (counts.done, counts.failed, counts.new_bytes, counts.last_ms) == (1, 1, 77, 900)


def test_one_that_does_not_come_is_told__counted_from_the_last_or_the_start() -> None:
    counts, late_ms = BackupCounts(), 3 * TURN_MS + LATE_MS_MIN
    assert counts.trouble(1 << 40, TURN_MS) == "", "no schedule has begun"
    counts.expect(10_000, 0)
    assert counts.trouble(10_000 + late_ms, TURN_MS) == ""
    assert "no backup was done for 240 s" in counts.trouble(10_001 + late_ms, TURN_MS)
    counts.succeed(50_000, 0)
    assert counts.trouble(50_000 + late_ms, TURN_MS) == ""
    assert counts.trouble(50_001 + late_ms, TURN_MS) != ""
    assert counts.trouble(50_001 + late_ms, 0) == ""
    counts.expect(60_000, 20_000)  # an older one that the store knows of
    assert counts.last_ms == 50_000


def test_one_that_another_broker_took_counts() -> None:
    counts = BackupCounts()
    counts.expect(10_000, 0)
    counts.seen(500_000)
    counts.seen(400_000)
    assert (counts.last_ms, counts.done) == (500_000, 0)
    assert counts.trouble(510_000, TURN_MS) == ""
