"""Who may stage how many transactions, and what siblings have. Transactions: tests/rules."""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue import limits
from dejaqueue.broker.partition.staged import (
    StageHolders,
    StageOf,
    sibling_sequences,
    stage_refusal,
)
from dejaqueue.engine.commands import Decide, Stage
from dejaqueue.errors import Refused, ResourceExhausted
from tests.unit.broker.cores import Served

FAMILY = "0123456789abcdef" * 2


@pytest.fixture
def served() -> Served:
    return Served()


def name(number: int, branch: str = "") -> str:
    return f"t/{number}/1-2-{FAMILY}" + (f"~{branch}" if branch else "")


def stage(served: Served, text: str, account: Any = None) -> StageOf:
    return StageOf(text, served.core.now_ms() + 60_000, account)


def begin(served: Served, text: str, **more: Any) -> None:
    """Something is staged under this name."""
    staged = stage(served, text)
    served.send([b"a"], stage=Stage(staged.transaction, staged.until_ms), **more)


def test_nothing_is_staged_once_its_time_is_over(served: Served) -> None:
    holders = StageHolders()
    now_ms = served.core.now_ms()
    assert stage_refusal(served.core, Stage(name(0), now_ms + 1), holders) is None
    assert isinstance(stage_refusal(served.core, Stage(name(0), now_ms), holders), Refused)


def test_open_transactions_are_bounded__those_that_are_open_go_on(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRANSACTIONS_OPEN_MAX", 1)
    holders = StageHolders()
    begin(served, name(0))
    assert stage_refusal(served.core, stage(served, name(0)), holders) is None
    refused = stage_refusal(served.core, stage(served, name(1)), holders)
    assert isinstance(refused, ResourceExhausted)
    assert "1 transactions are open" in str(refused)


class Holder:
    """An account with a quota of open transactions."""

    holder = "key-1"

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def limit(self, quota: str) -> int:
        return self._limit

    def refused(self, quota: str, limit: int, got: int) -> ResourceExhausted:
        return ResourceExhausted(f"{quota}: {limit}, got {got}", 1_000)


def test_a_principal_has_its_quota__and_what_was_decided_counts_no_more(served: Served) -> None:
    holders, holder = StageHolders(), Holder(2)
    for number in range(2):
        assert stage_refusal(served.core, stage(served, name(number), holder), holders) is None
        begin(served, name(number))
    third = stage(served, name(2), holder)
    assert isinstance(stage_refusal(served.core, third, holders), ResourceExhausted)
    served.core.apply(Decide(served.core.now_ms(), name(0), True))
    assert stage_refusal(served.core, third, holders) is None


def test_siblings_are_branches_of_the_same_task(served: Served) -> None:
    begin(served, name(0, "7.1"))
    begin(served, name(0, "8.1"))
    begin(served, name(1))
    again = Stage(name(0, "7.2"), served.core.now_ms() + 60_000)
    assert sibling_sequences(served.core, again).tolist() == [0]
    assert sibling_sequences(served.core, Stage(name(1), 5)).size == 0
    assert sibling_sequences(served.core, None).size == 0
