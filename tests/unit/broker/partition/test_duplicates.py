"""Which rows become messages when keys are taken. The whole way is in tests/rules."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.broker.partition.duplicates import Resolution, resolve
from dejaqueue.model import OnDuplicate, RowStatus

OK, DUPLICATE, KEPT = int(RowStatus.OK), int(RowStatus.DUPLICATE), int(RowStatus.KEPT)
REJECT, KEEP, REPLACE = OnDuplicate.REJECT, OnDuplicate.KEEP, OnDuplicate.REPLACE
# Rows:  a (live as 7), b, a, c (live as 9, leased), b, no key
LIVE = np.array([7, -1, 7, 9, -1, -1])
FIRSTS = np.array([-1, -1, 0, -1, 1, -1])
LEASED = np.array([False, False, False, True, False, False])


def resolved(on_duplicate: OnDuplicate) -> Resolution:
    found = resolve(on_duplicate, LIVE, FIRSTS, 100, LEASED)
    assert found is not None
    return found


@pytest.mark.parametrize(("on_duplicate", "refusal"), [(REJECT, DUPLICATE), (KEEP, KEPT)])
def test_the_live_message_and_the_first_of_the_batch_stay(
    on_duplicate: OnDuplicate, refusal: int
) -> None:
    found = resolved(on_duplicate)
    assert found.taken.tolist() == [1, 5]
    assert found.statuses.tolist() == [refusal, OK, refusal, refusal, refusal, OK]
    refused = found.statuses != OK
    assert found.sequences[refused].tolist() == [7, 7, 9, 100]
    assert found.replaced.size == 0


def test_the_last_of_the_batch_replaces_what_is_not_leased() -> None:
    found = resolved(REPLACE)
    assert found.taken.tolist() == [2, 4, 5]
    assert found.statuses.tolist() == [KEPT, KEPT, OK, DUPLICATE, OK, OK]
    refused = found.statuses != OK
    assert found.sequences[refused].tolist() == [100, 101, 9]
    assert found.replaced.tolist() == [7]


@pytest.mark.parametrize("on_duplicate", OnDuplicate)
def test_nothing_to_resolve(on_duplicate: OnDuplicate) -> None:
    free = np.full(3, -1)
    assert resolve(on_duplicate, free, free, 5, np.zeros(3, dtype=np.bool_)) is None


@pytest.mark.parametrize("on_duplicate", OnDuplicate)
def test_what_another_sender_has_is_neither_named_nor_replaced(on_duplicate: OnDuplicate) -> None:
    foreign = LIVE == 7
    found = resolve(on_duplicate, LIVE, FIRSTS, 100, LEASED, foreign)
    assert found is not None
    assert found.statuses[foreign].tolist() == [DUPLICATE, DUPLICATE]
    assert found.sequences[foreign].tolist() == [-1, -1]
    assert 7 not in found.replaced.tolist()
    assert found.sequences[3] == 9  # its own is named
