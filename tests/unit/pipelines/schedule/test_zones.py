"""Local times: against Python's own arithmetic, through gaps and repeated hours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.pipelines.schedule.zones import DAY_MS, load_zone

HOUR_MS = 3_600_000
NAMES = [
    "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe",
    "Africa/Casablanca", "Pacific/Apia", "America/Santiago", "Pacific/Kiritimati",
]  # fmt: skip


def local(text: str) -> int:
    """A local time in milliseconds of its own clock."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


@pytest.mark.parametrize("name", NAMES)
def test_a_year_of_half_hours_is_as_python_has_it(name: str) -> None:
    first = datetime(2027, 1, 1)
    moments = [first + timedelta(minutes=30 * step) for step in range(48 * 365)]
    local_ms = np.array([local(moment.isoformat()) for moment in moments], dtype=np.int64)
    zone = load_zone(name, int(local_ms[0]), int(local_ms[-1]))
    # fold=0: the first of two, and the offset before a gap.
    known = ZoneInfo(name)
    expected = [round(moment.replace(tzinfo=known).timestamp()) * 1_000 for moment in moments]
    assert zone.to_utc_ms(local_ms).tolist() == expected


@pytest.mark.parametrize("name", NAMES)
def test_the_clock_on_the_wall_is_as_python_has_it(name: str) -> None:
    start_ms = local("2027-01-01")
    utc_ms = start_ms + np.arange(24 * 365, dtype=np.int64) * HOUR_MS
    zone = load_zone(name, start_ms, int(utc_ms[-1]))
    moments = [
        datetime.fromtimestamp(ms / 1_000, tz=UTC).astimezone(ZoneInfo(name))
        for ms in utc_ms.tolist()
    ]
    shown = [local(moment.replace(tzinfo=None).isoformat()) for moment in moments]
    assert zone.to_local_ms(utc_ms).tolist() == shown


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        # 2027-03-28: at 02:00 it is 03:00 in Berlin.
        ("2027-03-28T01:59:59", "2027-03-28T00:59:59"),
        ("2027-03-28T02:00:00", "2027-03-28T01:00:00"),
        ("2027-03-28T02:30:00", "2027-03-28T01:30:00"),
        ("2027-03-28T03:00:00", "2027-03-28T01:00:00"),
        # 2027-10-31: at 03:00 it is 02:00 again.
        ("2027-10-31T01:59:59", "2027-10-30T23:59:59"),
        ("2027-10-31T02:30:00", "2027-10-31T00:30:00"),
        ("2027-10-31T03:00:00", "2027-10-31T02:00:00"),
    ],
)
def test_what_does_not_exist_is_an_hour_later_and_what_exists_twice_is_the_first(
    text: str, utc: str
) -> None:
    local_ms = np.array([local(text)], dtype=np.int64)
    zone = load_zone("Europe/Berlin", int(local_ms[0]), int(local_ms[0]))
    assert zone.to_utc_ms(local_ms).tolist() == [local(utc)]


def test_zones_with_the_same_clock_have_the_same_rules() -> None:
    stretch = local("2027-01-01"), local("2027-12-31")
    berlin, paris = load_zone("Europe/Berlin", *stretch), load_zone("Europe/Paris", *stretch)
    assert berlin.rules == paris.rules
    assert berlin.rules != load_zone("Africa/Lagos", *stretch).rules


@pytest.mark.parametrize("name", ["Europe/Atlantis", "", "../etc/passwd", "Europe", "a" * 300])
def test_a_zone_that_there_is_not_is_a_key_error(name: str) -> None:
    with pytest.raises(KeyError):
        load_zone(name, 0, DAY_MS)


def test_a_stretch_of_a_century_is_a_mistake() -> None:
    with pytest.raises(BadRequest, match="twenty years"):
        load_zone("UTC", 0, 100 * 366 * DAY_MS)
