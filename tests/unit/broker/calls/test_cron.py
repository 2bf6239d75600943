"""Covers: what can be asked of cron entries, pages of them, and where an entry is.

Not covered: when they fire (tests/rules/test_rule_17_cron.py), arithmetic (tests/unit/broker/cron).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dejaqueue import limits
from dejaqueue.access.senders import Sender
from dejaqueue.broker.calls.cron import act, preview
from dejaqueue.errors import BadRequest
from dejaqueue.model import TopicKind
from dejaqueue.schema.cron import CronEntry
from tests.rules.broker_fixture import TOPIC, BrokerFixture

HOUR = 3_600_000


@pytest.fixture
def fixture() -> Iterator[BrokerFixture]:
    made = BrokerFixture(kind=TopicKind.CRON)
    yield made
    made.stop()


def call(
    fixture: BrokerFixture, action: str, sender: Sender | None = None, /, **body: Any
) -> dict[str, Any]:
    more = () if sender is None else (sender,)
    body = {"topic": TOPIC} | body
    return act(fixture.broker.runtime, fixture.now_ms, f"cron_{action}", body, *more)


def put(fixture: BrokerFixture, /, *names: str, **fields: Any) -> list[dict[str, Any]]:
    fields = fields or {"every_ms": HOUR}
    entries = [CronEntry(name, **fields).to_dict() for name in names]
    found: list[dict[str, Any]] = call(fixture, "put", entries=entries)["entries"]
    return found


def listed(fixture: BrokerFixture, **more: Any) -> list[str]:
    return [one["name"] for one in call(fixture, "list", **more)["entries"]]


# --- what can be asked


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("put", {"entries": "e"}),
        ("put", {"entries": [5]}),
        ("put", {}),
        ("list", {"limit": 0}),
        ("list", {"limit": True}),
        ("list", {"limit": limits.CRON_CALL_ENTRIES_MAX + 1}),
        ("get", {}),
        ("get", {"name": ""}),
        ("get", {"name": "nobody"}),
        ("get", {"name": 5}),
        ("drop", {"names": "e"}),
        ("drop", {"names": [""]}),
        ("drop", {"names": ["e"] * (limits.CRON_CALL_ENTRIES_MAX + 1)}),
        ("pause", {"names": ["nobody"]}),
        ("run", {"name": "nobody"}),
        ("next", {"name": "e", "count": 0}),
        ("next", {"name": "e", "count": limits.CRON_PREVIEW_MAX + 1}),
        ("next", {"name": "e", "after_ms": -1}),
        ("next", {"name": "e", "after_ms": "now"}),
        ("list", {"colour": "red"}),
        ("drop", {"names": ["e"], "colour": "red"}),
        ("run", {"name": "e", "colour": "red"}),
    ],
)
def test_a_bad_field_is_refused(fixture: BrokerFixture, name: str, body: dict[str, Any]) -> None:
    put(fixture, "e")
    with pytest.raises(BadRequest):
        call(fixture, name, **body)


def test_another_kind_of_topic_has_no_entries() -> None:
    fixture = BrokerFixture()
    try:
        with pytest.raises(BadRequest, match=r"topic: a topic of kind cron, got: 't \(timeline\)'"):
            call(fixture, "list")
        with pytest.raises(BadRequest, match="topic: the name of a topic"):
            call(fixture, "list", topic=5)
    finally:
        fixture.stop()


def test_of_several_entries_none_is_put_if_one_is_wrong(fixture: BrokerFixture) -> None:
    good = CronEntry("good", every_ms=HOUR).to_dict()
    for wrong in (
        CronEntry("never", cron="0 0 30 2 *"),
        CronEntry("large", every_ms=HOUR, payload=b"x" * (5 << 20)),
        CronEntry("both", cron="* * * * *", every_ms=HOUR),
    ):
        with pytest.raises(BadRequest):
            call(fixture, "put", entries=[good, wrong.to_dict()])
    assert listed(fixture) == []


# --- pages, and where entries are


def test_pages_are_by_name_over_all_partitions() -> None:
    fixture = BrokerFixture(kind=TopicKind.CRON, partitions=3)
    try:
        names = [f"entry-{number:02d}" for number in range(12)]
        put(fixture, *reversed(names))
        assert listed(fixture) == names
        assert listed(fixture, limit=5) == names[:5]
        assert listed(fixture, limit=5, after=names[4]) == names[5:10]
        assert listed(fixture, after=names[-1]) == []
    finally:
        fixture.stop()


def test_an_entry_stays_where_it_is_when_partitions_are_added() -> None:
    """A second one of its name elsewhere would fire beside it."""
    fixture = BrokerFixture(kind=TopicKind.CRON)
    try:
        names = [f"entry-{number:02d}" for number in range(12)]
        put(fixture, *names)
        fixture.broker.alter_topic(TOPIC, {"partitions": 4})
        put(fixture, *names, every_ms=2 * HOUR)
        assert listed(fixture) == names
        assert {call(fixture, "get", name=n)["entries"][0]["every_ms"] for n in names} == {2 * HOUR}
        assert call(fixture, "drop", names=names) == {"dropped": 12}
        assert listed(fixture) == []
    finally:
        fixture.stop()


# --- changes


def test_a_change_that_does_not_touch_the_times_leaves_them(fixture: BrokerFixture) -> None:
    [before] = put(fixture, "e")
    fixture.advance(HOUR // 2)
    [after] = put(fixture, "e", every_ms=HOUR, payload=b"other")
    assert (after["next_ms"], after["start_ms"]) == (before["next_ms"], before["start_ms"])
    assert after["payload"] != before["payload"]


def test_another_interval_is_counted_from_now(fixture: BrokerFixture) -> None:
    put(fixture, "e")
    fixture.advance(HOUR // 2)
    [after] = put(fixture, "e", every_ms=3 * HOUR)
    assert after["start_ms"] == fixture.now_ms
    assert after["next_ms"] == fixture.now_ms + 3 * HOUR


def test_what_passed_while_it_was_paused_was_not_missed(fixture: BrokerFixture) -> None:
    [made] = put(fixture, "e")
    [paused] = call(fixture, "pause", names=["e"])["entries"]
    assert (paused["paused"], paused["next_ms"]) == (True, -1)
    fixture.advance(3 * HOUR + 1)
    [resumed] = call(fixture, "pause", names=["e"], paused=False)["entries"]
    assert resumed["next_ms"] == made["next_ms"] + 3 * HOUR
    assert fixture.peek() == []


def test_answers_are_in_the_order_asked__each_name_once(fixture: BrokerFixture) -> None:
    put(fixture, "a", "b")
    found = call(fixture, "pause", names=["b", "a", "b"])["entries"]
    assert [one["name"] for one in found] == ["b", "a"]


def test_dropping_counts_what_there_was(fixture: BrokerFixture) -> None:
    put(fixture, "a", "b")
    assert call(fixture, "drop", names=["a", "nobody"]) == {"dropped": 1}
    assert listed(fixture) == ["b"]


def test_run_makes_a_message_at_once__and_the_schedule_stays(fixture: BrokerFixture) -> None:
    [made] = put(fixture, "e", every_ms=HOUR, payload=b"p", jitter_ms=HOUR // 2)
    found = call(fixture, "run", name="e")
    [row] = fixture.peek()
    assert (row["id"], row["due"], row["payload"]) == (found["id"], fixture.now_ms, b"p")
    [after] = call(fixture, "get", name="e")["entries"]
    assert (after["next_ms"], after["last_id"]) == (made["next_ms"], found["id"])


def test_messages_are_those_of_who_put_the_entry__also_after_another_paused_it(
    fixture: BrokerFixture,
) -> None:
    ada, bob = Sender("ada"), Sender("bob")
    entries = [CronEntry("e", every_ms=HOUR).to_dict()]
    call(fixture, "put", ada, entries=entries)
    call(fixture, "pause", bob, names=["e"])
    call(fixture, "run", bob, name="e")
    whose = fixture.broker.runtime(TOPIC).look(
        0, lambda core: core.engine.senders(next(core.engine.live_sequences()))
    )
    found = whose.result(10)
    assert found is not None
    assert found.names == ("ada",)


# --- previews


def test_a_preview_asks_no_topic__and_has_a_most(fixture: BrokerFixture) -> None:
    entry = CronEntry("e", every_ms=HOUR).to_dict()
    body = {"entry": entry, "count": 3}
    found = act(fixture.broker.runtime, fixture.now_ms, "cron_next", body)["firings"]
    assert found == [fixture.now_ms + n * HOUR for n in (1, 2, 3)]
    put(fixture, "known")
    assert call(fixture, "next", name="known", count=1)["firings"] == found[:1]
    assert call(fixture, "next", name="known", after_ms=found[1], count=1)["firings"] == [found[2]]


def test_a_preview_ends_where_the_entry_does() -> None:
    entry = CronEntry("e", every_ms=HOUR, start_ms=HOUR, end_ms=3 * HOUR + 1).check()
    assert preview(entry, after_ms=0, count=10) == [HOUR, 2 * HOUR, 3 * HOUR]
    assert preview(entry, after_ms=HOUR, count=1) == [2 * HOUR]
