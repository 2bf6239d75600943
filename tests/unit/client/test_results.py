"""Answers with a status per row."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.client.results import SendResult, Settled
from dejaqueue.errors import DuplicateKey, Refused
from dejaqueue.model import RowStatus


def statuses(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint8)


def test_all_ok() -> None:
    for answer in (Settled(statuses(0, 0)), SendResult(np.array([1, 2]), statuses(0, 0))):
        assert answer.ok
        assert len(answer) == 2
        answer.raise_for_status()


def test_settled_says_what_was_not() -> None:
    answer = Settled(statuses(0, 3, 3, 1))
    assert not answer.ok
    assert answer.ok_count == 1
    assert answer.counts() == {RowStatus.OK: 1, RowStatus.NOT_FOUND: 1, RowStatus.LEASE_LOST: 2}
    with pytest.raises(Refused, match="1 NOT_FOUND, 2 LEASE_LOST of 4 rows"):
        answer.raise_for_status()


def test_a_duplicate_carries_the_live_id() -> None:
    answer = SendResult(np.array([7, 8]), statuses(0, RowStatus.DUPLICATE))
    with pytest.raises(DuplicateKey) as caught:
        answer.raise_for_status()
    assert caught.value.id == 8
