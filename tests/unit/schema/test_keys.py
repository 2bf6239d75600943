"""Key hashes are for ever."""

from __future__ import annotations

import numpy as np
import pytest

from dejaqueue.schema.keys import hash_key, hash_keys


def hashes_of(*keys: str, dtype: type = np.int32) -> list[int]:
    texts = [key.encode() for key in keys]
    offsets: np.ndarray = np.cumsum([0, *map(len, texts)]).astype(dtype)
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
    assert hashes_of(key) == [hash_key(key.encode())] == [GOLDEN[key]]


def test_one_key_has_the_hash_that_it_has_among_others() -> None:
    keys = [f"{length}" * length for length in range(1, 40)]
    assert [hash_key(key.encode()) for key in keys] == hashes_of(*keys)


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
