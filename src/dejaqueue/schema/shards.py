"""Which shard of a topic each row of a batch belongs to.

Room: schema; pure. Clients and brokers route by it, so both come to the same answer.
Holds: a key, and a group, always go to the same shard, however many partitions are added; a batch
that is sent again goes where it went.
See: docs/adr/0016-a-topic-in-shards.md; broker/topic/served_partitions.py for the partition within
a shard.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.schema.checks import NamedRows, SendColumns
from dejaqueue.schema.keys import Int64s, hash_keys
from dejaqueue.schema.text_columns import text_offsets

Parts = list[tuple[int, Int64s]]
"""Shards, and the rows that belong to each, in their order."""


def hash_texts(column: pa.StringArray) -> Int64s:
    """Hashes of a text column without nulls; 0 where a text is empty."""
    offsets, content = text_offsets(column), column.buffers()[2]
    letters = np.zeros(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    hashes = hash_keys(offsets, letters)
    hashes[offsets[1:] == offsets[:-1]] = 0
    return hashes


def shard_of_hashes(hashes: Int64s, spread: int) -> Int64s:
    """The shard of each key or group, by its hash: its low bits choose."""
    shards: Int64s = (hashes & np.int64((1 << 31) - 1)) % spread
    return shards


def shard_of_ids(ids: Int64s, spread: int) -> Int64s:
    """The shard of each message, by its id."""
    shards: Int64s = (ids >> limits.SEQUENCE_BITS) % spread
    return shards


def shards_of_texts(texts: list[str], spread: int) -> list[int]:
    """The shard of each name, as that of a cron entry."""
    shards = shard_of_hashes(hash_texts(pa.array(texts, pa.utf8())), spread)
    return [int(shard) for shard in shards]


def parts_to_send(columns: SendColumns, spread: int, producer: str, number: int) -> Parts:
    """Where rows go: the producer's choice of partition, else by key, else by group, else the
    batch in turn."""
    turn = (zlib.crc32(producer.encode()) + number) % spread
    if columns.partitions is not None:
        return split_rows(columns.partitions.astype(np.int64) % spread)
    if columns.keys is None and columns.groups is None:
        return [(turn, np.arange(columns.rows))]
    homes = np.full(columns.rows, turn, dtype=np.int64)
    for texts in (columns.groups, columns.keys):
        if texts is not None:
            hashes = hash_texts(texts)
            homes = np.where(hashes != 0, shard_of_hashes(hashes, spread), homes)
    return split_rows(homes)


def parts_to_name(named: NamedRows, spread: int) -> Parts:
    """The shards of rows that name messages, by id or by key."""
    if named.keys is not None:
        return split_rows(shard_of_hashes(hash_texts(named.keys), spread))
    assert named.ids is not None
    return split_rows(shard_of_ids(named.ids, spread))


def split_rows(shards: npt.NDArray[np.int64]) -> Parts:
    """(shard, its rows in order) for every shard that has rows."""
    order = np.argsort(shards, kind="stable")
    found, starts = np.unique(shards[order], return_index=True)
    return list(zip(found.tolist(), np.split(order, starts[1:]), strict=True))
