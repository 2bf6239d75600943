"""Transactions over HTTP: what is sent and acked in one counts when it is committed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.http.conftest import Api


def begin(api: Api, **fields: Any) -> str:
    made = api.post("/v1/transactions", {"topic": "t", **fields}, status=201)
    assert made["until_ms"] > 0
    return str(made["transaction"])


def test_an_input_is_done_when_its_output_is_there(api: Api) -> None:
    api.send("in")
    [held] = api.lease()
    name = begin(api)
    path = f"/v1/topics/t/messages?transaction={name}"
    sent = api.post(path, {"payload": "out"}, status=201)
    many = api.post(path, {"messages": [{"payload": "out"}]}, status=201)
    body = {"messages": [{"id": held["id"], "attempt": held["attempt"]}]}
    acked = api.post(f"/v1/topics/t/ack?transaction={name}", body)
    assert acked["messages"][0]["status"] == "OK"
    assert sent["participants"] == many["participants"] == acked["participants"] == ["t/0"]
    assert api.lease() == []
    [row] = api.get("/v1/topics/t/transactions")["transactions"]
    assert (row["transaction"], row["staged"], row["acked"]) == (name, 2, 1)
    decision = {"transaction": name, "participants": ["t/0"]}
    assert api.post("/v1/transactions/commit", decision) == {}
    assert api.post("/v1/transactions/commit", decision) == {}
    assert [message["payload"] for message in api.lease(max=5)] == ["out", "out"]
    assert api.post("/v1/transactions/abort", decision, status=409)["title"] == "Refused"


def test_what_is_aborted_was_never_there(api: Api) -> None:
    name = begin(api, timeout_ms=30_000)
    api.post(f"/v1/topics/t/messages?transaction={name}", {"payload": "out"}, status=201)
    assert api.post("/v1/transactions/abort", {"transaction": name, "participants": ["t/0"]}) == {}
    assert api.lease() == []
    assert api.get("/v1/topics/t/transactions")["transactions"] == []


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("transactions", {}, "topic"),
        ("transactions", {"topic": "t", "timeout_ms": 0}, "timeout_ms"),
        ("transactions", {"topic": "t", "other": 1}, "other"),
        ("transactions/commit", {"transaction": "x", "participants": []}, "transaction"),
        ("transactions/commit", {"transaction": 5}, "transaction"),
        ("topics/t/messages?transaction=x", {"payload": "a"}, "transaction"),
        ("topics/t/messages?other=x", {"payload": "a"}, "other"),
        ("topics/t/lease?transaction=x", {}, "transaction"),
        ("topics/t/nack?x=1", {"messages": [{"id": "1", "attempt": 1}]}, "x"),
    ],
)
def test_what_is_wrong_is_named(api: Api, path: str, body: Any, field: str) -> None:
    assert api.post(f"/v1/{path}", body, status=400)["field"] == field
