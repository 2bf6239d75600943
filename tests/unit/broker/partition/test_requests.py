"""What requests weigh, and what they are told when they are not done."""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.broker.partition.requests import (
    LookRequest,
    RenameRequest,
    SettleRequest,
    refusal_of,
    turn_away,
)
from dejaqueue.broker.replies import no_reply
from dejaqueue.errors import BadRequest, InternalError, ResourceExhausted, Unavailable
from dejaqueue.wire.frames import Reply, SettleOp
from tests.unit.broker.cores import Served, sequences


def test_a_request_weighs_what_it_holds() -> None:
    served = Served()
    assert served.request([b"x" * 100]).byte_count == 100 + 64
    assert RenameRequest(1, 3, "all", no_reply, sequences(1, 2, 3)).byte_count == 3 * 64
    rows = SettleRequest(SettleOp.ACK, 1, no_reply, sequences=sequences(1, 2, 3))
    assert rows.byte_count == 3 * 16
    leases = SettleRequest(SettleOp.EXTEND, 1, no_reply, lease_ids=sequences(1, 2))
    assert leases.byte_count > SettleRequest(SettleOp.ACK, 1, no_reply, 7).byte_count


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (BadRequest("x", "a y", 1), BadRequest),
        (MemoryError(), ResourceExhausted),
        (KeyError("slab"), InternalError),
    ],
)
def test_what_was_raised_is_told_as_an_error_of_ours(wrong: Exception, told: type) -> None:
    try:
        raise wrong
    except Exception as raised:  # noqa: BLE001 - whatever it is
        error = refusal_of(raised)
    assert isinstance(error, told)
    assert error.__traceback__ is None  # its frames would hold the request


def test_who_is_turned_away_is_answered__a_look_asks_for_itself() -> None:
    answers: list[Reply] = []
    looks: list[object] = []
    core: Any = object()
    error = Unavailable("closed")
    turn_away(RenameRequest(7, 1, "all", answers.append), core, error)
    turn_away(LookRequest(looks.append), core, error)
    assert [(answer.number, answer.error) for answer in answers] == [(7, error)]
    assert looks == [core]
