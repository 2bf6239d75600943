"""Covers: what can be asked of a peek, and how its pages follow each other.

Not covered: filters and states (tests/rules/test_browsing.py), the wire (tests/integration).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.broker.calls import peek as peeking
from dejaqueue.broker.calls.peek import parse, parse_names, peek
from dejaqueue.engine import page as page_of_index
from dejaqueue.engine import selection
from dejaqueue.errors import BadRequest
from dejaqueue.model import pack_id
from dejaqueue.schema.messages import NEXT
from dejaqueue.wire.frames import SettleOp
from tests.patience import until
from tests.rules.broker_fixture import TOPIC, BrokerFixture
from tests.rules.conftest import MakeBroker, on_files

__all__ = ["on_files"]


@pytest.fixture
def fixture() -> Iterator[BrokerFixture]:
    made = BrokerFixture(partitions=2)
    yield made
    made.stop()


def send(fixture: BrokerFixture, partition: int, dues_ms: list[int], group: str = "") -> None:
    columns = {
        "group": pa.array([group] * len(dues_ms)),
        "payload": pa.array([b"x"] * len(dues_ms), pa.binary()),
        "due": pa.array(dues_ms, pa.int64()),
        "partition": pa.array([partition] * len(dues_ms), pa.int32()),
    }
    assert fixture.write("enqueue", columns).error is None


def page(fixture: BrokerFixture, **ticket: Any) -> tuple[list[int], dict[str, int] | None]:
    """The ids of a page, and where the next one begins."""
    batch = peek(fixture.broker.runtime(TOPIC), ticket, fixture.now_ms)
    metadata = batch.schema.metadata or {}
    following = json.loads(metadata[NEXT]) if NEXT in metadata else None
    return batch.column("id").to_pylist(), following


def all_pages(fixture: BrokerFixture, **ticket: Any) -> list[list[int]]:
    found: list[list[int]] = []
    after: dict[str, int] | None = None
    while True:
        ids, after = page(fixture, **ticket, after=after)
        found.append(ids)
        if after is None:
            return found
        assert len(found) < 50, "pages do not end"


# --- what can be asked


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("limit", -1),
        ("limit", True),
        ("limit", "all"),
        ("partition", 2),
        ("partition", -1),
        ("after", 5),
        ("after", {"due": 5}),
        ("after", {"id": 5, "more": 1}),
        ("after", {"id": 1.5}),
        ("after", {"id": True}),
        ("after", {"due": -2, "id": 5}),
        ("after", {"id": 1 << 63}),
        ("state", "sleeping"),
    ],
)
def test_a_bad_field_is_refused_by_name(fixture: BrokerFixture, field: str, value: Any) -> None:
    partitions = fixture.broker.runtime(TOPIC).partitions
    with pytest.raises(BadRequest) as caught:
        parse({field: value}, partitions, 0)
    assert caught.value.field == field


def test_a_page_has_a_most_of_rows__whatever_is_asked_for(fixture: BrokerFixture) -> None:
    partitions = fixture.broker.runtime(TOPIC).partitions
    assert parse({"limit": 1 << 40}, partitions, 0).limit == limits.PEEK_ROWS_MAX
    assert parse({}, partitions, 0).limit == 100
    assert list(parse({"partition": 1}, partitions, 0).partitions) == [1]


@pytest.mark.parametrize(
    ("ids", "keys"),
    [("x", None), ([1.5, "x"], None), ([1 << 70], None), (None, [1]), (None, ["a", None])],
)
def test_names_that_are_none_are_refused(ids: object, keys: object) -> None:
    with pytest.raises(BadRequest):
        parse_names(ids, keys)


def test_names_have_a_most() -> None:
    most = limits.PEEK_ROWS_MAX
    assert parse_names([1] * most, None)[0] is not None
    with pytest.raises(BadRequest, match=rf"^ids: at most {most}, got: {most + 1}"):
        parse_names([1] * (most + 1), None)
    with pytest.raises(BadRequest, match=r"^keys: at most"):
        parse_names(None, ["k"] * (most + 1))


# --- pages by time


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages_by_time_go_through_all_partitions__each_message_once(
    fixture: BrokerFixture, limit: int
) -> None:
    """Equal due times are in order of ids, so no page loses or repeats one."""
    first = fixture.now_ms + 1_000
    send(fixture, 0, [first + 5, first, first, first + 9])
    send(fixture, 1, [first, first + 5, first + 7])
    expected = [
        pack_id(*place) for place in ((0, 1), (0, 2), (1, 0), (0, 0), (1, 1), (1, 2), (0, 3))
    ]
    pages = all_pages(fixture, limit=limit)
    assert [one for ids in pages for one in ids] == expected
    assert all(len(ids) <= limit for ids in pages)


def test_a_page_for_which_much_has_to_be_looked_through_comes_short__and_the_next_goes_on(
    fixture: BrokerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another partition has behind the point that was reached comes later, and once."""
    monkeypatch.setattr(peeking, "PAGE_ENTRIES_MAX", 1)
    monkeypatch.setattr(page_of_index, "_CHUNK_ROWS_MIN", 1)
    monkeypatch.setattr(selection, "_PAGE_ROWS_MIN", 1)
    first = fixture.now_ms + 1_000
    send(fixture, 0, [first + number for number in range(10)], "other")
    send(fixture, 0, [first + number for number in range(10, 20)], "wanted")
    send(fixture, 1, [first + 15], "wanted")
    pages = all_pages(fixture, limit=5, group="wanted")
    assert pages[0] == []
    expected = [pack_id(0, n) for n in range(10, 16)] + [pack_id(1, 0)]
    assert [one for ids in pages for one in ids] == expected + [
        pack_id(0, n) for n in range(16, 20)
    ]


def test_a_page_of_one_partition_has_no_other(fixture: BrokerFixture) -> None:
    send(fixture, 0, [fixture.now_ms])
    send(fixture, 1, [fixture.now_ms])
    assert page(fixture, partition=1) == ([pack_id(1, 0)], None)


def test_a_page_of_no_rows_is_empty__with_nothing_to_go_on(fixture: BrokerFixture) -> None:
    send(fixture, 0, [fixture.now_ms])
    assert page(fixture, limit=0) == ([], None)


# --- pages by id


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_pages_by_id_go_from_partition_to_partition(fixture: BrokerFixture, limit: int) -> None:
    """What is dead has no due time to be in order of."""
    for number in (0, 1):
        send(fixture, number, [fixture.now_ms, fixture.now_ms])
    consumer = fixture.consumer()
    rows: list[int] = []

    def has_all() -> bool:
        rows.extend(one for got in consumer.take_all() for one in got.ids)
        return len(rows) == 4

    until(has_all, "both partitions have delivered")
    pages = all_pages(fixture, limit=limit, state="leased")
    assert sorted(one for ids in pages for one in ids) == sorted(rows)
    by_id = BrokerFixture(kind="priority", partitions=2)
    try:
        send(by_id, 1, [by_id.now_ms, by_id.now_ms])
        send(by_id, 0, [by_id.now_ms + 5, by_id.now_ms])
        pages = all_pages(by_id, limit=limit)
        assert [one for ids in pages for one in ids] == [
            pack_id(*place) for place in ((0, 0), (0, 1), (1, 0), (1, 1))
        ]
    finally:
        by_id.stop()


# --- by name


def test_messages_are_found_by_id__what_is_not_there_is_left_out(fixture: BrokerFixture) -> None:
    send(fixture, 0, [fixture.now_ms + 5, fixture.now_ms])
    asked = [pack_id(0, 0), pack_id(0, 7), pack_id(1, 0), pack_id(0, 1)]
    found, following = page(fixture, ids=asked)
    assert (sorted(found), following) == ([pack_id(0, 0), pack_id(0, 1)], None)
    assert page(fixture, ids=[]) == ([], None)


def test_messages_are_found_by_key__in_whichever_partition_they_are(
    fixture: BrokerFixture,
) -> None:
    keys = [f"key {number}" for number in range(20)]
    sent = fixture.send([b"x"] * 20, keys=keys).all_ids().tolist()
    assert len({one >> limits.SEQUENCE_BITS for one in sent}) == 2
    found, _ = page(fixture, keys=[keys[3], "nobody's", keys[17]])
    assert sorted(found) == sorted([sent[3], sent[17]])
    found, _ = page(fixture, keys=[keys[3]], state="leased")
    assert found == []


# --- who has what is leased


def test_a_leased_message_says_who_has_it__until_it_is_given_back(fixture: BrokerFixture) -> None:
    send(fixture, 0, [fixture.now_ms] * 2)
    send(fixture, 1, [fixture.now_ms, fixture.now_ms + 60_000])

    def holders() -> list[tuple[str, str | None]]:
        batch = peek(fixture.broker.runtime(TOPIC), {}, fixture.now_ms)
        return [(row["state"], row["consumer"]) for row in batch.to_pylist()]

    assert holders() == [("scheduled", None)] * 4
    ann = fixture.consumer(consumer="ann", credit=1)
    fixture.settle_down()
    bob = fixture.consumer(consumer="bob", credit=9)
    fixture.settle_down()
    told = sorted(holders(), key=str)
    assert told == [("leased", "ann"), ("leased", "bob"), ("leased", "bob"), ("scheduled", None)]
    [got] = ann.take_all()
    ann.settle(SettleOp.NACK, partition=got.partition, lease_id=got.lease_id, argument_ms=9_000)
    assert sorted(name for _, name in holders() if name) == ["bob", "bob"]
    assert len(bob.take_all()) >= 1


def test_who_has_a_lease_is_not_known_after_a_restart(on_files: MakeBroker) -> None:
    fixture = on_files()
    fixture.send([b"x"])
    fixture.consumer(consumer="ann").take_all()
    fixture.restart()
    [row] = peek(fixture.broker.runtime(TOPIC), {"ids": [0]}, fixture.now_ms).to_pylist()
    assert (row["state"], row["consumer"]) == ("leased", None)
