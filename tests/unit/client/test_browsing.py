"""Requests and answers of browsing: checked before they are sent, fetched in pieces."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.client import browsing
from dejaqueue.errors import BadRequest
from tests.unit.client.fake_transport import FakeTransport

NEW_YEAR = datetime(1970, 1, 1, 1, tzinfo=UTC)


def test_a_filter_as_it_travels() -> None:
    fields = browsing.check_where(
        "t",
        {
            "due_from": NEW_YEAR,
            "due_to": None,
            "state": "ready",
            "group": "",
            "tags_any": ("a", "b"),
            "tags_all": (),
            "priority_to": 0,
        },
    )
    assert fields == {
        "topic": "t",
        "due_from": 3_600_000,
        "state": "ready",
        "group": "",
        "tags_any": ["a", "b"],
        "tags_all": [],
        "priority_to": 0,
    }


@pytest.mark.parametrize(
    ("by", "by_ms"), [(1.5, 1_500), (-2, -2_000), (timedelta(minutes=-1), -60_000), (0, 0)]
)
def test_a_shift_goes_both_ways(by: Any, by_ms: int) -> None:
    assert browsing.check_change("t", None, by, None, None, {})["by_ms"] == by_ms


@pytest.mark.parametrize(
    ("where", "field"),
    [
        ({"colour": "red"}, "colour"),
        ({"due_from": "now"}, "due_from"),
        ({"due_to": -1}, "due_to"),
        ({"state": "asleep"}, "state"),
        ({"group": 5}, "group"),
        ({"tags_any": "mail"}, "tags_any"),
        ({"tags_none": [5]}, "tags_none"),
    ],
)
def test_mistakes_are_named(where: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRequest, match=rf"^{field}\b"):
        browsing.check_where("t", where)


@pytest.mark.parametrize("by", ["1h", True, float("nan"), float("-inf")])
def test_what_is_no_shift(by: Any) -> None:
    with pytest.raises(BadRequest, match=r"^by\b"):
        browsing.check_change("t", None, by, None, None, {})


class Answers(FakeTransport):
    """Answers actions from a list."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        answered = list(answers)
        self.asked: list[dict[str, Any]] = []

        def answer(body: dict[str, Any]) -> dict[str, Any]:
            self.asked.append(body)
            return answered.pop(0)

        super().__init__(
            actions=dict.fromkeys(("counts", "histogram", "move_where", "cancel_where"), answer)
        )


def test_a_change_goes_on_until_all_is_done() -> None:
    there = {"partition": 0, "first": 9, "end": 20}
    transport = Answers({"count": 5, "next": there}, {"count": 2, "next": None})
    assert browsing.change(transport, "cancel_where", {"topic": "t"}, dry_run=False) == 7
    assert [body["after"] for body in transport.asked] == [None, there]


def test_counts_are_fetched_until_there_are_enough() -> None:
    there = {"count": 3, "name": "b"}
    rows = [{"group": "a", "count": 4}, {"group": "b", "count": 3}]
    transport = Answers(
        {"rows": rows, "next": there},
        {"rows": [{"group": "c", "count": 1}], "next": {"count": 1, "name": "c"}},
    )
    assert browsing.counts(transport, "t", "group", 3) == {"a": 4, "b": 3, "c": 1}
    assert [body["limit"] for body in transport.asked] == [3, 1]


def test_many_ids_are_asked_for_in_parts() -> None:
    transport = FakeTransport()
    transport.pages = [pa.table({"id": [1]}), pa.table({"id": [2]})]
    ticket = browsing.check_peek("t", 30_000, range(15_000), None, {})
    assert browsing.peek(transport, ticket, 30_000)["id"].to_pylist() == [1, 2]
    assert [len(asked["ids"]) for asked in transport.tickets] == [10_000, 5_000]


def test_a_histogram_says_when_its_buckets_begin() -> None:
    transport = Answers({"due_from": 5, "bucket_ms": 10, "counts": [1, 2], "error_max": 0})
    body = browsing.check_histogram("t", 0.01, {"due_from": 5, "due_to": 25}, exact=True)
    found = browsing.histogram(transport, body)
    assert (found.dues_ms.tolist(), found.counts.tolist(), len(found)) == ([5, 15], [1, 2], 2)
