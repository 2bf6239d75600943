"""Columns of references to cold payloads: made, read, and told from others."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.errors import JournalDamaged
from dejaqueue.schema.cold_references import cold_rows, payload_column, reference_column
from dejaqueue.schema.references import MARK, Reference, decode, escaped, stored_sizes
from dejaqueue.schema.text_columns import text_offsets

PLAIN = Reference("5f/3-t/cold-aa", 60, os.urandom(32))
SEALED = Reference("5f/3-t/cold-bb", 90, os.urandom(32), os.urandom(32))
OFFSETS, SIZES = np.array([0, 10, 30]), np.array([10, 20, 30])


@pytest.mark.parametrize("whole", [PLAIN, SEALED])
def test_a_column_is_what_each_reference_alone_would_be(whole: Reference) -> None:
    column = reference_column(whole, OFFSETS, SIZES)
    for row, (offset, size) in enumerate(zip(OFFSETS.tolist(), SIZES.tolist(), strict=True)):
        one = Reference(whole.name, size, whole.digest, whole.key, whole.byte_count, offset)
        assert column[row].as_py() == one.encode()
        assert decode(one.encode()) == one
        assert one.is_cold
        assert one.whole == whole
    content = np.frombuffer(column.buffers()[2], dtype=np.uint8)
    assert stored_sizes(text_offsets(column), content).tolist() == SIZES.tolist()


def test_they_are_found_by_object_among_others() -> None:
    large = Reference("5f/3-t/cc", 9, bytes(32)).encode()
    plain, sealed = (reference_column(one, OFFSETS, SIZES).to_pylist() for one in (PLAIN, SEALED))
    literal, damaged = escaped(MARK + bytes(200)), MARK + b"\x03" + bytes(200)
    rows = [b"small", plain[2], sealed[0], large, literal, damaged, plain[0], b"", MARK]
    found = {one.whole: one for one in cold_rows(pa.array([b"before", *rows]).slice(1))}
    assert set(found) == {PLAIN, SEALED}
    assert found[PLAIN].rows.tolist() == [1, 6]
    assert found[PLAIN].offsets.tolist() == [30, 0]
    assert found[PLAIN].sizes.tolist() == [30, 10]
    assert found[SEALED].rows.tolist() == [2]
    assert cold_rows(pa.array([b"small", large])) == []
    assert cold_rows(pa.array([], pa.binary())) == []


def test_payloads_come_out_in_the_order_asked() -> None:
    content = bytes(range(60))
    column = payload_column(content, OFFSETS[[2, 0]], SIZES[[2, 0]])
    assert column.to_pylist() == [content[30:60], content[:10]]
    assert payload_column(content, OFFSETS[:0], SIZES[:0]).to_pylist() == []


@pytest.mark.parametrize(("offsets", "sizes"), [([50], [11]), ([0, 5], [10, 10])])
def test_what_is_not_within_the_object_is_damage(offsets: list[int], sizes: list[int]) -> None:
    with pytest.raises(JournalDamaged, match="not in their object"):
        payload_column(bytes(60), np.array(offsets), np.array(sizes))
