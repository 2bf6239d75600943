"""Erasure: which messages a call names, checked.

Not here: what is found (tests/unit/broker/shard/test_stored_erasure.py), and that it is gone
(tests/crash/test_erasure_kill.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dejaqueue.broker.calls.erasure import parse_choice
from dejaqueue.engine.message_filter import Selection
from dejaqueue.errors import BadRequest
from dejaqueue.model import pack_id


def test_keys_or_a_filter() -> None:
    by_key = parse_choice({"keys": ["a", "b"], "origin": "orders"})
    assert (by_key.keys, by_key.selection, by_key.origin) == (("a", "b"), None, "orders")
    assert not by_key.is_by_now
    by_group = parse_choice({"group": "g"})
    assert by_group.keys is None
    assert by_group.selection is not None
    assert by_group.selection == Selection(by_group.selection.states, group="g")
    assert by_group.is_by_now
    assert not parse_choice({"group": "g", "origin": "orders"}).is_by_now


def test_ids_name_messages__each_in_its_partition() -> None:
    by_id = parse_choice({"ids": [pack_id(1, 7), 5, pack_id(1, 3), 5]})
    assert (by_id.keys, by_id.selection, by_id.is_by_now) == (None, None, False)
    assert by_id.sequences.tolist() == [5]
    assert replace(by_id, partition=1).sequences.tolist() == [3, 7]
    # With an origin they are those of other messages.
    assert parse_choice({"ids": [5], "origin": "orders"}).sequences.tolist() == []


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"keys": []},
        {"keys": [""]},
        {"keys": ["k"], "group": "g"},
        {"keys": "k"},
        {"group": 1},
        {"ids": []},
        {"ids": [-1]},
        {"ids": ["a"]},
        {"ids": [1], "keys": ["k"]},
        {"ids": [1], "group": "g"},
    ],
    ids=str,
)
def test_anything_else_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        parse_choice(values)
