"""Move and cancel over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.http.conftest import Api

LATER = "2030-01-01T00:00:00Z"
LATER_MS = 1_893_456_000_000


def statuses(found: dict[str, Any]) -> list[str]:
    return [row["status"] for row in found["messages"]]


def test_messages_are_moved_by_id_and_by_key(api: Api) -> None:
    first, second = api.send("a"), api.send("b", key="k")
    body = {"messages": [{"id": first, "due": LATER, "priority": 7, "group": "g"}]}
    assert api.post("/v1/topics/t/move", body) == {"messages": [{"id": first, "status": "OK"}]}
    body = {"messages": [{"key": key, "due": LATER_MS} for key in ("k", "none")]}
    found = api.post("/v1/topics/t/move", body)
    assert statuses(found) == ["OK", "NOT_FOUND"]
    assert found["messages"][0]["key"] == "k"
    page = api.get("/v1/topics/t/messages")["messages"]
    assert [(row["id"], row["due"]) for row in page] == [(first, LATER_MS), (second, LATER_MS)]
    assert (page[0]["priority"], page[0]["group"]) == (7, "g")


def test_a_message_is_shifted_unless_it_was_moved_meanwhile(api: Api) -> None:
    sent = api.send("a", due=LATER)
    body = {"messages": [{"id": sent, "by_ms": -5_000, "if_due": LATER}]}
    assert statuses(api.post("/v1/topics/t/move", body)) == ["OK"]
    assert statuses(api.post("/v1/topics/t/move", body)) == ["CHANGED"]
    gone = {"messages": [{"id": sent, "if_due": LATER_MS}]}
    assert statuses(api.post("/v1/topics/t/cancel", gone)) == ["CHANGED"]
    assert api.get("/v1/topics/t/messages")["messages"][0]["due"] == LATER_MS - 5_000
    gone = {"messages": [{"id": sent, "if_due": LATER_MS - 5_000}]}
    assert statuses(api.post("/v1/topics/t/cancel", gone)) == ["OK"]


def test_what_is_leased_stays(api: Api) -> None:
    sent = api.send("a")
    [leased] = api.lease()
    body = {"messages": [{"id": sent}]}
    assert statuses(api.post("/v1/topics/t/cancel", body)) == ["LEASED"]
    assert api.settle("nack", [leased]) == ["OK"]
    assert statuses(api.post("/v1/topics/t/cancel", body)) == ["OK"]
    assert statuses(api.post("/v1/topics/t/cancel", body)) == ["NOT_FOUND"]


def test_filters_change_many(api: Api) -> None:
    for group in ("a", "b", "a"):
        api.send("x", group=group, due=LATER_MS)
    where = {"where": {"group": "a", "due_from": LATER}}
    found = api.post("/v1/topics/t/move", {**where, "by_ms": 5, "dry_run": True})
    assert found == {"count": 2, "next": None}
    assert api.post("/v1/topics/t/move", {**where, "by_ms": 5})["count"] == 2
    assert api.post("/v1/topics/t/move", {**where, "due": LATER, "set_priority": 1})["count"] == 2
    page = api.get("/v1/topics/t/messages", priority_to=1)["messages"]
    assert [row["due"] for row in page] == [LATER_MS, LATER_MS]
    assert api.post("/v1/topics/t/cancel", where) == {"count": 2, "next": None}
    assert api.broker.call("stats", {"topic": "t"})["scheduled"] == 1


@pytest.mark.parametrize(
    ("op", "body", "field"),
    [
        ("move", {}, "messages"),
        ("move", {"messages": []}, "messages"),
        ("move", {"messages": [{"id": "1"}]}, "messages"),
        ("move", {"messages": [{"id": "1", "due": "x"}]}, "due"),
        ("move", {"messages": [], "other": 1}, "other"),
        ("move", {"where": {}}, "due"),
        ("move", {"where": [], "due": 1}, "where"),
        ("move", {"where": {"other": 1}, "due": 1}, "other"),
        ("move", {"where": {"due_from": "x"}, "due": 1}, "due_from"),
        ("move", {"where": {}, "due": "x"}, "due"),
        ("move", {"where": {}, "by_ms": "x"}, "by_ms"),
        ("cancel", {"where": {}, "by_ms": 1}, "by_ms"),
        ("cancel", {"where": {"state": "leased"}}, "state"),
        ("cancel", {"where": {}, "after": "?"}, "after"),
        ("cancel", {"messages": [{"id": "1", "due": 1}]}, "due"),
    ],
)
def test_what_is_wrong_is_named(api: Api, op: str, body: Any, field: str) -> None:
    assert api.post(f"/v1/topics/t/{op}", body, status=400)["field"] == field


def test_a_topic_that_is_not_there(api: Api) -> None:
    bodies: list[dict[str, Any]] = [{"messages": [{"id": "1"}]}, {"where": {}}]
    for body in bodies:
        assert api.ask("POST", "/v1/topics/none/cancel", body)[0] == 404
