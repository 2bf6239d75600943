"""Changes of a stretch: confirmed before they begin. What they do: test_future.py."""

from __future__ import annotations

import pytest

from dejaqueue.console.api import ApiError
from dejaqueue.console.changes import TYPED_FROM, check_confirmed, where_of


@pytest.mark.parametrize(
    ("count", "shown", "typed"),
    [(5, 5, ""), (15, 5, ""), (0, 5, ""), (TYPED_FROM, TYPED_FROM, ""), (5_000, 5_000, "5,000")],
)
def test_what_was_seen_and_typed_may_be_done(count: int, shown: int, typed: str) -> None:
    check_confirmed(count, shown, typed)
    assert where_of({}) == {}
    for due in ("--5", "9" * 5_000):  # what it means the broker says
        assert where_of({"due_from": due}) == {"due_from": due}
    assert where_of({"due_from": "-5"}) == {"due_from": -5}


@pytest.mark.parametrize(
    ("count", "shown", "typed", "status"),
    [(16, 5, "", 409), (TYPED_FROM + 1, TYPED_FROM + 1, "", 400), (5_000, 5_000, "500", 400),
     (6_000, 5_000, "5000", 409)],
)  # fmt: skip
def test_what_was_not_is_refused(count: int, shown: int, typed: str, status: int) -> None:
    with pytest.raises(ApiError) as raised:
        check_confirmed(count, shown, typed)
    assert raised.value.status == status
