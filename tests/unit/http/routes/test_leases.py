"""Leases over HTTP: take, ack, nack, extend; and what is refused."""

from __future__ import annotations

import socket
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.http.conftest import Api

PATH = "/v1/topics/t/lease"
EARLIER_MS = 1_600_000_000_000


def test_a_message_goes_in_and_comes_out(api: Api) -> None:
    sent = api.send(
        "é", key="k", group="g", priority=7, tags=["x"], headers={"h": "v"}, due=EARLIER_MS
    )
    [found] = api.lease(max=10, lease_ms=60_000)
    end_ms = found.pop("lease_end_ms")
    assert end_ms > api.broker.clock.now_ms() + 30_000
    assert found == {
        "id": sent,
        "attempt": 1,
        "due": EARLIER_MS,
        "priority": 7,
        "payload": "é",
        "key": "k",
        "group": "g",
        "tags": ["x"],
        "headers": {"h": "v"},
    }
    assert api.settle("ack", [found]) == ["OK"]
    assert api.settle("ack", [found]) == ["LEASE_LOST"]
    assert api.lease() == []


def test_a_nack_brings_it_back(api: Api) -> None:
    api.send("a")
    [first] = api.lease()
    assert api.settle("nack", [first], delay_ms=1, reason="no") == ["OK"]
    [second] = api.lease(wait_ms=10_000)
    assert (second["id"], second["attempt"]) == (first["id"], 2)
    assert api.settle("nack", [first]) == ["LEASE_LOST"]
    assert api.settle("nack", [second], dead=True, reason="enough") == ["OK"]
    assert api.lease() == []


def test_a_release_does_not_wear_it_out(api: Api) -> None:
    api.broker.call("alter_topic", {"name": "t", "max_attempts": 2})
    api.send("a")
    for _ in range(4):
        [found] = api.lease(wait_ms=10_000)
        assert api.settle("nack", [found], delay_ms=0, released=True) == ["OK"]
    [found] = api.lease(wait_ms=10_000)
    assert api.settle("nack", [found], delay_ms=0) == ["OK"]
    [found] = api.lease(wait_ms=10_000)
    assert api.settle("nack", [found], delay_ms=0) == ["OK"]
    assert api.lease() == []  # it is dead


def test_a_lease_can_be_longer(api: Api) -> None:
    api.send("a")
    [found] = api.lease(lease_ms=10_000)
    assert api.settle("extend", [found], lease_ms=60_000) == ["OK"]
    assert api.settle("extend", [found]) == ["OK"]
    assert api.settle("extend", [{"id": "99", "attempt": 1}]) == ["LEASE_LOST"]


def test_auto_ack_is_done_when_it_is_answered(api: Api) -> None:
    for payload in "ab":
        api.send(payload)
    found = api.lease(max=9, auto_ack=True)
    assert [message["payload"] for message in found] == ["a", "b"]
    assert api.settle("ack", found) == ["LEASE_LOST", "LEASE_LOST"]
    assert api.broker.call("stats", {"topic": "t"})["acked"] == 2


def test_tags_choose(api: Api) -> None:
    api.send("a", tags=["x"])
    api.send("b", tags=["y"])
    assert api.lease(max=5, tags_any=["z"]) == []
    assert [message["payload"] for message in api.lease(max=5, tags_any=["y"])] == ["b"]
    assert [message["payload"] for message in api.lease(max=5, tags_none=["y"])] == ["a"]


def test_the_answer_has_the_kind_that_is_asked_for(api: Api) -> None:
    for payload in "abcd":
        api.send(payload)
    lines = api.http.post(PATH, json={"max": 2}, headers={"Accept": "application/x-ndjson"})
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert lines.text.count("\n") == 2
    accept = {"Accept": "application/vnd.apache.arrow.stream"}
    columns = api.http.post(PATH, json={"max": 2}, headers=accept)
    table = pa.ipc.open_stream(columns.content).read_all()
    assert table.column("payload").to_pylist() == [b"c", b"d"]
    assert table.column("lease_end_ms").to_pylist()[0] > 0
    none = api.http.post(PATH, json={"max": 2}, headers=accept)
    assert pa.ipc.open_stream(none.content).read_all().num_rows == 0


def test_payloads_can_be_base64(api: Api) -> None:
    api.send("a")
    assert api.lease(encoding="base64")[0]["payload_base64"] == "YQ=="


def test_a_client_that_goes_away_leaves_the_message_to_others(api: Api) -> None:
    with socket.create_connection(("127.0.0.1", api.port)) as lost:
        body = b'{"wait_ms":60000}'
        head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        lost.sendall(head.encode() + body)
        _wait_for(api, lambda consumers: any(consumer["credit"] for consumer in consumers))
    _wait_for(api, lambda consumers: not any(consumer["credit"] for consumer in consumers))
    api.send("a")
    [found] = api.lease()
    assert found["attempt"] == 1


def _wait_for(api: Api, is_so: Any) -> None:
    for _ in range(2_000):
        if is_so(api.broker.call("stats", {"topic": "t"})["consumers"]):
            return
    pytest.fail("the consumers did not change")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"max": 0}, "max"),
        ({"max": True}, "max"),
        ({"wait_ms": 60_001}, "wait_ms"),
        ({"lease_ms": 1}, "lease_ms"),
        ({"consumer": 5}, "consumer"),
        ({"consumer": "x" * 300}, "consumer"),
        ({"tags_any": "x"}, "tags_any"),
        ({"tags_any": [[]]}, "tags_any"),
        ({"auto_ack": 1}, "auto_ack"),
        ({"encoding": "hex"}, "encoding"),
        ({"other": 1}, "other"),
        ([], "body"),
    ],
)
def test_a_wrong_lease_is_named(api: Api, body: Any, field: str) -> None:
    assert api.post(PATH, body, status=400)["field"] == field


@pytest.mark.parametrize(
    ("op", "fields", "field"),
    [
        ("ack", {"messages": []}, "messages"),
        ("ack", {"messages": [{"id": "1", "attempt": -1}]}, "attempt of row 0"),
        ("ack", {"delay_ms": 1}, "delay_ms"),
        ("nack", {"delay_ms": -1}, "delay_ms"),
        ("nack", {"reason": "x" * 2_000}, "reason"),
        ("nack", {"reason": 5}, "reason"),
        ("nack", {"dead": "yes"}, "dead"),
        ("nack", {"dead": True, "released": True}, "released"),
        ("extend", {"lease_ms": 0}, "lease_ms"),
    ],
)
def test_a_wrong_settle_is_named(api: Api, op: str, fields: dict[str, Any], field: str) -> None:
    body = {"messages": [{"id": "1", "attempt": 1}], **fields}
    assert api.post(f"/v1/topics/t/{op}", body, status=400)["field"] == field


def test_ids_of_nowhere_change_nothing(api: Api) -> None:
    far = [{"id": str((1 << 63) - 1), "attempt": 1}]
    assert api.settle("ack", far) == ["LEASE_LOST"]
    assert api.ask("POST", "/v1/topics/none/ack", {"messages": far})[0] == 404
