"""Checked columns of batches from outside. Refusals by rule are in tests/rules/test_rule_15."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.model import Topic
from dejaqueue.schema.checks import check_named, check_schema, check_send
from dejaqueue.schema.messages import HEADERS, TAGS

TOPIC = Topic("t", partitions=4)


def test_payload_alone_is_enough__due_on_arrival() -> None:
    columns = check_send(pa.record_batch({"payload": pa.array([b"a", b"bc"])}), TOPIC, 77)
    assert columns.dues_ms.tolist() == [77, 77]
    assert columns.payload_bytes == 3
    assert columns.keys is columns.groups is columns.tags is columns.headers is None


def test_a_slice_is_checked_as_its_rows() -> None:
    batch = pa.record_batch(
        {
            "payload": pa.array([b"abc", b"d", b"ef"]),
            "due": [1_800_000_000_000 + n for n in (1, 2, 3)],
        }
    )
    columns = check_send(batch.slice(1), TOPIC, 0)
    assert columns.payloads.to_pylist() == [b"d", b"ef"]
    assert columns.payload_bytes == 3
    assert columns.dues_ms.tolist() == [1_800_000_000_000 + 2, 1_800_000_000_000 + 3]


def test_kin_types_are_cast__a_fraction_of_a_millisecond_up() -> None:
    instant = datetime(2030, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    batch = pa.record_batch(
        {
            "payload": pa.array(["a"], pa.large_utf8()),
            "due": pa.array([instant], pa.timestamp("us", "UTC")),
            "group": pa.array(["g"]).dictionary_encode(),
            "priority": pa.array([5], pa.int64()),
        }
    )
    check_schema("enqueue", batch.schema)
    columns = check_send(batch, TOPIC, 0)
    assert columns.payloads.to_pylist() == [b"a"]
    assert columns.dues_ms.tolist() == [int(instant.timestamp()) * 1_000 + 1]
    assert columns.groups is not None
    assert columns.priorities is not None
    assert columns.groups.to_pylist() == ["g"]
    assert columns.priorities.tolist() == [5]


def test_columns_that_say_nothing_are_left_out() -> None:
    batch = pa.record_batch(
        {
            "payload": pa.array([b"a"]),
            "key": pa.array([None], pa.utf8()),
            "group": pa.array([""]),
            "tags": pa.array([[]], TAGS),
            "headers": pa.array([None], HEADERS),
            "priority": pa.array([32_768], pa.uint16()),
        }
    )
    columns = check_send(batch, TOPIC, 0)
    assert columns.keys is columns.groups is columns.tags is columns.headers is None


def test_take_chooses_rows_of_every_column() -> None:
    batch = pa.record_batch(
        {
            "payload": pa.array([b"a", b"bb", b"c"]),
            "key": ["x", "y", "z"],
            "due": [1_800_000_000_000 + n for n in (1, 2, 3)],
        }
    )
    taken = check_send(batch, TOPIC, 0).take(np.array([2, 1]))
    assert taken.payloads.to_pylist() == [b"c", b"bb"]
    assert taken.keys is not None
    assert taken.keys.to_pylist() == ["z", "y"]
    assert (taken.rows, taken.payload_bytes) == (2, 3)
    assert taken.dues_ms.tolist() == [1_800_000_000_000 + 3, 1_800_000_000_000 + 2]


def test_a_priority_that_does_not_fit_is_refused() -> None:
    batch = pa.record_batch({"payload": pa.array([b"a"]), "priority": pa.array([70_000])})
    with pytest.raises(BadRequest, match="priority: values that fit uint16"):
        check_send(batch, TOPIC, 0)


def test_too_many_payload_bytes_name_the_row() -> None:
    batch = pa.record_batch({"payload": pa.array([b"a", b"abc"])})
    with pytest.raises(BadRequest, match="payload of row 1: at most 2 bytes, got: 3"):
        check_send(batch, Topic("t", max_payload_bytes=2), 0)


@pytest.mark.parametrize("op", ["move", "cancel"])
def test_id_or_key_but_not_both(op: str) -> None:
    due = {"due": pa.array([1_800_000_000_000])} if op == "move" else {}
    both = pa.record_batch({"id": pa.array([1]), "key": pa.array(["k"]), **due})
    with pytest.raises(BadRequest, match="columns: either id or key"):
        check_schema(op, both.schema)


def test_settled_rows_carry_id_and_attempts() -> None:
    batch = pa.record_batch({"id": pa.array([7]), "attempts": pa.array([2])})
    check_schema("ack", batch.schema)
    named = check_named("ack", batch)
    assert named.ids is not None
    assert named.attempts is not None
    assert (named.ids.tolist(), named.attempts.tolist()) == ([7], [2])
    with pytest.raises(BadRequest, match="attempts: a column of this name"):
        check_schema("ack", pa.schema({"id": pa.int64()}))


def test_texts_that_fit_alone_are_taken_together() -> None:
    batch = pa.record_batch({"payload": [b"ab", b"", b"cd"]})
    assert check_send(batch, Topic("t", max_payload_bytes=2), 0).payload_bytes == 4


def test_many_due_times_are_those_of_the_slice() -> None:
    dues_ms = np.arange(1_700_000_000_000, 1_700_000_000_040)
    batch = pa.record_batch({"payload": [b"x"] * 40, "due": dues_ms}).slice(5, 30)
    columns = check_send(batch, Topic("t"), 0)
    assert columns.dues_ms.tolist() == dues_ms[5:35].tolist()
