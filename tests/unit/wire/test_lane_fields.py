"""Fields of a SEND: they come as they were, and no frame that is cut or wrong is taken.

Not here: the frame around them (test_lane.py).
"""

from __future__ import annotations

import struct

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.schema.row_fields import Fields
from dejaqueue.wire.lane_fields import decode_heads, decode_texts, encode

FIELDS = Fields(
    [b"k", b""], [b"", b"g"], [[b"red", b""], []], [[b"n", b"v"], []], [7, 65_535], [0, 9]
)


def decoded(frame: bytes, rows: int) -> tuple[Fields, int]:
    heads, at = decode_heads(frame, 0, rows)
    return decode_texts(frame, at, heads)


@pytest.mark.parametrize(
    "fields", [FIELDS, Fields(keys=[b"k", b"l"]), Fields(priorities=[1, 2]), Fields(tags=[[], []])]
)
def test_they_come_as_they_were(fields: Fields) -> None:
    before, behind = encode(fields, 2)
    frame = b"".join([*before, *behind])
    assert decoded(frame, 2) == (fields, len(frame))


def test_no_part_of_them_is_taken_for_the_whole() -> None:
    before, behind = encode(FIELDS, 2)
    frame = b"".join([*before, *behind])
    for size in range(len(frame)):
        with pytest.raises((BadRequest, struct.error)):
            decoded(frame[:size], 2)


def test_a_name_without_a_value_is_refused() -> None:
    before, behind = encode(Fields(headers=[[b"n"]]), 1)
    with pytest.raises(BadRequest, match="header"):
        decoded(b"".join([*before, *behind]), 1)


@pytest.mark.parametrize("which", [0, 64])
def test_fields_that_nobody_knows_are_refused(which: int) -> None:
    with pytest.raises(BadRequest, match="fields"):
        decoded(struct.pack("<I", which), 1)
