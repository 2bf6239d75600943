"""A body that unpacks to more than it may is refused before it is unpacked."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue import limits
from dejaqueue.http.arrow_bounds import unpacked_bytes
from tests.unit.http.conftest import Api


def stream(batch: pa.RecordBatch, compression: str | None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def zeros(byte_count: int) -> pa.RecordBatch:
    return pa.record_batch({"payload": pa.array([bytes(byte_count)], pa.binary())})


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_it_is_known_before(compression: str | None) -> None:
    content = stream(zeros(1 << 20), compression)
    assert (len(content) < 10_000) == (compression is not None)
    assert (1 << 20) <= unpacked_bytes(content) < (1 << 20) + 1_000
    words = pa.array(["word" * 1_000] * 3).dictionary_encode()
    assert unpacked_bytes(stream(pa.record_batch({"w": words}), compression)) >= 4_000


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_bomb_is_refused__what_is_small_is_taken(api: Api, compression: str) -> None:
    headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
    path = "/v1/topics/t/messages"
    bomb = stream(zeros(limits.BODY_BYTES_MAX + 1), compression)
    assert len(bomb) < limits.BODY_BYTES_MAX // 100
    before = pa.total_allocated_bytes()
    answer = api.http.post(path, content=bomb, headers=headers)
    assert answer.status_code == 400
    assert "unpacked" in answer.text
    assert pa.total_allocated_bytes() - before < 1 << 20
    fine = api.http.post(path, content=stream(zeros(1_000), compression), headers=headers)
    assert fine.status_code == 201


@given(st.binary(max_size=300), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255))))
def test_garbage_is_a_value_error_and_nothing_else(
    content: bytes, changes: list[tuple[int, int]]
) -> None:
    spoiled = bytearray(stream(zeros(10), "zstd"))
    for at, value in changes:
        spoiled[at % len(spoiled)] = value
    for one in (content, bytes(spoiled)):
        with contextlib.suppress(ValueError, pa.ArrowException, OSError):
            assert unpacked_bytes(one) >= 0
