"""Cron entries over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.http.conftest import Api

PLACE = "/v1/topics/c/cron"


@pytest.fixture(autouse=True)
def _topic(api: Api) -> None:
    api.post("/v1/topics", {"name": "c", "kind": "cron"}, status=201)


def put(api: Api, name: str, **fields: Any) -> dict[str, Any]:
    status, found = api.ask("PUT", f"{PLACE}/{name}", {"cron": "0 9 * * *", **fields})
    assert status == 200, found
    return dict(found)


def test_an_entry_is_put_shown_changed_and_deleted(api: Api) -> None:
    made = put(api, "morning", payload="é", zone="Europe/Berlin", tags=["x"])
    assert (made["name"], made["payload"], made["last_id"]) == ("morning", "é", None)
    assert made["next_ms"] > 0
    assert api.get(f"{PLACE}/morning") == made
    changed = put(api, "morning", payload_base64="/w==")
    assert changed["payload_base64"] == "/w=="
    assert api.ask("DELETE", f"{PLACE}/morning")[0] == 204
    for method, path in (("DELETE", ""), ("GET", ""), ("POST", "/run"), ("POST", "/pause")):
        assert api.ask(method, f"{PLACE}/morning{path}")[0] == 404


def test_entries_come_by_name(api: Api) -> None:
    entries = [{"name": name, "every_ms": 60_000} for name in ("b", "a", "c/d")]
    made = api.post(PLACE, {"entries": entries})["entries"]
    assert [entry["name"] for entry in made] == ["b", "a", "c/d"]
    page = api.get(PLACE, limit=2)
    assert [entry["name"] for entry in page["entries"]] == ["a", "b"]
    page = api.get(PLACE, limit=2, after=page["next"])
    assert ([entry["name"] for entry in page["entries"]], page["next"]) == (["c/d"], None)


def test_an_entry_can_rest_and_fire_at_once(api: Api) -> None:
    put(api, "morning", payload="up")
    assert api.post(f"{PLACE}/morning/pause")["next_ms"] == -1
    assert api.post(f"{PLACE}/morning/resume")["paused"] is False
    fired = api.post(f"{PLACE}/morning/run")["id"]
    found = api.post("/v1/topics/c/lease", {"wait_ms": 10_000})["messages"]
    assert [(message["id"], message["payload"]) for message in found] == [(fired, "up")]


def test_firings_are_told_before(api: Api) -> None:
    put(api, "morning")
    found = api.get(f"{PLACE}/morning/firings", count=2, after_ms=0)["firings"]
    assert found == [9 * 3_600_000, 33 * 3_600_000]
    entry = {"cron": "0 9 * * *", "payload": "x", "count": 1, "after_ms": 0}
    assert api.post("/v1/cron/preview", entry)["firings"] == [9 * 3_600_000]


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("PUT", "/a", {}, "entry.cron"),
        ("PUT", "/a", {"name": "b", "cron": "0 9 * * *"}, "name"),
        ("PUT", "/a", {"cron": "x"}, "entry.cron"),
        ("PUT", "/a", {"cron": "0 9 * * *", "other": 1}, "entry.other"),
        ("PUT", "/a", {"cron": "0 9 * * *", "payload": 1}, "payload"),
        ("PUT", "/a", {"cron": "0 9 * * *", "payload_base64": "?"}, "entry.payload"),
        ("PUT", "/a", {"cron": "0 9 * * *", "last_id": 1}, "entry.last_id"),
        ("POST", "", {"entries": {}}, "entries"),
        ("POST", "", {"entries": [1]}, "entries"),
        ("POST", "", {"other": []}, "other"),
        ("GET", "?limit=0", None, "query.limit"),
        ("GET", "/a/firings?count=0", None, "query.count"),
    ],
)
def test_what_is_wrong_is_named(api: Api, method: str, path: str, body: Any, field: str) -> None:
    status, found = api.ask(method, f"{PLACE}{path}", body)
    assert (status, found["field"]) == (400, field)


def test_other_topics_have_no_entries(api: Api) -> None:
    assert api.ask("GET", "/v1/topics/t/cron")[0] == 400
    assert api.ask("GET", "/v1/topics/none/cron")[0] == 404
