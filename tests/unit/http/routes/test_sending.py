"""Sending over HTTP: one, many, NDJSON, Arrow, and the same request twice."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.http.routes.sending import KEY_BYTES_MAX, producer_of
from tests.unit.http.conftest import Api

PATH = "/v1/topics/t/messages"
LINES = {"Content-Type": "application/x-ndjson"}


def arrow(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def test_one_message(api: Api) -> None:
    assert api.post(PATH, {"payload": "a"}, status=201) == {"id": "0", "status": "OK"}
    assert api.post(PATH, {"payload": "x" * 100_000}, status=201)["id"] == "1"


def test_many_messages_have_a_status_each(api: Api) -> None:
    body = {"messages": [{"payload": "", "key": key} for key in "aab"]}
    found = api.post(PATH, body, status=201)["messages"]
    assert [row["status"] for row in found] == ["OK", "DUPLICATE", "OK"]
    assert found[1]["id"] == found[0]["id"]


def test_a_duplicate_alone_is_a_conflict(api: Api) -> None:
    first = api.send("", key="a")
    found = api.post(PATH, {"payload": "", "key": "a"}, status=409)
    assert (found["key"], found["id"]) == ("a", first)


def test_lines_and_columns(api: Api) -> None:
    lines = "\n".join(json.dumps({"payload": str(number)}) for number in range(3_000))
    answer = api.http.post(PATH, content=lines, headers=LINES)
    assert answer.status_code == 201, answer.text
    assert [row["id"] for row in answer.json()["messages"]] == [str(n) for n in range(3_000)]
    batch = pa.record_batch({"payload": [b"\xff"], "due": pa.array([1_600_000_000_000])})
    headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
    answer = api.http.post(PATH, content=arrow(batch), headers=headers)
    assert answer.json() == {"messages": [{"id": "3000", "status": "OK"}]}
    [first] = api.lease()
    assert (first["id"], first["payload_base64"]) == ("3000", "/w==")


def test_the_same_request_twice_sends_once(api: Api) -> None:
    headers = {"Idempotency-Key": "order-17"}
    for body in ({"payload": "a"}, {"messages": [{"payload": "a"}, {"payload": "b"}]}):
        first = api.post(PATH, body, status=201, headers=headers)
        assert api.post(PATH, body, status=201, headers=headers) == first
        headers = {"Idempotency-Key": "order-18"}
    assert api.broker.call("stats", {"topic": "t"})["enqueued"] == 3


def test_an_idempotency_key_stands_for_a_producer_and_a_number() -> None:
    assert producer_of("k") == producer_of("k") != producer_of("l")
    with pytest.raises(BadRequest, match="Idempotency-Key"):
        producer_of("k" * (KEY_BYTES_MAX + 1))


def test_requests_at_once_share_nothing_but_the_batch(api: Api) -> None:
    def send(number: int) -> tuple[int, Any]:
        payload: Any = number if number % 7 == 0 else str(number)
        return number, api.ask("POST", PATH, {"payload": payload})

    with ThreadPoolExecutor(8) as threads:
        for number, (status, values) in threads.map(send, range(100)):
            assert status == (400 if number % 7 == 0 else 201), values
    assert api.broker.call("stats", {"topic": "t"})["enqueued"] == 85


@pytest.mark.parametrize(
    ("content", "kind", "status", "field"),
    [
        (b"{", "application/json", 400, "body"),
        (b"[]", "application/json", 400, "body"),
        (b"", "application/json", 400, "body"),
        (b'{"messages":[],"x":1}', "application/json", 400, "x"),
        (b'{"messages":{}}', "application/json", 400, "messages"),
        (b"", "application/x-ndjson", 400, "messages"),
        (b"x", "application/vnd.apache.arrow.stream", 400, "body"),
        (b"x", "text/plain", 415, None),
    ],
)
def test_what_is_wrong_is_named(
    api: Api, content: bytes, kind: str, status: int, field: str | None
) -> None:
    answer = api.http.post(PATH, content=content, headers={"Content-Type": kind})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json().get("field") == field


def test_a_topic_that_is_not_there(api: Api) -> None:
    assert api.ask("POST", "/v1/topics/none/messages", {"payload": ""})[0] == 404


def test_partitions_can_be_chosen(api: Api) -> None:
    api.post("/v1/topics", {"name": "two", "partitions": 2}, status=201)
    for partition in (1, 0, 1):
        body = {"payload": "", "partition": partition}
        made = api.post("/v1/topics/two/messages", body, status=201)
        assert int(made["id"]) >> 47 == partition
