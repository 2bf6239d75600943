"""Calls about a topic in shards: who is asked what, and how the answers become one.

Not covered: brokers that answer (tests/cluster/test_spread.py).
"""

from __future__ import annotations

import json
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.client.shards.calls import NEXT, ShardCalls
from dejaqueue.errors import BadRequest, DejaQError, Refused
from dejaqueue.schema.shards import shards_of_texts
from dejaqueue.topic_names import parse_shard

Body = dict[str, Any]
SPREAD = 3


class Shards:
    """Answers the calls about each shard; notes what was asked."""

    def __init__(self, *answers: Any, kind: str = "timeline") -> None:
        self.asked: list[tuple[int, Body]] = []
        self._answers = answers
        self._kind = kind
        self.calls = ShardCalls("t", SPREAD, self._action, self._rows)

    def _action(self, name: str, body: Body) -> Future[Body]:
        if name == "describe_topic":
            return _done({"kind": self._kind})
        return _done(self._answer(body))

    def _rows(self, ticket: Body) -> Future[pa.Table]:
        return _done(self._answer(ticket))

    def _answer(self, body: Body) -> Any:
        shard = parse_shard(str(body["topic"]))
        assert shard is not None
        assert shard[0] == "t"
        assert shard[2] == SPREAD
        self.asked.append((shard[1], {n: v for n, v in body.items() if n != "topic"}))
        answer = self._answers[shard[1]]
        return answer(body) if callable(answer) else answer


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


# --- looking ----------------------------------------------------------------------------------


def test_stats_are_sums__each_partition_at_its_own_number() -> None:
    def answer(shard: int, due_ms: int, numbers: list[int]) -> Body:
        partitions = [{"partition": number} for number in numbers]
        return {
            "topic": f"t={shard}-3",
            "live": 10 + shard,
            "next_due_ms": due_ms,
            "consumers": [{"name": "c"}],
            "partitions": partitions,
        }

    shards = Shards(answer(0, -1, [0, 3]), answer(1, 70, [1]), answer(2, 50, [2]))
    found = shards.calls.act("stats", {"topic": "t"})
    assert (found["topic"], found["live"], found["next_due_ms"]) == ("t", 33, 50)
    assert [one["partition"] for one in found["partitions"]] == [0, 1, 2, 3]
    assert found["consumers"] == [{"name": "c", "shard": shard} for shard in range(3)]


def test_notes_of_writes_are_kept_by_the_first_shard() -> None:
    shards = Shards({}, {}, {})
    note = {"label": "w", "counts": {"OK": 2}}
    assert shards.calls.act("note_write", {"topic": "t", **note}) == {}
    assert shards.calls.act("writes", {"topic": "t", "label": "w"}) == {}
    assert shards.asked == [(0, note), (0, {"label": "w"})]


def test_nothing_is_due_in_any_shard__the_next_due_time_is_none() -> None:
    empty = {"topic": "x", "next_due_ms": -1, "consumers": [], "partitions": []}
    assert Shards(empty, empty, empty).calls.act("stats", {"topic": "t"})["next_due_ms"] == -1


def test_lists_are_joined__partitions_in_order() -> None:
    answers = [{"topic": "x", "partitions": [{"partition": number}]} for number in (2, 0, 1)]
    found = Shards(*answers).calls.act("scan_ranges", {"topic": "t"})
    assert found == {"topic": "t", "partitions": [{"partition": number} for number in range(3)]}


def test_a_histogram_adds_counts_and_errors() -> None:
    answers = [{"bucket_ms": 5, "counts": [1, shard], "error_max": shard} for shard in range(3)]
    found = Shards(*answers).calls.act("histogram", {"topic": "t"})
    assert found == {"bucket_ms": 5, "counts": [3, 3], "error_max": 3}


def test_what_is_due_soon_is_a_sum() -> None:
    one = {"topic": "x", "within_ms": 5, "due": 3, "ready": 1, "scheduled": 2, "leased": 4}
    found = Shards(*[one | {"error_max": 1}] * 3).calls.act("due", {"topic": "t"})
    assert found == {
        "topic": "t", "within_ms": 5, "due": 9, "ready": 3, "scheduled": 6, "leased": 12,
        "error_max": 3,
    }  # fmt: skip


def test_counts_by_state_are_sums() -> None:
    rows = [{"state": "scheduled", "count": 2}, {"state": "leased", "count": 1}]
    answer = {"rows": rows, "next": None}
    found = Shards(answer, answer, answer).calls.act("counts", {"topic": "t"})
    expected = [{"state": "scheduled", "count": 6}, {"state": "leased", "count": 3}]
    assert found == {"rows": expected, "next": None}


def test_counts_by_group_rank_the_sums__and_a_page_goes_on_where_one_ended() -> None:
    def counts(**of: int) -> Body:
        return {"rows": [{"group": g, "count": n} for g, n in of.items()], "next": None}

    shards = Shards(counts(a=5, b=1), counts(b=9), counts(c=5))
    body: Body = {"topic": "t", "by": "group", "limit": 2}
    first = shards.calls.act("counts", body)
    # b has most of all, though the first shard has least of it; equal counts go by name.
    assert first["rows"] == [{"group": "b", "count": 10}, {"group": "a", "count": 5}]
    second = shards.calls.act("counts", body | {"after": first["next"]})
    assert second == {"rows": [{"group": "c", "count": 5}], "next": None}


def test_counts_of_a_shard_are_fetched_to_their_end() -> None:
    def long(body: Body) -> Body:
        if body.get("after") is None:
            there = {"count": 2, "name": "a"}
            return {"rows": [{"tag": "a", "count": 2}], "next": there}
        return {"rows": [{"tag": "b", "count": 1}], "next": None}

    empty: Body = {"rows": [], "next": None}
    found = Shards(long, empty, empty).calls.act("counts", {"topic": "t", "by": "tag"})
    assert found["rows"] == [{"tag": "a", "count": 2}, {"tag": "b", "count": 1}]


# --- changing ---------------------------------------------------------------------------------


def test_a_change_by_filter_goes_through_one_shard_after_the_other() -> None:
    def two_pages(body: Body) -> Body:
        return {"count": 1, "next": "there" if body["after"] is None else None}

    last = {"count": 7, "next": None}
    shards = Shards(two_pages, last, last)
    count, after, places = 0, None, []
    while True:
        answer = shards.calls.act("cancel_where", {"topic": "t", "after": after})
        count, after = count + answer["count"], answer["next"]
        places.append(after)
        if after is None:
            break
    assert count == 1 + 1 + 7 + 7
    assert [(shard, body["after"]) for shard, body in shards.asked] == [
        (0, None),
        (0, "there"),
        (1, None),
        (2, None),
    ]


def test_a_dry_run_asks_all_shards_at_once() -> None:
    answers = [{"count": shard, "next": None} for shard in range(3)]
    body = {"topic": "t", "dry_run": True}
    assert Shards(*answers).calls.act("move_where", body) == {"count": 3, "next": None}


@pytest.mark.parametrize(
    "after", ["there", 1, {"shard": 3, "after": None}, {"shard": True, "after": None}, {"shard": 0}]
)
def test_a_place_that_no_answer_gave_is_refused(after: Any) -> None:
    shards = Shards({}, {}, {})
    with pytest.raises(BadRequest, match="^after"):
        shards.calls.act("redrive", {"topic": "t", "after": after})
    assert shards.asked == []


def test_a_call_that_cannot_be_made_across_shards_is_refused_and_asks_nobody() -> None:
    shards = Shards({}, {}, {})
    with pytest.raises(Refused, match="spread over brokers"):
        shards.calls.act("of_a_newer_broker", {"topic": "t"})
    assert shards.asked == []


def test_who_has_nothing_in_any_shard_stands_by() -> None:
    idle = (["x", "y"], ["y", "z"], ["y"])
    answers = [{"topic": "t", "partitions": [], "standby": names} for names in idle]
    found = Shards(*answers).calls.act("assignments", {"topic": "t"})
    assert found["standby"] == ["y"]


# --- claims -----------------------------------------------------------------------------------


def test_a_claim_goes_to_the_shard_of_its_partition() -> None:
    shards = Shards({}, {}, {"claim": 5})
    assert shards.calls.act("claim", {"topic": "t", "partition": 5}) == {"claim": 5}
    assert shards.asked == [(2, {"partition": 5})]


@pytest.mark.parametrize("partition", [None, "1", True, -1])
def test_what_is_no_partition_is_refused(partition: Any) -> None:
    with pytest.raises(BadRequest, match="^partition"):
        Shards({}, {}, {}).calls.act("claim", {"topic": "t", "partition": partition})


def test_claims_of_several_partitions_are_dealt_out__what_was_lost_comes_together() -> None:
    shards = Shards({"lost": {"3": [9]}}, {"lost": {"1": [8]}}, {"lost": {}})
    claims = {"0": [1], "1": [8], "3": [9]}
    found = shards.calls.act("ack_claims", {"topic": "t", "claims": claims})
    assert found == {"lost": {"3": [9], "1": [8]}}
    assert shards.asked == [(0, {"claims": {"0": [1], "3": [9]}}), (1, {"claims": {"1": [8]}})]


@pytest.mark.parametrize(
    "claims", [None, [1], {"one": [1]}, {"²": [1]}, {"٣": [1]}, {"1" * 5_000: [1]}]
)
def test_what_are_no_claims_is_refused(claims: Any) -> None:
    with pytest.raises(BadRequest, match="^claims"):
        Shards({}, {}, {}).calls.act("extend_claims", {"topic": "t", "claims": claims})


# --- cron -------------------------------------------------------------------------------------

NAMES = ["daily", "weekly", "hourly", "yearly"]


def echo(body: Body) -> Body:
    entries = body.get("entries") or [{"name": name} for name in body["names"]]
    return {"entries": entries}


def test_each_entry_goes_where_its_name_belongs__answers_come_as_they_were_given() -> None:
    shards = Shards(echo, echo, echo)
    entries = [{"name": name, "cron": "* * * * *"} for name in NAMES]
    found = shards.calls.act("cron_put", {"topic": "t", "entries": entries})
    assert found == {"entries": entries}
    sent = {one["name"]: shard for shard, body in shards.asked for one in body["entries"]}
    assert sent == dict(zip(NAMES, shards_of_texts(NAMES, SPREAD), strict=True))
    assert len(set(sent.values())) > 1


def test_dropped_entries_are_counted_over_all_shards() -> None:
    def count(body: Body) -> Body:
        return {"dropped": len(body["names"])}

    body = {"topic": "t", "names": NAMES}
    assert Shards(count, count, count).calls.act("cron_drop", body) == {"dropped": len(NAMES)}


def test_one_entry_is_asked_of_its_own_shard() -> None:
    shards = Shards({}, {}, {})
    shards.calls.act("cron_run", {"topic": "t", "name": "daily"})
    assert [shard for shard, _ in shards.asked] == shards_of_texts(["daily"], SPREAD)


def test_a_page_of_entries_is_by_name_and_no_longer_than_asked() -> None:
    pages = [{"entries": [{"name": a}, {"name": b}]} for a, b in ("ad", "be", "cf")]
    found = Shards(*pages).calls.act("cron_list", {"topic": "t", "limit": 4})
    assert [entry["name"] for entry in found["entries"]] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("cron_put", {"entries": "daily"}),
        ("cron_put", {"entries": [{"cron": "* * * * *"}]}),
        ("cron_pause", {"names": "daily"}),
        ("cron_drop", {"names": [5]}),
    ],
)
def test_entries_without_names_are_refused(name: str, body: Body) -> None:
    with pytest.raises(DejaQError, match=r"entr|names"):
        Shards(echo, echo, echo).calls.act(name, {"topic": "t", **body})


# --- rows -------------------------------------------------------------------------------------


def page(*rows: tuple[int, int], next_row: tuple[int, int] | None = None) -> pa.Table:
    dues, ids = [due for due, _ in rows], [number for _, number in rows]
    table = pa.table({"due": pa.array(dues, pa.int64()), "id": pa.array(ids, pa.int64())})
    if next_row is None:
        return table
    there = json.dumps({"due": next_row[0], "id": next_row[1]})
    return table.replace_schema_metadata({NEXT: there})


def rows_of(table: pa.Table) -> list[tuple[int, int]]:
    return list(zip(table["due"].to_pylist(), table["id"].to_pylist(), strict=True))


def test_rows_of_all_shards_come_by_due_time() -> None:
    shards = Shards(page((1, 10), (7, 11)), page((3, 20)), page())
    assert rows_of(shards.calls.peek({"topic": "t"})) == [(1, 10), (3, 20), (7, 11)]


def test_rows_come_by_id__in_a_topic_without_due_times() -> None:
    shards = Shards(page((1, 30)), page((3, 20)), page(), kind="priority")
    assert rows_of(shards.calls.peek({"topic": "t"})) == [(3, 20), (1, 30)]


def test_nothing_is_shown_from_behind_the_end_of_a_page() -> None:
    # The first shard has looked as far as 4: what the second has at 9 may not be the next.
    shards = Shards(page((1, 10), (4, 11), next_row=(4, 11)), page((3, 20), (9, 21)), page())
    found = shards.calls.peek({"topic": "t"})
    assert rows_of(found) == [(1, 10), (3, 20), (4, 11)]
    assert json.loads(found.schema.metadata[NEXT]) == {"due": 4, "id": 11}


def test_a_page_is_no_longer_than_asked__and_says_where_it_ended() -> None:
    shards = Shards(page((1, 10), (7, 11)), page((3, 20), (5, 21)), page())
    found = shards.calls.peek({"topic": "t", "limit": 2})
    assert rows_of(found) == [(1, 10), (3, 20)]
    assert json.loads(found.schema.metadata[NEXT]) == {"due": 3, "id": 20}


def test_rows_of_one_partition_are_asked_of_its_shard_alone() -> None:
    shards = Shards(page(), page((1, 10)), page())
    assert rows_of(shards.calls.peek({"topic": "t", "partition": 4})) == [(1, 10)]
    assert shards.asked == [(1, {"partition": 4})]
