"""Fields of single messages. Here: what they become, and what each refusal names.

Not here: that the words are those of `check_send` (test_send_rows.py).
"""

from __future__ import annotations

import pytest

from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.schema.packing import RECORD, UNIT
from dejaqueue.schema.row_fields import Fields, PackedFields, check_fields


def test_texts_of_a_row_become_one() -> None:
    fields = Fields([b"k", b""], None, [[b"a", b"b"], []], [[b"n", b"1", b"m", b""], []])
    found = check_fields(fields, 0)
    assert found.keys == [b"k", b""]
    assert found.tags == [f"a{UNIT}b".encode(), b""]
    assert found.headers == [f"n{UNIT}1{RECORD}m{UNIT}".encode(), b""]


def test_what_no_row_has_is_left_out() -> None:
    usual = limits.PRIORITY_DEFAULT
    fields = Fields([b""], [b""], [[]], [[]], [usual], [0])
    assert check_fields(fields, 0) == PackedFields()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (Fields(keys=[b"", b"x" * (limits.KEY_BYTES_MAX + 1)]), "key of row 1"),
        (Fields(groups=[b"\xff"]), "column group"),
        (Fields(tags=[[b"t"] * (limits.TAGS_MAX + 1)]), "tags of row 0"),
        (Fields(tags=[[b""]]), "tags"),
        (Fields(tags=[[UNIT.encode()]]), "tags"),
        (Fields(headers=[[b"", b"v"]]), "headers"),
        (Fields(headers=[[b"n", RECORD.encode()]]), "headers"),
        (Fields(expires_ms=[-1]), "expires of row 0"),
    ],
)
def test_what_is_wrong_is_named(fields: Fields, named: str) -> None:
    with pytest.raises(BadRequest) as caught:
        check_fields(fields, 0)
    assert caught.value.field == named


def test_texts_count_for_the_largest_batch() -> None:
    with pytest.raises(BadRequest, match="batch"):
        check_fields(Fields(keys=[b"k"]), limits.BATCH_BYTES_MAX)
