"""Covers: JSON that no client of ours writes, in every field of every operation, and texts in every
parameter, of addresses and headers: they are refused as the caller's mistake, or what they ask for
is done; never an internal error.

The OpenAPI document says what fields and parameters there are. Values are texts, as some of them
are none that a library would write: numbers of thousands of digits, halves of characters, lists in
lists a thousand deep, days that do not exist.
Not covered: values that nearly fit (test_http_schema.py), bytes that are no HTTP
(tests/unit/http/test_protocol_garbled.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

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


TEXTS = [
    "",
    "²",
    "-1",
    "1e999",
    "9" * 19,
    "9" * 5_000,
    "null",
    "[]",
    "{",
    "\0",
    "a\udfff",
    "é" * 300,
    "../../etc",
    "a,,b" * 200,
    "2026-02-30T00:00:00Z",
    "9223372036854775807+999-65535",
    "0 0 31 2 *",
]
ENDS_SOON = {"idle_ms": "1", "seconds": "0", "wait_ms": "1", "timeout_ms": "1"}
"""Of streams and of those that wait."""
PARAMETERS = {
    f"{method.upper()} {path}": operation["parameters"]
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
    if operation.get("parameters") and not path.startswith(OTHERS)
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


def _addresses(path: str, parameters: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, str]]]:
    """Addresses and headers, each with one parameter that is odd."""
    soon = [(one["name"], ENDS_SOON[one["name"]]) for one in parameters if one["name"] in ENDS_SOON]
    for asked in parameters:
        name, place = asked["name"], asked["in"]
        for text in TEXTS:
            content = text.encode("utf-8", "surrogatepass")
            query = [pair for pair in soon if pair[0] != name]
            there, headers = path, {}
            if place == "path":
                there = path.replace(f"{{{name}}}", quote(content, safe=""))
            elif place == "query":
                query.append((name, quote(content, safe="")))
            elif text.isprintable():
                headers[name] = content.decode("latin-1")
            for known, value in {"topic": "cron" if "cron" in path else "fair", **PLACES}.items():
                there = there.replace(f"{{{known}}}", value)
            yield f"{there}?{'&'.join(map('='.join, query))}", headers


@pytest.mark.parametrize("named", sorted(PARAMETERS))
def test_odd_parameters_are_the_caller_s_mistake__or_what_they_say_is_done(
    named: str, port: int
) -> None:
    method, path = named.split(" ")
    body = b"{}" if "requestBody" in DOCUMENT["paths"][path][method.lower()] else None
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    for address, headers in _addresses(path, PARAMETERS[named]):
        connection.request(method, address, body, {"content-type": "application/json", **headers})
        response = connection.getresponse()
        text = response.read()[:300]
        assert response.status < 500, (address[:200], headers, text)
        assert "{" not in address
    connection.close()
