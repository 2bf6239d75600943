"""Local times and instants around changes of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dejaqueue.broker.cron.zones import Zone, zone_of
from dejaqueue.errors import BadRequest


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000


def test_a_local_time_that_is_left_out_stands_at_the_end_of_the_gap() -> None:
    berlin = Zone("Europe/Berlin")
    assert berlin.instant(datetime(2026, 3, 29, 1, 59, 59)) == (ms("2026-03-29T00:59:59"), False)
    for minute in (0, 30, 59):
        assert berlin.instant(datetime(2026, 3, 29, 2, minute)) == (ms("2026-03-29T01:00"), True)
    assert berlin.instant(datetime(2026, 3, 29, 3)) == (ms("2026-03-29T01:00"), False)


def test_a_local_time_that_comes_twice_stands_at_its_first_coming() -> None:
    howe = Zone("Australia/Lord_Howe")
    assert howe.instant(datetime(2026, 4, 5, 1, 30)) == (ms("2026-04-04T14:30"), False)
    assert howe.instant(datetime(2026, 4, 5, 1, 59, 59)) == (ms("2026-04-04T14:59:59"), False)
    assert howe.instant(datetime(2026, 4, 5, 2)) == (ms("2026-04-04T15:30"), False)


def test_while_an_hour_is_repeated_all_of_it_has_been() -> None:
    new_york = Zone("America/New_York")
    first, second = ms("2026-11-01T05:30"), ms("2026-11-01T06:30")
    assert new_york.latest_local(first) == datetime(2026, 11, 1, 1, 30)
    assert new_york.latest_local(second) == datetime(2026, 11, 1, 1, 59, 59)
    assert new_york.latest_local(ms("2026-11-01T07:00")) == datetime(2026, 11, 1, 2)


@pytest.mark.parametrize("name", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
def test_instants_never_fall_as_local_times_rise(name: str) -> None:
    zone = zone_of(name)
    for month in range(1, 13):
        start = datetime(2026, month, 1)
        locals_ = [start + timedelta(minutes=10 * n) for n in range(31 * 144)]
        instants = [zone.instant(local)[0] for local in locals_]
        assert instants == sorted(instants)


@pytest.mark.parametrize("name", ["", "Mars/Base", "/etc/passwd", "../x", "Europe", "a\0b"])
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(BadRequest, match=r"entry\.zone"):
        Zone(name)
