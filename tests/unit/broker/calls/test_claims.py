"""Covers: what can be asked of claims, and what is known of them besides the lease.

Not covered: claims across restarts and beside consumers (tests/rules/test_claims.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dejaqueue import limits
from dejaqueue.broker.calls import claims
from dejaqueue.broker.calls.claims import CLAIMS_MAX, claim, read, settle
from dejaqueue.broker.topic.served_topic import ServedTopic
from dejaqueue.errors import BadRequest, Refused
from tests.rules.broker_fixture import TOPIC, BrokerFixture


@pytest.fixture
def fixture() -> Iterator[BrokerFixture]:
    made = BrokerFixture()
    yield made
    made.stop()


@pytest.fixture
def topic(fixture: BrokerFixture) -> ServedTopic:
    return fixture.broker.runtime(TOPIC)


def claimed(topic: ServedTopic, **more: Any) -> dict[str, Any]:
    body = {"topic": TOPIC, "partition": 0, "rows": 100, "lease_ms": 1_000}
    return claim(topic, body | more)


def rows(topic: ServedTopic, number: int, **more: Any) -> list[dict[str, Any]]:
    _, batches = read(topic, {"partition": 0, "claim": number} | more)
    return [row for batch in batches for row in batch.to_pylist()]


def settled(topic: ServedTopic, numbers: list[int], *, ack: bool = True) -> dict[str, Any]:
    body = {"topic": TOPIC, "claims": {"0": numbers}, "lease_ms": 1_000}
    return settle(topic, body, ack=ack)


# --- what can be asked


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("partition", None),
        ("partition", 1),
        ("partition", "0"),
        ("rows", 0),
        ("rows", limits.CLAIM_ROWS_MAX + 1),
        ("rows", True),
        ("bytes", -1),
        ("lease_ms", 0),
        ("lease_ms", "long"),
    ],
)
def test_a_bad_field_of_a_claim_is_refused_by_name(
    topic: ServedTopic, field: str, value: Any
) -> None:
    with pytest.raises(BadRequest) as caught:
        claimed(topic, **{field: value})
    assert caught.value.field == field


@pytest.mark.parametrize(
    "given",
    [
        None,
        [1, 2],
        {"1": [1]},
        {"-0": [1]},
        {"²": [1]},
        {"0" * 5_000: [1]},
        {"0": 5},
        {"0": ["a"]},
        {"0": [-1]},
        {"0": [True]},
        {"0": [limits.POSITION_MAX + 1]},
        {"0": list(range(CLAIMS_MAX + 1))},
    ],
    ids=lambda given: str(given)[:20],
)
def test_claims_are_named_by_partition_and_number(topic: ServedTopic, given: object) -> None:
    with pytest.raises(BadRequest, match=r"^claims: "):
        settle(topic, {"topic": TOPIC, "claims": given, "lease_ms": 1_000}, ack=True)


def test_an_exclusive_topic_is_left_to_its_consumers(fixture: BrokerFixture) -> None:
    fixture.broker.alter_topic(TOPIC, {"assignment": "exclusive"})
    with pytest.raises(BadRequest, match=r"^topic: one whose assignment is shared"):
        claimed(fixture.broker.runtime(TOPIC))


# --- claiming


def test_nothing_due_is_no_claim(fixture: BrokerFixture, topic: ServedTopic) -> None:
    fixture.send([b"later"], [fixture.now_ms + 1_000])
    assert claimed(topic) == {"claim": None, "rows": 0, "ready": 0}


def test_a_claim_says_how_many_more_are_due(fixture: BrokerFixture, topic: ServedTopic) -> None:
    fixture.send([b"x"] * 5, [fixture.now_ms] * 4 + [fixture.now_ms + 1_000])
    found = claimed(topic, rows=3)
    assert (found["rows"], found["ready"]) == (3, 1)
    assert claimed(topic, rows=3)["claim"] != found["claim"]


def test_a_limit_in_bytes_is_one_in_rows_of_their_mean_size__but_of_one_row_at_least(
    fixture: BrokerFixture, topic: ServedTopic
) -> None:
    fixture.send([b"x" * 1_000] * 6)
    assert claimed(topic, bytes=3_500)["rows"] == 3
    assert claimed(topic, bytes=1)["rows"] == 1


def test_a_topic_that_is_paused_gives_no_claims(fixture: BrokerFixture, topic: ServedTopic) -> None:
    fixture.send([b"a", b"b"])
    fixture.broker.alter_topic(TOPIC, {"paused": True})
    assert claimed(topic) == {"claim": None, "rows": 0, "ready": 2}


# --- reading


def test_a_claim_is_read_again_and_again_in_its_order__with_the_times_it_became_due(
    fixture: BrokerFixture, topic: ServedTopic
) -> None:
    """In the table the due time of a leased row is the end of its lease."""
    now_ms = fixture.now_ms
    fixture.send([b"b", b"a", b"c"], [now_ms - 1, now_ms - 2, now_ms])
    number = claimed(topic)["claim"]
    for _ in range(2):
        found = rows(topic, number)
        assert [row["payload"] for row in found] == [b"a", b"b", b"c"]
        assert [row["due"] for row in found] == [now_ms - 2, now_ms - 1, now_ms]
    assert [row["payload"] for row in rows(topic, number, first=1, end=2)] == [b"b"]
    assert set(rows(topic, number, columns=["id"])[0]) == {"id"}


def test_times_that_were_forgotten_are_not_known__and_not_made_up(
    fixture: BrokerFixture, topic: ServedTopic
) -> None:
    fixture.send([b"a"])
    number = claimed(topic)["claim"]
    topic.claimed_dues.clear()
    assert [row["due"] for row in rows(topic, number)] == [None]


def test_a_claim_that_is_over_cannot_be_read(fixture: BrokerFixture, topic: ServedTopic) -> None:
    fixture.send([b"a"])
    number = claimed(topic)["claim"]
    fixture.advance(1_000)
    with pytest.raises(Refused, match=rf"claim {number} of partition 0 of topic t is over"):
        rows(topic, number)


# --- settling


def test_what_is_acked_is_done__and_acked_again_it_is_lost(
    fixture: BrokerFixture, topic: ServedTopic
) -> None:
    fixture.send([b"a", b"b"])
    number = claimed(topic)["claim"]
    assert settled(topic, [number, number]) == {"lost": {}}
    assert settled(topic, [number, 12_345]) == {"lost": {"0": [number, 12_345]}}
    assert fixture.counts()["acked"] == 2
    assert number not in topic.claimed_dues[0]


def test_an_extended_claim_is_held_from_now_on(fixture: BrokerFixture, topic: ServedTopic) -> None:
    fixture.send([b"a"])
    number = claimed(topic)["claim"]
    fixture.advance(900)
    assert settled(topic, [number], ack=False) == {"lost": {}}
    fixture.advance(900)
    assert len(rows(topic, number)) == 1
    fixture.advance(100)
    assert settled(topic, [number], ack=False) == {"lost": {"0": [number]}}


def test_times_of_claims_that_are_over_are_forgotten(
    fixture: BrokerFixture, topic: ServedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that dies never says that it is done."""
    monkeypatch.setattr(claims, "_CLAIMS_KEPT", 2)
    fixture.send([b"x"] * 10)
    first = claimed(topic, rows=1)["claim"]
    second = claimed(topic, rows=1, lease_ms=60_000)["claim"]
    fixture.advance(1_000)
    third = claimed(topic, rows=1)["claim"]
    assert set(topic.claimed_dues[0]) == {second, third}
    assert first not in topic.claimed_dues[0]
