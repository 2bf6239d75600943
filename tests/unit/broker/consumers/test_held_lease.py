"""Rows of a lease are let go, some of them or all."""

from __future__ import annotations

import pytest

from dejaqueue.broker.consumers.held_lease import HeldLease, LeaseKey, let_go


def held() -> dict[LeaseKey, HeldLease]:
    return {(3, 9): HeldLease(5, 1_000, 500), (3, 10): HeldLease(1, 1_000, 500)}


@pytest.mark.parametrize(("rows", "gone", "left"), [(2, 2, 3), (5, 5, 0), (-1, 5, 0)])
def test_rows_of_a_lease_are_let_go(rows: int, gone: int, left: int) -> None:
    leases = held()
    assert let_go(leases, (3, 9), rows) == gone
    assert leases.get((3, 9), HeldLease(0, 0, 0)).rows == left
    assert ((3, 9) in leases) == (left > 0)
    assert leases[3, 10].rows == 1


def test_a_lease_that_is_not_held_has_none() -> None:
    leases = held()
    assert let_go(leases, (2, 9), -1) == 0
    assert leases == held()
