"""Covers: JSON that no client of ours writes, in every field of every operation: it is refused as
the caller's mistake, or done; never an internal error.

The OpenAPI document says what fields there are. Values are texts, as some of them are none that a
library would write: numbers of thousands of digits, halves of characters, lists in lists a thousand
deep, days that do not exist.
Not covered: values that nearly fit (test_http_schema.py), bytes that are no HTTP
(tests/unit/http/test_protocol_garbled.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.http.app import build_app
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.model import Topic, TopicKind
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.patience import PATIENCE_SECONDS

ODD = [
    "null",
    "true",
    "-0",
    "1.5",
    "NaN",
    "1e999",
    "9" * 4_400,
    "-9223372036854775809",
    '"\\u0000"',
    '"a\\udfff"',
    '"' + "é" * 256 + '"',
    "[null]",
    '["a",1]',
    "[" * 1_010 + "]" * 1_010,
    '{"a":[' * 500 + "1" + "]}" * 500,
    "[" * 300 + "]" * 300,
    '"0001-01-01T00:00:00+14:00"',
    '"9999-12-31T23:59:59.999999999-14:00"',
    '"2026-02-30T00:00:00Z"',
    '"../../etc"',
    '"0 0 31 2 *"',
    '"@every 99999999999999999999s"',
    '"' + "9" * 5_000 + '"',
    '"²"',
    '"--5"',
]
BODIES = ["", "null", "[]", "{", "NaN", "{}{}", "\ufeff{}", "{}\x00", "[" * 100_000, *ODD]
OTHERS = ("/v1/cluster/nodes", "/v1/standby", "/v1/backups", "/v1/keys")
"""Not asked: other brokers and places are not there, and the first key shuts others out."""
PLACES = {"queue_name": "priority", "id": "1", "name": "entry", "subscription": "some"}
GIVEN = {"payload": "x", "name": "odd", "schedule": "0 0 * * *", "ids": ["1"]}
DOCUMENT = build_app(Service(Broker(), Gate(), lambda: True)).openapi()
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
    if "requestBody" in operation and not path.startswith(OTHERS)
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    server = HttpServer(Service(broker, Gate(), lambda: True), "127.0.0.1", 0)
    server.start()
    for kind in TopicKind:
        broker.create_topic(Topic(kind.name.lower(), kind))
    yield server.port
    broker.stop()
    server.stop()


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _objects(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The objects that a body may be, and those that are in its fields or lists."""
    found = _resolved(schema)
    for one in [*found.get("anyOf", []), *found.get("oneOf", [])]:
        if "properties" in _resolved(one):
            yield from _objects(one)
    if "properties" in found:
        yield found


def _bodies(operation: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What is sent, and what is odd about it."""
    for body in BODIES:
        yield body, f"a body {body[:40]}"
    content = operation["requestBody"]["content"].get("application/json")
    for found in _objects(content["schema"]) if content else ():
        rest = {name: GIVEN.get(name, 1) for name in found.get("required", [])}
        if "payload" in found["properties"]:
            rest["payload"] = "x"
        for name in found["properties"]:
            fields = [f"{json.dumps(n)}:{json.dumps(v)}" for n, v in rest.items() if n != name]
            for odd in ODD:
                body = ",".join([*fields, f"{json.dumps(name)}:{odd}"])
                yield f"{{{body}}}", f"{name}: {odd[:40]}"


@pytest.mark.parametrize("named", sorted(OPERATIONS))
def test_odd_json_is_done_or_the_caller_s_mistake(named: str, port: int) -> None:
    method, path = named.split(" ")
    for name, place in {"topic": "cron" if "cron" in path else "timeline", **PLACES}.items():
        path = path.replace(f"{{{name}}}", place)
    assert "{" not in path
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    count = 0
    for body, what in _bodies(OPERATIONS[named]):
        content = body.encode("utf-8", "surrogatepass")
        connection.request(method, path, content, {"content-type": "application/json"})
        response = connection.getresponse()
        text = response.read()[:300]
        assert response.status < 500, (what, text)
        count += 1
    connection.close()
    assert count > len(BODIES) or "application/json" not in str(OPERATIONS[named]["requestBody"])
