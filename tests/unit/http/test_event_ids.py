"""Ids of events: what is written is read, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue.errors import BadRequest
from dejaqueue.http.event_ids import UNACKED_MAX, event_id, parse_event_id

ROWS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 40), st.integers(0, (1 << 63) - 1)),
        st.one_of(st.integers(1, 2), st.integers(0, 65_535)),
    ),
    min_size=1,
    max_size=UNACKED_MAX,
)


@given(ROWS)
def test_what_is_written_is_read(rows: list[tuple[int, int]]) -> None:
    text = event_id(rows)
    assert parse_event_id(text) == rows
    assert len(text) < 4_096


def test_messages_in_a_row_take_little_room() -> None:
    assert event_id([(number, 1) for number in range(UNACKED_MAX)]) == "0+127-1"


@pytest.mark.parametrize(
    "text",
    [
        "x", "7", "7-", "-7", "7-1,", ",7-1", "7+-1", "7+1", "7-1-1", "7 -1", "٧-1", "7-65536",
        "9223372036854775807+1-1", "9223372036854775808-1", "0+128-1", "0+999-1",
        ",".join(["7-1"] * 129), "0+127-1,500-1",
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_the_headers_name(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_event_id(text)
    assert refused.value.fields()["field"] == "Last-Event-ID"
