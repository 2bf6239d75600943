"""Rows that are no columns yet: refused as columns are, and the same once they are columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.model import Topic
from dejaqueue.schema.checks import check_send
from dejaqueue.schema.send_rows import SendRows, check_rows, joined_columns

NOW_MS = 1_700_000_000_000
TOPIC = Topic("t", max_payload_bytes=10, max_delay_ms=1_000)


@pytest.mark.parametrize(
    ("payloads", "dues_ms"),
    [
        ([], None),
        ([b"a", b"x" * 11], None),
        ([b"a"], [1]),
        ([b"a", b"b"], [NOW_MS, -1]),
        ([b"a"], [limits.INSTANT_MS_MAX + 1]),
        ([b"a", b"b"], [NOW_MS, NOW_MS + 1_001]),
    ],
)
def test_what_is_wrong_is_said_as_of_a_batch(
    payloads: list[bytes], dues_ms: list[int] | None
) -> None:
    columns = {"payload": pa.array(payloads, pa.binary())}
    if dues_ms is not None:
        columns["due"] = pa.array(dues_ms, pa.int64())
    with pytest.raises(BadRequest) as of_batch:
        check_send(pa.record_batch(columns), TOPIC, NOW_MS)
    with pytest.raises(BadRequest) as of_rows:
        check_rows(payloads, dues_ms, TOPIC, NOW_MS)
    assert str(of_rows.value) == str(of_batch.value)


def test_as_columns_they_are_those_of_a_batch() -> None:
    dues_ms = [0, NOW_MS, NOW_MS + 1_000]
    rows = check_rows([b"a", b"", b"ccc"], dues_ms, TOPIC, NOW_MS)
    batch = pa.record_batch({"payload": [b"a", b"", b"ccc"], "due": pa.array(dues_ms, pa.int64())})
    expected, found = check_send(batch, TOPIC, NOW_MS), rows.columns()
    assert found.payloads.equals(expected.payloads)
    assert found.dues_ms.tolist() == expected.dues_ms.tolist()
    assert (found.rows, found.payload_bytes) == (expected.rows, expected.payload_bytes) == (3, 4)
    assert rows.take(np.array([2])).payloads.to_pylist() == [b"ccc"]


def test_a_row_without_a_due_time_is_due_now() -> None:
    assert check_rows([b"a", b"b"], None, TOPIC, NOW_MS).dues_ms == [NOW_MS, NOW_MS]


def test_those_of_several_follow_each_other() -> None:
    found = joined_columns([SendRows([b"a"], [1], 1), SendRows([b"b", b"cc"], [2, 3], 3)])
    assert found.payloads.to_pylist() == [b"a", b"b", b"cc"]
    assert (found.dues_ms.tolist(), found.rows, found.payload_bytes) == ([1, 2, 3], 3, 4)
