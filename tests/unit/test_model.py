"""Covers: ids, topic names and settings, the numbers of row statuses.

Not covered: what the settings do; that is with the broker and the engine.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dejaqueue import limits
from dejaqueue.errors import BadRequest
from dejaqueue.model import (
    CHANGEABLE,
    MessageState,
    RowStatus,
    Topic,
    TopicKind,
    pack_id,
    unpack_id,
)


@given(
    st.integers(0, limits.PARTITIONS_MAX - 1),
    st.integers(0, limits.SEQUENCE_MAX),
)
def test_an_id_unpacks_to_what_went_in(partition: int, sequence: int) -> None:
    message_id = pack_id(partition, sequence)
    assert 0 <= message_id < 1 << 63
    assert unpack_id(message_id) == (partition, sequence)


def test_a_slip_of_the_finger_is_told_what_was_meant() -> None:
    with pytest.raises(BadRequest, match=r"topic\.leese_ms: one of .* \(did you mean lease_ms\?\)"):
        Topic.from_dict({"name": "t", "leese_ms": 5})
    with pytest.raises(BadRequest, match=r"topic\.colour: one of [a-z_, ]*, got: 'red'"):
        Topic.from_dict({"name": "t", "colour": "red"})


def test_a_status_is_shown_as_its_word__and_is_a_number_as_json() -> None:
    status = RowStatus.LEASE_LOST
    assert (str(status), f"{status}", f"{status:>11}", f"{status:d}") == (
        "LEASE_LOST",
        "LEASE_LOST",
        " LEASE_LOST",
        "3",
    )
    assert json.dumps([status]) == "[3]"


def test_numbers_on_the_wire_are_for_ever() -> None:
    assert [(s.name, s.value) for s in RowStatus] == [
        ("OK", 0),
        ("NOT_FOUND", 1),
        ("LEASED", 2),
        ("LEASE_LOST", 3),
        ("DUPLICATE", 4),
        ("KEPT", 5),
        ("CHANGED", 6),
    ]
    assert [(s.name, s.value) for s in MessageState] == [
        ("DONE", 0),
        ("SCHEDULED", 1),
        ("LEASED", 2),
        ("DEAD", 3),
        ("STAGED", 4),
        ("STAGED_ACK", 5),
    ]


def test_a_topic_has_defaults_that_work() -> None:
    topic = Topic("reminders").check()
    assert (topic.kind, topic.partitions, topic.lease_ms) == (TopicKind.TIMELINE, 1, 30_000)


def test_a_topic_survives_json() -> None:
    topic = Topic("reminders", partitions=4, max_backlog_count=10)
    assert Topic.from_dict(topic.to_dict()) == topic.check()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("partitions", 0),
        ("partitions", limits.PARTITIONS_MAX + 1),
        ("partitions", 1.5),
        ("partitions", True),
        ("lease_ms", limits.LEASE_MS_MIN - 1),
        ("lease_ms", limits.LEASE_MS_MAX + 1),
        ("lease_ahead_ms", -1),
        ("max_payload_bytes", limits.STREAMED_BYTES_MAX + 1),
        ("max_delay_ms", -1),
        ("max_backlog_count", "many"),
        ("max_backlog_bytes", -5),
        ("kind", "stack"),
        ("on_duplicate", "drop"),
        ("assignment", "alone"),
        ("weights", {"a": 0}),
        ("weights", {"a": 1.5}),
        ("weights", {"g" * 257: 1}),
        ("weights", ["a"]),
        ("max_attempts", -1),
        ("backoff_factor", 0.5),
        ("backoff_factor", float("nan")),
        ("backoff_jitter", 2),
        ("paused", 1),
        ("dead_letter", "a/b"),
    ],
)
def test_a_setting_out_of_bounds_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(BadRequest, match=rf"^topic\.{field}: "):
        Topic.from_dict({"name": "reminders", field: value})


def test_an_unknown_setting_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadRequest, match=r"^topic\.leese_ms: one of name, kind, partitions"):
        Topic.from_dict({"name": "reminders", "leese_ms": 5})


def test_a_topic_without_a_name_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"^topic\.name: a name"):
        Topic.from_dict({})


def test_name_and_kind_stay_as_they_are() -> None:
    assert {"name", "kind"}.isdisjoint(CHANGEABLE)
    topic = Topic("x", labels={"owner": "shop"}, subscriptions={"s": {}}, retention_ms=1)
    topic = replace(topic, retention_bytes=1, retention_keys=True, cold_after_ms=60_000)
    topic = replace(topic, spike_ahead_ms=1)
    assert set(CHANGEABLE) <= set(replace(topic, group_runs=True).to_dict())


def test_labels_are_texts_of_a_bounded_size() -> None:
    topic = Topic.from_dict({"name": "t", "labels": {"owner": "shop"}})
    assert Topic.from_dict(topic.to_dict()) == topic
    assert "labels" not in Topic("t").to_dict(), "brokers of earlier versions do not know them"
    for wrong in (["a"], {"a": 5}, {"a": "b\n"}, {"a": "b" * limits.LABELS_BYTES_MAX}):
        with pytest.raises(BadRequest, match=r"topic\.labels: texts by name"):
            Topic("t", labels=wrong).check()  # type: ignore[arg-type]
