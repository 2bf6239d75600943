"""Key hashes are for ever; the key index finds live messages only."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.engine.keys import KeyIndex, hash_keys
from dejaqueue.engine.layout import STANDARD, TINY, Layout


def hashes_of(*keys: str, dtype: type = np.int32) -> list[int]:
    texts = [key.encode() for key in keys]
    offsets = np.cumsum([0, *map(len, texts)]).astype(dtype)
    return hash_keys(offsets, np.frombuffer(b"".join(texts), dtype=np.uint8)).tolist()  # type: ignore[no-any-return]


GOLDEN = {
    "": 5_415_703_002_354_041_807,
    "a": 6_618_140_638_669_660_564,
    "flight-UA1545-2013-01-01": 4_668_597_529_638_134_142,
    "ключ": -3_784_170_811_268_556_363,
    "x" * 256: -3_404_571_664_989_647_359,
}


@pytest.mark.parametrize("key", GOLDEN, ids=lambda key: key[:8] or "empty")
def test_hashes_are_what_they_always_were(key: str) -> None:
    """They are in journals: a change here makes stored keys unfindable."""
    assert hashes_of(key) == [GOLDEN[key]]


def test_a_hash_does_not_depend_on_its_neighbours_nor_on_the_offsets() -> None:
    keys = ["", "a", "bb" * 40, "c" * 8, "", "d" * 9, "e" * 7, "ф" * 30]
    together = hashes_of(*keys)
    assert together == [hashes_of(key)[0] for key in keys]
    assert together == hashes_of(*keys, dtype=np.int64)
    offsets = np.array([3, 4, 5], dtype=np.int32)  # a view into the middle of a column
    found = hash_keys(offsets, np.frombuffer(b"xyzabq", dtype=np.uint8))
    assert found.tolist() == hashes_of("a", "b")


def test_no_hash_is_zero_and_none_are_equal__200_000_keys() -> None:
    keys = [f"{kind}{number}" for kind in ("", "key-", "user:7:") for number in range(66_667)]
    hashes = np.array(hashes_of(*keys))
    assert (hashes != 0).all()
    assert np.unique(hashes).size == len(keys)


def test_a_flipped_bit_of_the_key_flips_half_of_the_hash() -> None:
    rng = np.random.default_rng(5)
    for length in (1, 8, 9, 30):
        rows = rng.integers(0, 256, (400, length), dtype=np.uint8)
        flipped = rows.copy()
        flipped[np.arange(400), rng.integers(0, length, 400)] ^= np.uint8(1) << rng.integers(
            0, 8, 400, dtype=np.uint8
        )
        offsets = np.arange(401) * length
        changed = hash_keys(offsets, rows.ravel()) ^ hash_keys(offsets, flipped.ravel())
        bits = np.unpackbits(changed.view(np.uint8).reshape(400, 8), axis=1)
        assert 0.47 < bits.mean() < 0.53
        assert (bits.mean(axis=0) > 0.35).all()
        assert (bits.mean(axis=0) < 0.65).all()


def test_no_keys_no_hashes() -> None:
    assert hashes_of() == []


@pytest.mark.parametrize("layout", [TINY, STANDARD], ids=["tiny", "standard"])
def test_lookups_find_exactly_the_live_messages(layout: Layout) -> None:
    rng = np.random.default_rng(9)
    index, live = KeyIndex(layout), np.zeros(6_000, dtype=np.bool_)
    hashes = np.zeros(6_000, dtype=np.int64)
    for first in range(0, 6_000, 60):
        sequences = np.arange(first, first + 60)
        hashes[sequences] = rng.integers(0, 300, 60)  # 0: no key; others are often equal
        live[sequences] = True
        index.insert(hashes[sequences], sequences, live.__getitem__)
        live[rng.integers(0, first + 60, 50)] = False
        wanted = rng.integers(-2, 320, 20)
        places, found = index.candidates(wanted, live.__getitem__)
        expected = [
            (place, sequence)
            for place, key_hash in enumerate(wanted.tolist())
            for sequence in np.flatnonzero(live & (hashes == key_hash)).tolist()
            if key_hash
        ]
        assert list(zip(places.tolist(), found.tolist(), strict=True)) == expected


def test_done_messages_drop_out__keyed_messages_come_and_go() -> None:
    index, live = KeyIndex(TINY), np.zeros(20_000, dtype=np.bool_)
    for first in range(0, 20_000, 4):
        sequences = np.arange(first, first + 4)
        live[sequences] = True
        index.insert(sequences + 1, sequences, live.__getitem__)
        live[: max(0, first - 20)] = False
    assert sum(map(len, index.small + index.sealed)) < 200
