"""The partitions of a shard: their numbers, and the homes of keys among them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.broker.shard.entries import hash_column, text_column
from dejaqueue.broker.topic.served_partitions import ServedPartitions
from dejaqueue.errors import BadRequest
from dejaqueue.schema.shards import hash_texts, shard_of_hashes


@pytest.mark.parametrize("spread", [2, 3, 7])
def test_the_home_of_a_key_in_its_shard_is_its_home_without_shards(spread: int) -> None:
    keys = pa.array([f"key-{number}" for number in range(500)] + ["ä" * 40, ""])
    hashes = hash_texts(keys)
    assert hashes.tolist() == hash_column(text_column(keys)).tolist()
    shards = shard_of_hashes(hashes, spread)
    for count in (spread, 4 * spread):
        plain = ServedPartitions().homes(hashes, count)
        assert (plain % spread == shards).all()
        assert [ServedPartitions().home(one, count) for one in hashes.tolist()] == plain.tolist()
        for shard in range(spread):
            homes = ServedPartitions(shard, spread).homes(hashes, count)
            assert (homes[shards == shard] == plain[shards == shard]).all()
            of_shard = ServedPartitions(shard, spread)
            assert [of_shard.home(one, count) for one in hashes.tolist()] == homes.tolist()
            # Whatever key comes to a shard has a home there.
            assert set(homes.tolist()) <= set(ServedPartitions(shard, spread).numbers_of(count))


def test_places_have_the_numbers_of_the_topic() -> None:
    places: Any = ServedPartitions(1, 3)  # which does not care what it holds
    for number in places.numbers_of(9):
        places.append(number)
    assert list(places) == list(places.numbers) == [1, 4, 7]
    assert [places.at(number) for number in (1, 4, 7)] == [0, 1, 2]
    assert places[4] == 4
    assert 4 in places
    assert not any(number in places for number in (-2, 0, 5, 10))
    with pytest.raises(BadRequest, match="partition"):
        places.check("partition", 5)
