"""When entries fire, against a scan of every minute there is.

Covered: random expressions in zones whose clocks change, around the changes, every policy; plans.
Not covered: brokers (tests/rules/test_rule_17_cron.py).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dejaqueue.broker.cron.firings import (
    NEVER,
    due_ms,
    last_firing,
    next_firing,
    plan,
    wake_ms,
)
from dejaqueue.errors import BadRequest
from dejaqueue.schema.cron import CronEntry, Misfire, Overlap

MINUTE = 60_000
DAYS = 3
CHANGES = [  # zone, a day before its clocks change
    ("Europe/Berlin", "2026-03-28"),
    ("Europe/Berlin", "2026-10-24"),
    ("America/New_York", "2026-03-07"),
    ("America/New_York", "2026-10-31"),
    ("Australia/Lord_Howe", "2026-04-04"),
    ("Australia/Lord_Howe", "2026-10-03"),
    ("Asia/Kolkata", "2026-05-05"),
    ("Africa/Casablanca", "2026-03-21"),
    ("Pacific/Apia", "2011-12-29"),  # a whole day is left out
]


def lists(low: int, high: int) -> st.SearchStrategy[list[int]]:
    some = st.lists(st.integers(low, high), min_size=1, max_size=4, unique=True).map(sorted)
    return some | st.just(list(range(low, high + 1)))


def scan(
    zone: str, start: datetime, hours: list[int], minutes: list[int], misfire: Misfire
) -> list[int]:
    """Every firing of these hours and minutes, told minute by minute from what clocks show."""
    minute = timedelta(minutes=1)
    seen: set[datetime] = set()
    firings: list[int] = []
    shown = start.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    newest = shown - minute
    for n in range(DAYS * 24 * 60):
        instant = start + n * minute
        shown = instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)
        left_out, local = 0, newest + minute
        while local < shown:
            left_out += local.hour in hours and local.minute in minutes
            local += minute
        fits = shown not in seen and shown.hour in hours and shown.minute in minutes
        count = {
            Misfire.SKIP: fits,
            Misfire.ONCE: fits or left_out > 0,
            Misfire.ALL: fits + left_out,
        }
        firings += [int(instant.timestamp()) * 1_000] * int(count[misfire])
        seen.add(shown)
        newest = max(newest, shown)
    return firings


@settings(deadline=None, max_examples=30)
@given(
    change=st.sampled_from(CHANGES),
    hours=lists(0, 23),
    minutes=lists(0, 59),
    misfire=st.sampled_from(Misfire),
)
def test_firings_are_those_of_a_scan_of_every_minute(
    change: tuple[str, str], hours: list[int], minutes: list[int], misfire: Misfire
) -> None:
    zone, day = change
    # Midday before: nothing local of it was shown already.
    start = datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    expression = f"{','.join(map(str, minutes))} {','.join(map(str, hours))} * * *"
    entry = CronEntry("e", cron=expression, zone=zone, misfire=misfire)
    expected = scan(zone, start, hours, minutes, misfire)
    end_ms = int(start.timestamp()) * 1_000 + DAYS * 24 * 60 * MINUTE
    found: list[int] = []
    firing_ms = int(start.timestamp()) * 1_000 - 1
    while True:
        firing_ms = next_firing(entry, firing_ms)
        if not NEVER < firing_ms < end_ms:
            break
        found += plan(entry, firing_ms, firing_ms, is_live=False).firings
    assert found == expected
    instants = sorted(set(expected))
    for place, instant in enumerate(instants[1:], 1):
        assert last_firing(entry, instant) == instant
        assert last_firing(entry, instant - 1) == instants[place - 1]


@given(
    every=st.integers(1_000, 10**7),
    start=st.integers(0, 10**12),
    after=st.integers(0, 2 * 10**12),
)
def test_an_interval_is_counted_from_its_start(every: int, start: int, after: int) -> None:
    entry = CronEntry("e", every_ms=every, start_ms=start)
    firing_ms = next_firing(entry, after)
    assert firing_ms >= start
    assert firing_ms > after
    assert (firing_ms - start) % every == 0
    assert firing_ms - every <= max(after, start)
    assert last_firing(entry, firing_ms) == firing_ms
    assert last_firing(entry, firing_ms - 1) == (firing_ms - every if firing_ms > start else NEVER)


def test_an_end_is_an_end() -> None:
    entry = CronEntry("e", cron="* * * * *", start_ms=3 * MINUTE, end_ms=5 * MINUTE)
    assert next_firing(entry, 0) == 3 * MINUTE
    assert next_firing(entry, 4 * MINUTE) == NEVER
    assert last_firing(entry, 99 * MINUTE) == 4 * MINUTE
    assert last_firing(entry, 2 * MINUTE) == NEVER


def test_what_never_fires() -> None:
    past_ms = next_firing(CronEntry("e", cron="* * * * *"), 253_402_300_740_000)
    assert past_ms == NEVER
    with pytest.raises(BadRequest, match=r"entry\.cron"):
        next_firing(CronEntry("e", cron="nonsense"), 0)
    with pytest.raises(BadRequest, match=r"entry\.zone"):
        next_firing(CronEntry("e", cron="* * * * *", zone="Nowhere"), 0)


def test_a_firing_is_seen_to_ahead__but_at_its_time_where_it_waits_for_the_one_before() -> None:
    entry = CronEntry("e", every_ms=5_000)
    assert wake_ms(entry, 100_000) == 99_500
    patient = CronEntry("e", every_ms=5_000, overlap=Overlap.SKIP)
    assert wake_ms(patient, 100_000) == 100_000
    assert wake_ms(entry, NEVER) == NEVER


def test_jitter_is_within_its_bounds_and_always_the_same() -> None:
    entry = CronEntry("e", every_ms=5_000, jitter_ms=700)
    delays = [due_ms(entry, firing) - firing for firing in range(0, 500_000, 5_000)]
    assert delays == [due_ms(entry, firing) - firing for firing in range(0, 500_000, 5_000)]
    assert all(0 <= delay <= 700 for delay in delays)
    assert len(set(delays)) > 50


@pytest.mark.parametrize("late_ms", [0, 4_000, 6_000])
def test_a_little_late_is_not_missed(late_ms: int) -> None:
    entry = CronEntry("e", every_ms=60_000, misfire=Misfire.SKIP)
    planned = plan(entry, 600_000, 600_000 + late_ms, is_live=False)
    assert planned.firings == ((600_000,) if late_ms <= 5_000 else ())
    assert planned.next_ms == 660_000
