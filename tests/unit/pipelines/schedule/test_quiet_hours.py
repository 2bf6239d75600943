"""Quiet hours: never within, never too early, across midnight and changes of the clock."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from dejaqueue.errors import BadRequest
from dejaqueue.pipelines.schedule.quiet_hours import QuietHours, parse_clock_ms
from dejaqueue.pipelines.schedule.zones import DAY_MS, Zone, load_zone

MINUTE_MS = 60_000
FIRST_MS = int(datetime(2027, 1, 1, tzinfo=UTC).timestamp() * 1_000)
YEAR_MS = 365 * DAY_MS
NAMES = ["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Africa/Casablanca"]


def zone(name: str) -> Zone:
    return load_zone(name, FIRST_MS, FIRST_MS + 2 * YEAR_MS)


def is_quiet(quiet: QuietHours, place: Zone, utc_ms: int) -> bool:
    """By the clock on the wall, said in the plainest way."""
    clock = int(place.to_local_ms(np.array([utc_ms]))[0]) % DAY_MS
    if quiet.first_ms < quiet.last_ms:
        return quiet.first_ms <= clock < quiet.last_ms
    return clock >= quiet.first_ms or clock < quiet.last_ms


def utc(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


@pytest.mark.parametrize("text", ["21:00", "21-8", "25:00-08:00", "08:00-08:00", "21:00–08:00", ""])
def test_what_are_no_quiet_hours_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="got"):
        QuietHours.parse(text)


def test_a_time_of_day_is_milliseconds_since_midnight() -> None:
    assert parse_clock_ms("00:00") == 0
    assert parse_clock_ms("23:59:59") == DAY_MS - 1_000
    with pytest.raises(ValueError, match="09:00"):
        parse_clock_ms("24:00")


def test_evening_and_morning_wait_for_the_end_of_the_night() -> None:
    quiet, place = QuietHours.parse("21:00-08:00"), zone("Europe/Berlin")
    wanted = [utc(f"2027-01-10T{clock}") for clock in ("19:59", "20:00", "23:30")]
    wanted += [utc("2027-01-11T06:59"), utc("2027-01-11T07:00")]
    found = quiet.release_ms(place, np.array(wanted, dtype=np.int64))
    assert found.tolist() == [utc("2027-01-10T19:59"), *[utc("2027-01-11T07:00")] * 4]


clocks = some.integers(0, 24 * 60 - 1).map(lambda minute: minute * MINUTE_MS)


@given(clocks, clocks, some.sampled_from(NAMES), some.integers(0, YEAR_MS // MINUTE_MS))
def test_a_release_is_not_quiet_not_early_and_not_a_day_late(
    first_ms: int, last_ms: int, name: str, minute: int
) -> None:
    if first_ms == last_ms:
        return
    quiet, place, utc_ms = QuietHours(first_ms, last_ms), zone(name), FIRST_MS + minute * MINUTE_MS
    found = int(quiet.release_ms(place, np.array([utc_ms], dtype=np.int64))[0])
    assert found >= utc_ms
    assert found - utc_ms <= DAY_MS + 3_600_000
    if not is_quiet(quiet, place, utc_ms):
        assert found == utc_ms
    assert not is_quiet(quiet, place, found)


@given(clocks, clocks, some.sampled_from(NAMES), some.integers(0, YEAR_MS // MINUTE_MS))
def test_windows_are_all_that_is_not_quiet_and_nothing_else(
    first_ms: int, last_ms: int, name: str, minute: int
) -> None:
    if first_ms == last_ms:
        return
    quiet, place, at_ms = QuietHours(first_ms, last_ms), zone(name), FIRST_MS + minute * MINUTE_MS
    before = -1
    for first, last in islice(quiet.windows(place, at_ms, at_ms + YEAR_MS), 4):
        assert at_ms <= first < last
        assert first > before
        minutes = range(first, last, 7 * MINUTE_MS)
        assert not any(is_quiet(quiet, place, minute) for minute in [*minutes, last - 1])
        assert is_quiet(quiet, place, last)
        before = last


def test_an_hour_that_comes_twice_is_quiet_twice() -> None:
    # Berlin, 2027-10-31: 02:00 to 03:00 at UTC 00:00 and again at 01:00.
    quiet, place = QuietHours.parse("21:00-02:30"), zone("Europe/Berlin")
    windows = list(islice(quiet.windows(place, utc("2027-10-30T22:00"), utc("2028-01-01")), 2))
    assert windows == [
        (utc("2027-10-31T00:30"), utc("2027-10-31T01:00")),
        (utc("2027-10-31T01:30"), utc("2027-10-31T20:00")),
    ]


def test_a_campaign_without_end_is_refused() -> None:
    quiet = QuietHours.parse("21:00-08:00")
    with pytest.raises(BadRequest, match="within a year"):
        list(quiet.windows(zone("UTC"), FIRST_MS, FIRST_MS + 3 * DAY_MS))
