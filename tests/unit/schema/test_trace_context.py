"""A trace's context in headers: of one message, of a column; never in the way of a message."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.schema import packing
from dejaqueue.schema.messages import HEADERS
from dejaqueue.schema.trace_context import batch_with_context, same_headers, with_context

CONTEXT = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "tracestate": "a=b"}


def packed_bytes(headers: dict[str, str]) -> int:
    (packed,) = packing.pack_headers(pa.array([list(headers.items())], HEADERS)).to_pylist()
    return len(packed.encode())


def test_a_message_gets_the_context_beside_its_headers() -> None:
    assert with_context({"a": "b"}, CONTEXT) == {"a": "b"} | CONTEXT


def test_a_message_with_a_context_keeps_it() -> None:
    mine = {"traceparent": "mine"}
    assert with_context(mine, CONTEXT) == mine


@pytest.mark.parametrize("over", range(85))
def test_a_message_without_room_gets_what_fits(over: int) -> None:
    headers = {"é": "x" * (limits.HEADERS_BYTES_MAX - 3 - 85 + over)}
    carried = with_context(headers, CONTEXT)
    with_parent = headers | {"traceparent": CONTEXT["traceparent"]}
    fits = packed_bytes(with_parent) <= limits.HEADERS_BYTES_MAX
    all_fits = packed_bytes(headers | CONTEXT) <= limits.HEADERS_BYTES_MAX
    assert carried == (headers | CONTEXT if all_fits else with_parent if fits else headers)


def test_a_batch_without_headers_gets_a_column() -> None:
    batch = pa.record_batch({"payload": pa.array([b"a", b"b"])})
    assert batch_with_context(batch, CONTEXT)["headers"].to_pylist() == [list(CONTEXT.items())] * 2
    empty = batch.append_column("headers", pa.nulls(2, HEADERS))
    assert batch_with_context(empty, CONTEXT)["headers"].null_count == 0


def test_a_batch_with_headers_in_one_row_stays_as_it_is() -> None:
    headers = pa.array([None, [("a", "b")]], HEADERS)
    batch = pa.record_batch({"payload": pa.array([b"a", b"b"]), "headers": headers})
    assert batch_with_context(batch, CONTEXT).equals(batch)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_same_headers_are_a_column_of_maps(rows: int) -> None:
    assert same_headers(CONTEXT, rows).to_pylist() == [list(CONTEXT.items())] * rows
    assert same_headers({}, rows).to_pylist() == [[]] * rows
