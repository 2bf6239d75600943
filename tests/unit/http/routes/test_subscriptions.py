"""Subscriptions of a topic over HTTP."""

from __future__ import annotations

from typing import Any

from tests.unit.http.conftest import Api

AT = "/v1/topics/t/subscriptions"


def test_one_is_made__shown__consumed_and_deleted(api: Api) -> None:
    status, made = api.ask("PUT", f"{AT}/a", {"lease_ms": 5_000, "paused": None})
    assert (status, made["name"], made["order"], made["lease_ms"]) == (200, "a", "due", 5_000)
    assert api.get(f"{AT}/a") == made
    assert api.get(AT) == {"subscriptions": [made]}
    api.send("x")
    [leased] = api.post("/v1/topics/t@a/lease")["messages"]
    [again] = api.lease()  # the unnamed one has it, too
    assert leased["id"] == again["id"]
    held = {"messages": [{"id": leased["id"], "attempt": leased["attempt"]}]}
    [settled] = api.post("/v1/topics/t@a/ack", held)["messages"]
    assert settled["status"] == "OK"
    stats = api.get("/v1/topics/t@a/stats")
    assert (stats["topic"], stats["acked"], stats["leased"]) == ("t@a", 1, 0)
    assert api.get("/v1/topics/t/stats")["leased"] == 1
    assert api.ask("DELETE", f"{AT}/a") == (204, None)
    for method, path in (
        ("DELETE", f"{AT}/a"),
        ("GET", f"{AT}/a"),
        ("POST", "/v1/topics/t@a/lease"),
        ("GET", "/v1/topics/t@a/stats"),
        ("GET", "/v1/topics/none/subscriptions"),
    ):
        assert api.ask(method, path)[0] == 404, path


def test_what_is_wrong_is_named(api: Api) -> None:
    for values, field in (
        ({"order": "random"}, "subscription.order"),
        ({"partitions": 3}, "subscription.partitions"),
        ({"born": 3}, "subscription.born"),
        ({"ephemeral_ms": 5}, "subscription.ephemeral_ms"),
        ({"lease_ms": 1}, "topic.lease_ms"),
    ):
        status, found = api.ask("PUT", f"{AT}/a", values)
        assert (status, found["field"]) == (400, field)
    assert api.ask("PUT", f"{AT}/{'a' * 65}", {})[0] in (400, 404, 422)
    api.ask("PUT", f"{AT}/a", {})
    assert api.ask("PUT", f"{AT}/a", {"order": "arrival"})[0] == 400
    api.post("/v1/topics/t@a/messages", {"payload": "x"}, status=404)  # sent to the topic alone


def test_one_goes_back_and_on(api: Api) -> None:
    api.ask("PATCH", "/v1/topics/t", {"retention_ms": 3_600_000})
    api.ask("PUT", f"{AT}/a", {})
    api.send("x")
    [leased] = api.post("/v1/topics/t@a/lease")["messages"]
    held = {"messages": [{"id": leased["id"], "attempt": leased["attempt"]}]}
    api.post("/v1/topics/t@a/ack", held)
    done = {"replayed": 1, "passed": 0, "is_finished": True}
    assert api.post("/v1/topics/t@a/seek", {"to": "beginning"}) == done
    assert api.get("/v1/topics/t@a/stats")["replayed"] == 1
    [again] = api.post("/v1/topics/t@a/lease")["messages"]
    assert (again["id"], again["attempt"]) == (leased["id"], 2)
    passed = {"replayed": 0, "passed": 1, "is_finished": True}
    assert api.post("/v1/topics/t/seek", {"to": "end"}) == passed
    assert api.ask("PUT", f"{AT}/b", {"start": 7})[0] == 200
    acme = {"to": "beginning", "where": {"group": "acme", "due_from": "2020-01-01T00:00:00Z"}}
    assert api.post("/v1/topics/t@a/seek", acme) == done | {"replayed": 0}
    assert api.post("/v1/topics/t/seek", acme | {"where": {"group": ""}}) == done
    wrong: list[Any] = [{}, {"to": "x"}, {"to": "end", "after": 3}, {"to": "end", "more": 1}]
    wrong += [{"to": "end", "where": where} for where in (3, {"state": "ready"}, {"tag": "x"})]
    for body in wrong:
        assert api.ask("POST", "/v1/topics/t@a/seek", body)[0] == 400
    assert api.ask("POST", "/v1/topics/t@c/seek", {"to": "end"})[0] == 404
