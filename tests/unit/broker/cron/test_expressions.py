"""Cron expressions over local times."""

from __future__ import annotations

from datetime import datetime

import pytest

from dejaqueue.broker.cron.expressions import Expression, parse
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
