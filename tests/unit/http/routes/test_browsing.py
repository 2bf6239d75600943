"""Looking over HTTP: pages, one message, counts, histograms, statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.clock import SystemClock
from dejaqueue.http import shapes
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.unit.http.conftest import Api

FAR_MS = 1_893_456_000_000


def test_pages_follow_one_another(api: Api) -> None:
    sent = [api.send(str(number), due=FAR_MS + number) for number in range(5)]
    seen: list[str] = []
    after: dict[str, Any] = {}
    while True:
        page = api.get("/v1/topics/t/messages", limit=2, **after)
        seen += [row["id"] for row in page["messages"]]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert seen == sent


def test_filters_choose(api: Api) -> None:
    first = api.send("a", group="g", tags=["x"], priority=3, due="2030-01-01T00:00:00Z")
    second = api.send("b", key="k", due="2001-01-01T00:00:00Z")
    for parameters, wanted in (
        ({"group": "g"}, [first]),
        ({"tags_any": ["x", "y"]}, [first]),
        ({"state": "ready"}, [second]),
        ({"due_from": "2029-12-31T23:59:59Z"}, [first]),
        ({"due_to": "2001-01-02T00:00:00Z"}, [second]),
        ({"priority_to": 3}, [first]),
        ({"id": [first, "99"]}, [first]),
        ({"key": "k"}, [second]),
        ({"partition": 0, "limit": 1}, [second]),
    ):
        page = api.get("/v1/topics/t/messages", **parameters)
        assert [row["id"] for row in page["messages"]] == wanted, parameters
    assert api.get("/v1/topics/t/messages", encoding="base64", id=first)["messages"][0][
        "payload_base64"
    ]


def test_one_message(api: Api) -> None:
    sent = api.send("a", key="k")
    found = api.get(f"/v1/topics/t/messages/{sent}")
    assert (found["payload"], found["key"], found["state"]) == ("a", "k", "scheduled")
    assert api.ask("GET", "/v1/topics/t/messages/99")[0] == 404
    assert api.ask("GET", "/v1/topics/t/messages/x")[0] == 400


def test_the_history_of_a_message__of_one_that_is_done_too(tmp_path: Path) -> None:
    settings = BrokerSettings(journal=JournalSettings(url=str(tmp_path / "journal")))
    broker = Broker(settings)
    broker.start()
    server = HttpServer(Service(broker, Gate(), lambda: True), "127.0.0.1", 0)
    server.start()
    api = Api(broker, server.port)
    try:
        broker.create_topic(Topic("t", history=True))
        sent = api.send("a", key="k")
        messages = api.lease(consumer="mailer")
        api.settle("nack", messages, reason="busy", delay_ms=0)
        api.settle("ack", api.lease())
        found = api.get(f"/v1/topics/t/messages/{sent}/history")
        changes = [change["change"] for change in found["changes"]]
        assert changes == ["enqueued", "delivered", "nacked", "redelivered", "acked"]
        assert found["changes"][0]["key"] == "k"
        assert "consumer" not in found["changes"][0]
        assert found["changes"][1]["consumer"] == "mailer"
        assert found["changes"][2]["reason"] == "busy"
        after = found["changes"][2]["position"]
        rest = api.get(f"/v1/topics/t/messages/{sent}/history", after=after)
        assert [change["change"] for change in rest["changes"]] == changes[3:]
        assert shapes.MessageHistory.model_validate(found).history
    finally:
        api.http.close()
        server.stop()
        broker.stop()


def test_a_history_that_is_off_says_so(api: Api) -> None:
    found = api.get(f"/v1/topics/t/messages/{api.send('a')}/history")
    assert (found["history"], found["changes"]) == (False, [])
    assert api.ask("GET", "/v1/topics/nobody/messages/1/history")[0] == 404
    assert api.ask("GET", "/v1/topics/t/messages/x/history")[0] == 400


def test_counts_and_histogram(api: Api) -> None:
    for number in range(3):
        api.send("a", group="ab"[number % 2], due=FAR_MS + number * 1_000)
    assert {"state": "scheduled", "count": 3} in api.get("/v1/topics/t/counts")["rows"]
    page = api.get("/v1/topics/t/counts", by="group", limit=1)
    assert page["rows"] == [{"group": "a", "count": 2}]
    page = api.get("/v1/topics/t/counts", by="group", limit=1, after=page["next"])
    assert page == {"rows": [{"group": "b", "count": 1}], "next": None}
    found = api.get(
        "/v1/topics/t/histogram", due_from=FAR_MS, due_to=FAR_MS + 3_000, bucket_ms=2_000
    )
    assert found["counts"] == [2, 1]


def test_what_is_due_soon_is_one_number(api: Api) -> None:
    assert api.get("/v1/topics/t/due")["due"] == 0
    api.send("now")
    now_ms = SystemClock().now_ms()
    api.send("soon", due=now_ms + 45_000)
    api.send("later", due=now_ms + 200_000)
    found = api.get("/v1/topics/t/due", within="60s")
    assert (found["due"], found["ready"], found["scheduled"]) == (2, 1, 1)
    assert api.get("/v1/topics/t/due", within="5m")["due"] == 3
    assert api.get("/v1/topics/t/due", within="0")["due"] == 1
    api.lease(consumer="me")
    assert api.get("/v1/topics/t/due", within="0")["leased"] == 1
    for wrong in ("60", "soon", "-1s", ""):
        status, problem = api.ask("GET", f"/v1/topics/t/due?within={wrong}")[:2]
        assert status == 400, wrong
        assert "within" in str(problem)
    assert api.ask("GET", "/v1/topics/nobody/due")[0] == 404


def test_statistics(api: Api) -> None:
    api.send("a")
    api.lease(consumer="me")
    assert api.get("/v1/stats")["topics"]["t"]["leased"] == 1
    assert api.get("/v1/topics/t/stats")["enqueued"] == 1
    assert api.get("/v1/topics/t/consumers")["consumers"][0]["consumer"] == "me"
    assert api.get("/v1/topics/t/assignments")["assignment"] == "shared"


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("messages?other=1", "other"),
        ("messages?after=x", "after"),
        ("messages?after=ImEi", "after"),
        ("messages?id=x", "id"),
        ("messages?limit=x", "query.limit"),
        ("messages?state=x", "query.state"),
        ("messages?due_from=soon", "due_from"),
        ("messages?partition=1", "partition"),
        ("counts?by=x", "query.by"),
        ("counts?after=e30", "after"),
        ("histogram?due_from=1", "query.due_to"),
        ("histogram?due_from=5&due_to=1&bucket_ms=1", "due_to"),
        ("stats?x=1", "x"),
    ],
)
def test_what_is_wrong_is_named(api: Api, path: str, field: str) -> None:
    status, found = api.ask("GET", f"/v1/topics/t/{path}")
    assert (status, found["field"]) == (400, field)


def test_a_topic_that_is_not_there(api: Api) -> None:
    for path in ("messages", "messages/1", "counts", "stats", "consumers", "assignments"):
        assert api.ask("GET", f"/v1/topics/none/{path}")[0] == 404
