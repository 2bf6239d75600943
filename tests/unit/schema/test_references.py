"""Covers: references in columns of payloads: made, found, and never made by a sender."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.errors import JournalDamaged
from dejaqueue.schema import references
from dejaqueue.schema.references import MARK, Reference

PLAIN = Reference("a/1-t/x", 5_000_000, b"d" * 32)
SEALED = Reference("a/1-t/y", 70_000, b"e" * 32, b"k" * 32)


def binary(*payloads: bytes) -> pa.BinaryArray:
    return pa.array(payloads, pa.binary())


@pytest.mark.parametrize("reference", [PLAIN, SEALED])
def test_a_reference_is_what_it_was(reference: Reference) -> None:
    assert references.decode(reference.encode()) == reference


@pytest.mark.parametrize("payload", [MARK, PLAIN.encode(), MARK + b"\0" + MARK])
def test_what_a_sender_makes_is_no_reference(payload: bytes) -> None:
    assert references.decode(references.escaped(payload)) == payload


@pytest.mark.parametrize("payload", [b"", b"hello", MARK[:-1], b"\xff" * 100])
def test_next_to_all_payloads_are_stored_as_they_are(payload: bytes) -> None:
    assert references.escaped(payload) == payload
    assert references.marked_rows(binary(payload)).size == 0


@pytest.mark.parametrize(
    "stored", [MARK, MARK + b"\x07" * 80, PLAIN.encode()[:40], Reference("", 1, b"d" * 32).encode()]
)
def test_a_reference_that_is_none_is_damage(stored: bytes) -> None:
    with pytest.raises(JournalDamaged, match="reference to a payload"):
        references.decode(stored)


def test_marked_rows_are_found__also_in_a_part_of_a_column() -> None:
    column = binary(b"a", PLAIN.encode(), b"\xff", b"", MARK[:11] + b"!x", SEALED.encode())
    assert references.marked_rows(column).tolist() == [1, 5]
    assert references.marked_rows(column.slice(1, 2)).tolist() == [0]
    assert references.marked_rows(column.slice(5)).tolist() == [0]
    assert references.marked_rows(column.slice(0, 0)).tolist() == []
    assert references.marked_rows(pa.nulls(3, pa.binary())).tolist() == []


def test_sizes_are_those_of_the_payloads_wherever_they_are() -> None:
    column = binary(b"abc", PLAIN.encode(), references.escaped(MARK), SEALED.encode())
    assert references.payload_sizes(column).tolist() == [3, 5_000_000, len(MARK), 70_000]
    assert references.payload_bytes(column.slice(1)) == 5_070_000 + len(MARK)
    assert references.payload_bytes(binary(b"abc", b"d")) == 4
    assert references.payload_sizes(binary()).dtype == np.uint32


def test_payloads_are_replaced_and_those_between_stay() -> None:
    column = binary(b"a", b"b", b"c", b"d").slice(1)
    assert references.replaced(column, {}) is column
    assert references.replaced(column, {0: b"x", 2: b"y"}).to_pylist() == [b"x", b"c", b"y"]
    assert references.replaced(column, {1: b""}).to_pylist() == [b"b", b"", b"d"]
