"""Which shard a row belongs to: all who route come to the same answer."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dejaqueue.model import Topic
from dejaqueue.schema.checks import check_named, check_send
from dejaqueue.schema.shards import parts_to_name, parts_to_send, shard_of_ids, shards_of_texts


def test_an_id_says_its_shard() -> None:
    partitions = np.arange(12, dtype=np.int64)
    assert shard_of_ids(partitions << 47 | 99, 3).tolist() == [0, 1, 2] * 4


def test_a_batch_goes_by_key_then_group_then_in_turn() -> None:
    rows = 8
    batch = pa.record_batch(
        {
            "payload": pa.array([b"x"] * rows),
            "key": pa.array(["a", "b", None, None] * 2),
            "group": pa.array(["g", None, "g", None] * 2),
        }
    )
    columns = check_send(batch, Topic("t"), 0)
    parts = parts_to_send(columns, 3, "producer", 7)
    shards = np.zeros(rows, dtype=np.int64)
    for shard, places in parts:
        shards[places] = shard
    by_text = shards_of_texts(["a", "b", "g"], 3)
    assert shards[:3].tolist() == shards[4:7].tolist() == by_text
    plain = check_send(batch.select(["payload"]), Topic("t"), 0)
    turns = [parts_to_send(plain, 3, "producer", number)[0][0] for number in range(6)]
    assert turns[:3] == turns[3:]
    assert sorted(turns[:3]) == [0, 1, 2]


def test_a_row_goes_to_the_shard_of_its_partition_or_id() -> None:
    batch = pa.record_batch(
        {"payload": pa.array([b"x"] * 4), "partition": pa.array([0, 4, 5, 1], pa.int32())}
    )
    columns = check_send(batch, Topic("t", partitions=6), 0)
    found = [(shard, rows.tolist()) for shard, rows in parts_to_send(columns, 3, "", 1)]
    assert found == [(0, [0]), (1, [1, 3]), (2, [2])]
    named = check_named("cancel", pa.record_batch({"id": pa.array([5 << 47, 3 << 47 | 9])}))
    assert [(shard, rows.tolist()) for shard, rows in parts_to_name(named, 3)] == [
        (0, [1]),
        (2, [0]),
    ]
