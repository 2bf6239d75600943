"""Browsing: pages, counts, histograms, and changes by filter, of a broker on a virtual clock."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.broker.calls import by_filter
from dejaqueue.errors import BadRequest
from tests.rules import test_rule_12_transactions as transactions
from tests.rules.broker_fixture import TOPIC, BrokerFixture
from tests.rules.conftest import MakeBroker

KINDS = ["timeline", "priority", "fair"]


def send(broker: BrokerFixture, rows: list[tuple[str, int, str, list[str]]]) -> list[int]:
    """Send (payload, due in ms from now, group, tags) rows."""
    payloads, dues, groups, tags = zip(*rows, strict=True)
    columns = {
        "payload": pa.array([text.encode() for text in payloads]),
        "due": pa.array([broker.now_ms + due for due in dues]),
        "group": pa.array(groups),
        "tags": pa.array(tags, pa.list_(pa.utf8())),
    }
    ids: list[int] = broker.write("enqueue", columns).all_ids().tolist()
    return ids


def peeked(broker: BrokerFixture, limit: int = 100, **ticket: Any) -> list[str]:
    """The payloads of all pages."""
    found: list[str] = []
    ticket |= {"topic": TOPIC, "limit": limit}
    while True:
        page = next(broker.broker.read("peek", ticket)[1])
        assert page.num_rows <= limit
        found += [payload.decode() for payload in page["payload"].to_pylist()]
        following = (page.schema.metadata or {}).get(b"next")
        if following is None:
            return found
        ticket["after"] = json.loads(following)


ROWS = [
    ("a1", 0, "a", ["x"]),
    ("b1", 0, "b", []),
    ("a2", 300, "a", ["x", "y"]),
    ("n1", 200, "", ["y"]),
    ("a3", 100, "a", []),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("limit", [1, 2, 100])
def test_every_message_is_in_one_page(
    make_broker: MakeBroker, kind: str, partitions: int, limit: int
) -> None:
    broker = make_broker(kind=kind, partitions=partitions)
    for row in ROWS:
        send(broker, [row])
    consumer = broker.consumer(holds=False, credit=1)
    (leased,) = consumer.payloads()
    every = sorted(row[0] for row in ROWS)
    assert sorted(peeked(broker, limit)) == every
    assert sorted(peeked(broker, limit, group="a")) == ["a1", "a2", "a3"]
    assert sorted(peeked(broker, limit, group="")) == ["n1"]
    assert peeked(broker, limit, group="never") == []
    assert peeked(broker, limit, state="leased") == [leased.decode()]
    ready = sorted({"a1", "b1"} - {leased.decode()})
    assert sorted(peeked(broker, limit, state="ready")) == ready
    assert sorted(peeked(broker, limit, state="scheduled")) == [
        n for n in every if n.encode() != leased
    ]
    assert sorted(peeked(broker, limit, tags_any=["x", "y"])) == ["a1", "a2", "n1"]
    assert sorted(peeked(broker, limit, tags_all=["x", "y"])) == ["a2"]
    assert sorted(peeked(broker, limit, tags_any=["x"], tags_none=["y"])) == ["a1"]
    window = {"due_from": broker.now_ms + 100, "due_to": broker.now_ms + 300}
    assert sorted(peeked(broker, limit, **window)) == ["a3", "n1"]


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_timeline_is_shown_in_its_order(make_broker: MakeBroker, partitions: int) -> None:
    broker = make_broker(partitions=partitions)
    for row in ROWS[2:]:
        send(broker, [row])
    assert peeked(broker, 1) == ["a3", "n1", "a2"]


@pytest.mark.one_process("looks into a broker")
def test_a_rare_group_is_found_over_many_short_pages(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker()
    monkeypatch.setattr("dejaqueue.broker.calls.peek.PAGE_ENTRIES_MAX", 1)
    send(broker, [(f"m{n}", n, "rare" if n == 9_000 else "often", []) for n in range(10_000)])
    ticket: dict[str, Any] = {"topic": TOPIC, "group": "rare", "limit": 10}
    pages = 1
    page = next(broker.broker.read("peek", ticket)[1])
    assert page.num_rows == 0
    assert page.schema.metadata is not None
    while page.schema.metadata:
        ticket["after"] = json.loads(page.schema.metadata[b"next"])
        page = next(broker.broker.read("peek", ticket)[1])
        pages += 1
        if page.num_rows:
            assert page["payload"].to_pylist() == [b"m9000"]
    assert pages == 3


@pytest.mark.one_broker("each shard gives a consumer a message of its credit")
def test_counts_by_state_group_and_tag(make_broker: MakeBroker) -> None:
    broker = make_broker(partitions=2)
    for row in ROWS:
        send(broker, [row])
    broker.consumer(holds=False, credit=1).payloads()

    def counts(**values: Any) -> dict[str, Any]:
        return broker.broker.call("counts", {"topic": TOPIC, **values})

    states = {row["state"]: row["count"] for row in counts()["rows"]}
    assert states == {
        "scheduled": 4, "ready": 1, "leased": 1, "dead": 0, "staged": 0, "staged_ack": 0,
    }  # fmt: skip
    first = counts(by="group", limit=1)
    assert first["rows"] == [{"group": "a", "count": 3}]
    second = counts(by="group", limit=1, after=first["next"])
    assert second == {"rows": [{"group": "b", "count": 1}], "next": None}
    tags = counts(by="tag")["rows"]
    assert tags == [{"tag": "x", "count": 2}, {"tag": "y", "count": 2}]
    broker.broker.call("cancel_where", {"topic": TOPIC, "tags_any": ["y"]})
    assert counts(by="tag")["rows"] == [{"tag": "x", "count": 1}]


@pytest.mark.parametrize("kind", KINDS)
def test_a_histogram_before_and_after_messages_are_gone(make_broker: MakeBroker, kind: str) -> None:
    broker = make_broker(kind=kind, partitions=2)
    now = broker.now_ms
    ids = [id_ for n in range(20) for id_ in send(broker, [("m", n, "ab"[n % 2], [])])]

    def histogram(**values: Any) -> tuple[list[int], int]:
        window = {"due_from": now, "due_to": now + 20, "bucket_ms": 8}
        answer = broker.broker.call("histogram", {"topic": TOPIC, **window, **values})
        return answer["counts"], answer["error_max"]

    assert histogram() == ([8, 8, 4], 0)
    assert histogram(group="a") == ([4, 4, 2], 0)
    assert histogram(due_from=now + 10, bucket_ms=100) == ([10], 0)
    broker.cancel(ids[:3])
    assert histogram() == ([5, 8, 4], 0)
    counts, error_max = histogram(exact=False)
    assert sum(counts) - 17 <= error_max <= 3
    assert all(rough >= right for rough, right in zip(counts, [5, 8, 4], strict=True))


def change(broker: BrokerFixture, name: str, **values: Any) -> int:
    """Ask until all is done; how many were changed."""
    count: int = 0
    after = None
    while True:
        call = partial(broker.broker.call, name)
        answer = call({"topic": TOPIC, "after": after, **values})
        count += answer["count"]
        after = answer["next"]
        if after is None:
            return count


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", [(0, None), (0, 100), (50, 150), (50, None)])
@pytest.mark.parametrize("more", [{}, {"state": "scheduled"}, {"group": "a"}])
def test_a_dry_run_counts_what_would_be_changed(
    make_broker: MakeBroker, kind: str, window: tuple[int, int | None], more: dict[str, Any]
) -> None:
    broker = make_broker(kind=kind, partitions=2)
    now = broker.now_ms
    for part in range(4):
        send(broker, [(f"m{part}", 10 * n, "ab"[n % 2], []) for n in range(20)])
    due_from, due_to = window
    asked = more | ({} if due_to is None else {"due_to": now + due_to})
    if due_from:
        asked = asked | {"due_from": now + due_from}
    count = change(broker, "cancel_where", dry_run=True, **asked)
    assert change(broker, "move_where", by_ms=50, dry_run=True, **asked) == count
    assert count > 0
    assert change(broker, "cancel_where", **asked) == count


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_is_moved_by_an_hour_each_message_once(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("dejaqueue.limits.CHANGE_ROWS_MAX", 7)
    monkeypatch.setattr(by_filter, "CALL_COMMANDS_MAX", 2)
    broker = make_broker(kind=kind, partitions=2)
    now = broker.now_ms
    for part in range(4):
        send(broker, [(f"m{part}", 10 * n, "ab"[n % 2], []) for n in range(20)])
    window = {"due_from": now + 100, "due_to": now + 200}
    asked: dict[str, Any] = {"group": "a", **window}
    assert change(broker, "move_where", by_ms=50, dry_run=True, **asked) == 20
    assert len(peeked(broker, **asked)) == 20
    # 100, 120 … 180 become 150, 170 … 230: a second look at what was moved would move it again.
    assert change(broker, "move_where", by_ms=50, **asked) == 20
    page = next(
        broker.broker.read(
            "peek", {"topic": TOPIC, "group": "a", "due_from": now + 100, "limit": 100}
        )[1]
    )
    dues = sorted(due - now for due in page["due"].to_pylist())
    assert dues == sorted([150, 170, 190, 210, 230] * 4)
    assert change(broker, "move_where", by_ms=-1_000_000, group="b") == 40
    assert len(peeked(broker, group="b", state="ready")) == 40


@pytest.mark.one_broker("shards walk side by side, each in pieces of its own")
def test_a_shift_goes_on_after_a_restart_where_it_was_broken_off(
    on_files: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dejaqueue.limits.CHANGE_ROWS_MAX", 7)
    monkeypatch.setattr(by_filter, "CALL_COMMANDS_MAX", 2)
    broker = on_files(partitions=2)
    now = broker.now_ms
    for _ in range(2):
        send(broker, [(f"m{n}", n, "a", []) for n in range(30)])
    asked: dict[str, Any] = {"topic": TOPIC, "by_ms": 5, "after": None}
    answers = [broker.broker.call("move_where", asked)]
    while answers[-1]["next"] is not None:
        broker.restart()
        send(broker, [("too late", 500, "a", [])])
        answers.append(broker.broker.call("move_where", asked | {"after": answers[-1]["next"]}))
    counts = [answer["count"] for answer in answers]
    assert counts[:4] == [14, 14, 2 + 7, 14]
    # The second partition's walk began later, and may have met one that came before that.
    assert sum(counts) - 60 in (0, 1, 2)
    page = next(broker.broker.read("peek", {"topic": TOPIC, "due_to": now + 100, "limit": 100})[1])
    assert page["due"].to_pylist() == [now + 5 + n for n in range(30) for _ in range(2)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_goes_evenly_into_a_window__each_message_once_and_in_order(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The window overlaps what is selected: a second look at what was moved would move it again."""
    monkeypatch.setattr("dejaqueue.limits.CHANGE_ROWS_MAX", 7)
    monkeypatch.setattr(by_filter, "CALL_COMMANDS_MAX", 2)
    broker = make_broker(kind=kind, partitions=2)
    now = broker.now_ms
    for part in range(4):
        send(broker, [(f"{n:02}", 10 * n + part, "ab"[n % 2], []) for n in reversed(range(20))])
    asked: dict[str, Any] = {"group": "a", "due_from": now + 60}
    window = {"window_from": now + 100, "window_to": now + 1_500}
    assert change(broker, "move_where", dry_run=True, **window, **asked) == 28
    assert change(broker, "move_where", **window, **asked) == 28
    assert change(broker, "move_where", due=now + 5_000, group="a", due_from=now + 1_500) == 0
    page = next(broker.broker.read("peek", {"topic": TOPIC, "group": "a", "due_from": now + 60})[1])
    moved = sorted(zip(page["due"].to_pylist(), page["payload"].to_pylist(), strict=True))
    assert [due - now for due, _ in moved] == list(range(100, 1_500, 50))
    for number in range(2):  # each partition keeps the order of its own
        of_one = [
            (due, payload)
            for due, payload, one in zip(
                page["due"].to_pylist(), page["payload"].to_pylist(), page["id"].to_pylist(),
                strict=True,
            )
            if one >> limits.SEQUENCE_BITS == number
        ]  # fmt: skip
        assert [payload for _, payload in sorted(of_one)] == sorted(p for _, p in of_one)


@pytest.mark.one_process("looks into a broker")
def test_a_window_goes_on_after_a_restart__and_may_be_asked_for_again(
    on_files: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dejaqueue.limits.CHANGE_ROWS_MAX", 7)
    monkeypatch.setattr(by_filter, "CALL_COMMANDS_MAX", 2)
    broker = on_files()
    now = broker.now_ms
    send(broker, [(f"{n:02}", 10 + n, "a", []) for n in range(40)])
    even = [now + 100 * n for n in range(40)]
    asked = {"topic": TOPIC, "window_from": now, "window_to": now + 4_000, "after": None}

    def dues() -> list[int]:
        page = next(broker.broker.read("peek", {"topic": TOPIC})[1])
        return sorted(page["due"].to_pylist())

    answers = [broker.broker.call("move_where", asked)]
    while answers[-1]["next"] is not None:
        broker.restart()
        answers.append(broker.broker.call("move_where", asked | {"after": answers[-1]["next"]}))
    assert [answer["count"] for answer in answers] == [14, 14, 12]
    assert dues() == even
    # The answer to the second piece was lost, they say: all stay in the window.
    broker.broker.call("move_where", asked | {"after": answers[0]["next"]})
    assert all(now <= due < now + 4_000 for due in dues())
    assert change(broker, "move_where", window_from=now, window_to=now + 4_000) == 40
    assert dues() == even


@pytest.mark.one_process("looks into a broker")
def test_a_window_for_more_than_is_kept_in_memory_is_refused(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dejaqueue.limits.WINDOW_ROWS_MAX", 3)
    broker = make_broker()
    send(broker, [("x", n, "a", []) for n in range(4)])
    with pytest.raises(BadRequest, match="at most 3 messages of one partition"):
        change(broker, "move_where", window_from=0, window_to=5)


def test_group_and_priority_of_many_change(make_broker: MakeBroker) -> None:
    broker = make_broker(kind="priority")
    send(broker, [("low", 0, "a", []), ("high", 0, "b", [])])
    asked: dict[str, Any] = {"group": "b", "set_group": "c", "set_priority": 3}
    assert change(broker, "move_where", **asked) == 1
    assert peeked(broker, group="c", priority_to=3) == ["high"]
    assert peeked(broker, group="b") == []
    assert broker.consumer(holds=False).payloads() == [b"high", b"low"]


@pytest.mark.parametrize("kind", KINDS)
def test_everything_that_is_not_leased_is_cancelled_and_stays_so(
    on_files: MakeBroker, kind: str
) -> None:
    broker = on_files(kind=kind, partitions=2)
    for part in range(4):
        send(broker, [(f"m{part}", 10 * n, "a", []) for n in range(5)])
    consumer = broker.consumer(holds=False, credit=1)
    (got,) = consumer.take_all()
    assert change(broker, "cancel_where", group="b") == 0
    assert change(broker, "cancel_where") == 19
    assert peeked(broker) == [payload.decode() for payload in got.payloads]
    consumer.ack(got)
    hashes = broker.state_hashes()
    assert hashes
    broker.restart()
    assert peeked(broker) == []
    assert send(broker, [("new", 0, "a", [])])
    assert peeked(broker) == ["new"]


def test_what_a_transaction_staged_is_shown_only_if_asked_for(make_broker: MakeBroker) -> None:
    broker = make_broker()
    send(broker, [("input", 0, "a", []), ("other", 0, "a", [])])
    (got,) = broker.consumer(holds=False, credit=1).take_all()
    name = transactions.begin(broker)
    transactions.send(broker, name, [b"output"])
    transactions.ack(broker, name, got)
    assert peeked(broker) == ["other"]
    assert peeked(broker, state="staged") == ["output"]
    assert peeked(broker, state="staged_ack") == ["input"]
    states = {
        row["state"]: row["count"] for row in broker.broker.call("counts", {"topic": TOPIC})["rows"]
    }
    assert (states["staged"], states["staged_ack"], states["ready"]) == (1, 1, 1)
    assert change(broker, "cancel_where") == 1
    transactions.decide(broker, name, f"{TOPIC}/0")
    assert peeked(broker) == ["output"]


@pytest.mark.parametrize(
    ("name", "values", "field"),
    [
        ("peek", {"state": "asleep"}, "state"),
        ("peek", {"group": 5}, "group"),
        ("peek", {"tags_any": "mail"}, "tags_any"),
        ("peek", {"colour": "red"}, "colour"),
        ("peek", {"after": {"due": "x", "id": 1}}, "after"),
        ("peek", {"due_to": -1}, "due_to"),
        ("counts", {"by": "colour"}, "by"),
        ("counts", {"after": 7}, "after"),
        ("counts", {"limit": 0}, "limit"),
        ("histogram", {"due_from": 0, "due_to": 10, "bucket_ms": 0}, "bucket_ms"),
        ("histogram", {"due_from": 10, "due_to": 10, "bucket_ms": 1}, "due_to"),
        ("histogram", {"due_from": 0, "due_to": 10**9, "bucket_ms": 1}, "bucket_ms"),
        ("histogram", {"due_from": 0, "due_to": 10}, "bucket_ms"),
        ("move_where", {"group": "a"}, "due"),
        ("move_where", {"due": 5, "by_ms": 5}, "by_ms"),
        ("move_where", {"set_priority": 70_000}, "set_priority"),
        ("move_where", {"set_group": "x" * 300}, "set_group"),
        ("move_where", {"due": 5, "state": "leased"}, "state"),
        ("cancel_where", {"due": 5}, "due"),
        ("cancel_where", {"dry_run": 1}, "dry_run"),
        ("cancel_where", {"after": {"partition": 9, "first": 0, "end": 0}}, "partition"),
        ("cancel_where", {"topic": 7}, "topic"),
    ],
)
def test_wrong_questions_are_refused_by_name(
    make_broker: MakeBroker, name: str, values: dict[str, Any], field: str
) -> None:
    broker = make_broker()
    with pytest.raises(BadRequest, match=rf"^{field}\b"):
        asked = broker.broker.read if name == "peek" else broker.broker.call
        asked(name, {"topic": TOPIC, **values})
