"""Batches that are tried together are told apart by halving. What they do: tests/rules."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dejaqueue.broker.partition import enqueueing
from dejaqueue.broker.partition.inbox import Inbox
from dejaqueue.broker.partition.requests import EnqueueRequest


@pytest.mark.parametrize(("count", "bad"), [(1, {0}), (2, {1}), (64, {3, 60}), (7, set())])
def test_only_bad_batches_are_refused(count: int, bad: set[int]) -> None:
    brought: list[int] = []
    refused: list[int] = []

    def guarded(requests: list[int], _handle: Callable[[], None]) -> bool:
        if not bad & set(requests):
            brought.extend(requests)
        elif len(requests) > 1:
            return False
        else:
            refused.extend(requests)
        return True

    core: Any = None
    inbox = cast(Inbox, SimpleNamespace(guarded=guarded))
    batches: Any = list(range(count))
    enqueueing._bring_in(core, inbox, core, cast(list[EnqueueRequest], batches))
    assert set(refused) == bad
    assert brought == [number for number in range(count) if number not in bad]
