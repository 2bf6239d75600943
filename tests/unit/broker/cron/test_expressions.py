"""Cron expressions over local times."""

from __future__ import annotations

from datetime import datetime

import pytest

from dejaqueue.broker.cron.expressions import NICKNAMES, Expression, parse
from dejaqueue.errors import BadRequest

CASES = [
    ("0 9 * * MON-FRI", "2026-01-02T09:00", "2026-01-05T09:00"),
    ("*/15 * * * *", "2026-01-02T09:00:01", "2026-01-02T09:15"),
    ("30 */2 * * * *", "2026-01-02T09:00:30", "2026-01-02T09:02:30"),
    ("0 0 29 2 *", "2026-01-01T00:00", "2028-02-29T00:00"),
    ("0 12 L * *", "2026-02-01T00:00", "2026-02-28T12:00"),
    ("0 12 * * FRI#2", "2026-02-01T00:00", "2026-02-13T12:00"),
]


@pytest.mark.parametrize(("text", "after", "expected"), CASES)
def test_the_next_time_and_back(text: str, after: str, expected: str) -> None:
    expression = Expression(text)
    found = expression.next_after(datetime.fromisoformat(after))
    assert found == datetime.fromisoformat(expected)
    assert expression.last_until(found) == found


def test_the_last_time_includes_its_own() -> None:
    daily = parse("0 9 * * *")
    assert daily.last_until(datetime(2026, 1, 2, 9)) == datetime(2026, 1, 2, 9)
    assert daily.last_until(datetime(2026, 1, 2, 8, 59, 59)) == datetime(2026, 1, 1, 9)


def test_a_time_that_never_comes() -> None:
    assert parse("* * * * *").next_after(datetime(9999, 12, 31, 23, 59)) is None


@pytest.mark.parametrize(
    "text", ["", "* * * *", "60 * * * *", "x * * * *", "0 0 30 2 *", "* * * * * * *"]
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="5 or 6 fields"):
        Expression(text)


@pytest.mark.parametrize("nickname", NICKNAMES)
def test_nicknames_mean_what_they_stand_for(nickname: str) -> None:
    since = datetime(2026, 3, 28, 12, 30)
    meant = Expression(NICKNAMES[nickname]).next_after(since)
    assert Expression(f" {nickname.upper()} ").next_after(since) == meant


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("*/61 * * * *", "steps of minutes up to 59"),
        ("0/60 * * * *", "steps of minutes up to 59"),
        ("0 */24 * * *", "steps of hours up to 23"),
        ("*/99 0 * * * *", "steps of seconds up to 59"),
        ("0 0 1,*/31 * *", "steps of days up to 30"),
        ("0 0 * * */7", "steps of days up to 6"),
        ("@reboot", "or one of @yearly"),
        ("0 0 15W * *", "L and LW for days of a month"),
        ("0 0 L-3 * *", "L and LW for days of a month"),
    ],
)
def test_what_is_not_understood_says_what_is(text: str, limit: str) -> None:
    with pytest.raises(BadRequest) as refused:
        Expression(text)
    assert limit in str(refused.value)


def test_days_of_month_and_week_are_both_needed_only_beside_a_star() -> None:
    since = datetime(2026, 6, 1)
    both = Expression("0 0 */2 * MON").next_after(since)
    assert both == datetime(2026, 6, 15), "a Monday that falls on an odd day"
    assert Expression("0 0 2 * MON").next_after(since) == datetime(2026, 6, 2)
