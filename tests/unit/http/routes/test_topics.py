"""Topics over HTTP."""

from __future__ import annotations

from tests.unit.http.conftest import Api


def test_a_topic_is_made_shown_changed_and_deleted(api: Api) -> None:
    made = api.post("/v1/topics", {"name": "a", "kind": "fair", "partitions": 2}, status=201)
    assert made["kind"] == "fair"
    assert api.get("/v1/topics/a") == made
    assert [topic["name"] for topic in api.get("/v1/topics")["topics"]] == ["a", "t"]
    status, changed = api.ask("PATCH", "/v1/topics/a", {"lease_ms": 50, "partitions": None})
    assert (status, changed["lease_ms"], changed["partitions"]) == (200, 50, 2)
    assert api.ask("DELETE", "/v1/topics/a") == (204, None)
    assert api.ask("GET", "/v1/topics/a")[0] == 404
    assert api.ask("DELETE", "/v1/topics/a")[0] == 404


def test_a_topic_that_exists_is_told(api: Api) -> None:
    api.post("/v1/topics", {"name": "t", "exist_ok": True}, status=201)
    found = api.post("/v1/topics", {"name": "t", "lease_ms": 77}, status=409)
    assert found["title"] == "TopicExists"


def test_what_is_wrong_is_named(api: Api) -> None:
    for body, field in (
        ({}, "topic.name"),
        ({"name": "/"}, "topic.name"),
        ({"name": "x", "other": 1}, "topic.other"),
        ({"name": "x", "lease_ms": 1}, "topic.lease_ms"),
        ({"name": "x", "exist_ok": 1}, "exist_ok"),
    ):
        found = api.post("/v1/topics", body, status=400)
        assert found["field"] == field
    assert api.ask("PATCH", "/v1/topics/t", {"kind": "fair"})[0] == 400


def test_a_paused_topic_hands_nothing_out(api: Api) -> None:
    api.send("a")
    assert api.post("/v1/topics/t/pause")["paused"] is True
    assert api.lease() == []
    assert api.post("/v1/topics/t/resume")["paused"] is False
    assert len(api.lease()) == 1


def test_a_purge_leaves_what_is_leased(api: Api) -> None:
    for number in range(5):
        api.send(str(number))
    [leased] = api.lease()
    assert api.post("/v1/topics/t/purge") == {"cancelled": 4, "is_finished": True}
    assert api.settle("ack", [leased]) == ["OK"]
