"""Covers: the parts of the light client that open nothing: values, addresses, answers, leases.

Not covered: what both clients check in the same words (tests/clients/test_light_conformance.py).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dejaqueue_client import BadRequest, RowStatus, SendResult, Settled
from dejaqueue_client.broker_urls import broker_urls
from dejaqueue_client.filters import NAMES_BYTES_MAX, named_parts, selected
from dejaqueue_client.held import ACKED, Fate, Held
from dejaqueue_client.inputs import (
    BYTES_MAX,
    ROWS_MAX,
    due_ms_of,
    ids_of,
    nack_values,
    payload_in,
    payload_values,
    pieces_of,
    shift_ms_of,
)
from dejaqueue_client.problems import error_of
from dejaqueue_client.tls import key_headers

# --- values -------------------------------------------------------------------------------------


def test_a_due_time_is_rounded_up() -> None:
    instant = datetime(2030, 1, 1, microsecond=1_001, tzinfo=UTC)
    assert due_ms_of(instant) == int(datetime(2030, 1, 1, tzinfo=UTC).timestamp()) * 1_000 + 2
    assert shift_ms_of(timedelta(seconds=-1.5)) == -1_500


@pytest.mark.parametrize("payload", [b"", "grün".encode(), b"\xff\x00", bytes(range(256))])
def test_a_payload_travels_there_and_back(payload: bytes) -> None:
    values = json.loads(json.dumps(payload_values(payload)))
    assert payload_in(values) == payload


def test_a_payload_that_may_not_be_seen_is_none() -> None:
    assert payload_in({}) is None


def test_messages_travel_in_pieces_by_number_and_by_bytes() -> None:
    assert [len(piece) for piece in pieces_of(["x"] * (ROWS_MAX + 1))] == [ROWS_MAX, 1]
    large = "x" * (BYTES_MAX // 2)
    assert [len(piece) for piece in pieces_of([large, large, "y", large])] == [2, 2]
    assert list(pieces_of(iter(()))) == []


@pytest.mark.parametrize("wrong", ["abc", b"abc", {"payload": "x"}, 5])
def test_what_is_no_list_of_messages_is_refused(wrong: object) -> None:
    with pytest.raises(BadRequest, match="messages"):
        list(pieces_of(wrong))


@pytest.mark.parametrize("wrong", [[-1], ["1"], [True], [1 << 63], "12", 5])
def test_what_is_no_id_is_refused(wrong: object) -> None:
    with pytest.raises(BadRequest):
        ids_of(wrong)


def test_a_reason_is_cut_and_has_no_separators() -> None:
    values = nack_values(None, "a\x1eb" + "ü" * 1_000, False)
    assert values["reason"].startswith("a b")
    assert len(values["reason"].encode()) <= 1_024
    with pytest.raises(BadRequest, match="delay"):
        nack_values(5, "", True)


def test_many_names_travel_in_several_addresses() -> None:
    keys = ["schlüssel" * 20] * 100
    parts = list(named_parts("key", keys))
    assert sum(parts, []) == keys  # noqa: RUF017 - few
    assert len(parts) > 1
    assert list(named_parts("key", [])) == []
    assert NAMES_BYTES_MAX < 32 << 10


def test_a_filter_has_what_is_given() -> None:
    assert selected({"state": None, "tags_any": [], "due_from": 5}) == {"due_from": 5}


# --- addresses, keys ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    ["dejaq://a:7464", "a:7465", "ftp://a", "http://", "http://a:port", "http://u:p@a", 5,
     "http://a?x=1", "http://a,,b"],
)  # fmt: skip
def test_what_is_no_address_of_http_is_refused(wrong: Any) -> None:
    with pytest.raises(BadRequest, match="url") as refused:
        broker_urls(wrong)
    assert "u:p" not in str(refused.value)


def test_an_address_of_version_6() -> None:
    assert broker_urls("http://[::1]:80/") == ["http://[::1]:80"]


@pytest.mark.parametrize("wrong", ["a b", "", 5, "x" * 100_000])
def test_what_cannot_be_a_key_is_not_shown(wrong: Any) -> None:
    with pytest.raises(BadRequest, match=r"\*\*\*"):
        key_headers(wrong)


# --- answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "BadRequest"), (401, "Unauthenticated"), (403, "Forbidden"), (404, "BadRequest"),
     (409, "Refused"), (413, "BadRequest"), (429, "ResourceExhausted"), (500, "DejaQError"),
     (502, "Unavailable"), (503, "Unavailable"), (301, "DejaQError")],
)  # fmt: skip
def test_what_somebody_else_answers_has_the_class_of_whose_move_it_is(
    status: int, kind: str
) -> None:
    for content in (b"", b"<html>", b"[1]", b'{"title": "told", "number": "x"}'):
        error = error_of(status, content, "GET /v1/topics")
        assert type(error).__name__ == kind
        assert "GET /v1/topics" in str(error)


def test_what_a_broker_answers_is_what_it_was_there() -> None:
    problem = {"number": 23, "detail": "key: taken", "key": "k", "id": "7", "more": {"of": 1}}
    error = error_of(409, json.dumps(problem).encode(), "POST /")
    assert (type(error).__name__, str(error)) == ("DuplicateKey", "key: taken")
    assert (error.key, error.id) == ("k", 7)  # type: ignore[attr-defined]
    later = error_of(503, b'{"number": 9999, "detail": "new", "retry": true}', "POST /")
    assert str(later) == "new"


def test_results_are_counted() -> None:
    assert repr(SendResult([1, 2], [RowStatus.OK, RowStatus.KEPT])) == "SendResult(OK=1, KEPT=1)"
    assert SendResult([1], [RowStatus.KEPT]).ok
    settled = Settled([RowStatus.OK, RowStatus.NOT_FOUND])
    assert (settled.ok, settled.ok_count, len(settled)) == (False, 1, 2)
    assert settled.counts() == {RowStatus.OK: 1, RowStatus.NOT_FOUND: 1}


# --- what a consumer holds ----------------------------------------------------------------------


def rows(*ids: int) -> list[dict[str, Any]]:
    return [
        {"id": str(n), "attempt": 1, "due": 1_000, "lease_end_ms": 11_007, "payload": "x"}
        for n in ids
    ]


def held(lease_ms: int = 10_000) -> Held:
    found = Held()
    found.lease_ms = lease_ms
    return found


def test_a_message_is_handed_over_once_and_while_its_lease_lasts() -> None:
    mine = held()
    mine.add(rows(1, 2), 0.0)
    [first] = mine.take(1, 9.0)
    assert (first.id, first.late_us) == (1, 7_000)
    assert mine.take(5, 10.0) == []
    assert mine.open_count() == 1


def test_what_is_half_over_is_extended_with_what_soon_is() -> None:
    mine = held()
    mine.add(rows(1), 0.0)
    mine.add(rows(2), 1.0)
    mine.add(rows(3), 4.0)
    assert mine.next_extension_s() == 5.0
    assert mine.due_for_extension(4.9) == []
    due = mine.due_for_extension(5.0)
    assert [one.id for one in due] == [1, 2]
    mine.extended(due, [RowStatus.OK, RowStatus.LEASE_LOST], 5.0)
    assert mine.next_extension_s() == 9.0
    assert [one.id for one in mine.take(5, 6.0)] == [1, 3]


def test_acks_wait_by_what_becomes_of_them() -> None:
    mine = held()
    mine.add(rows(1, 2, 3), 0.0)
    one, two, three = mine.take(3, 0.0)
    late = Fate("nack", (("delay_ms", 5),))
    assert [mine.settle_soon(ACKED, one), mine.settle_soon(late, two)] == [1, 2]
    assert mine.settle_soon(ACKED, three) == 3
    assert mine.gathered() == {ACKED: [one, three], late: [two]}
    assert mine.gathered() == {}
    assert mine.next_extension_s() is None


def test_what_goes_back_is_held_no_more() -> None:
    mine = held()
    mine.add(rows(1, 2), 0.0)
    [first] = mine.take(1, 0.0)
    assert [one.id for one in mine.put_back(also_open=False)] == [2]
    assert mine.has(first)
    assert mine.put_back(also_open=True) == [first]
    assert mine.put_back(also_open=True) == []


def test_what_is_acked_already_has_no_lease_that_ends() -> None:
    mine = Held(is_acked=True)
    mine.lease_ms = 10
    mine.add(rows(1), 0.0)
    assert mine.next_extension_s() is None
    assert len(mine.take(1, 99.0)) == 1


def test_an_error_that_nobody_waited_for_is_raised_once() -> None:
    mine = held()
    mine.fail(BadRequest("a", "b", 1))
    mine.fail(BadRequest("c", "d", 2))
    with pytest.raises(BadRequest, match="a: b"):
        mine.raise_error()
    mine.raise_error()
