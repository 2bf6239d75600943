"""Every route, action and stream, as every caller, with every trick: none gets more than plainly.

What a caller is refused when it asks plainly it is refused however it asks: by the gate, or because
there is no such thing; never let in, and never an error of ours. Afterwards the topic that the
tricks were about is as it was.
Covered: names in addresses, bodies, tickets and descriptors; addresses; headers; requests within
requests. Not here: what is allowed plainly (test_authorisation.py); pages (tests/hostile).
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from dejaqueue.client.flight_errors import error_of
from dejaqueue.errors import BadRequest, DejaQError, NotAllowed, Refused, TopicUnknown
from dejaqueue.wire.descriptors import WRITE_OPS
from tests.integration import tricks
from tests.integration.access_fixture import (
    CRON,
    MINE,
    THEIRS,
    Site,
    give_keys,
    make_topics,
    running,
)
from tests.integration.test_authorisation import (
    ACTIONS,
    BAD_KEYS,
    QUERIES,
    ROUTES,
    STREAMS,
    expected,
)
from tests.patience import PATIENCE_SECONDS

SECRET = "what nobody else may read"
BATCH = 32
"""Requests that are sent ahead on one connection."""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running() as site:
        give_keys(site)
        make_topics(site.broker)
        _send(site)
        yield site


@pytest.fixture
def untouched(site: Site) -> Iterator[None]:
    """What the tricks are about is afterwards as it was before, and nothing new is there."""
    before = _state(site)
    yield
    assert _state(site) == before


def _send(site: Site) -> None:
    body = json.dumps({"payload": SECRET}).encode()
    line = f"POST /v1/topics/{THEIRS}/messages HTTP/1.1"
    [(status, _)] = asked(site, [_request(line, site.keys["root"], body=body)])
    assert status == 201


def _state(site: Site) -> dict[str, Any]:
    stats = site.broker.call("stats", {"topic": THEIRS})
    numbers = {name: stats[name] for name in ("scheduled", "leased", "enqueued", "delivered")}
    keys = [(key.id, str(key.grants)) for key in site.broker.keys.all()]
    topics = [topic.to_dict() for topic in site.broker.topics()]
    return numbers | {"keys": keys, "topics": topics, "staged": stats["staged"]}


# --- HTTP -----------------------------------------------------------------------------------------


def _request(
    line: str, key: str | None, more: Iterable[str] = (), body: bytes | None = None
) -> bytes:
    lines = [line, "Host: 127.0.0.1", *more]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def asked(site: Site, requests: list[bytes]) -> list[tuple[int, bytes]]:
    """Status and body of each; a connection that is closed is opened again for the rest."""
    answers: list[tuple[int, bytes]] = []
    while len(answers) < len(requests):
        ahead = requests[len(answers) : len(answers) + BATCH]
        with socket.create_connection(
            ("127.0.0.1", site.http.port), timeout=PATIENCE_SECONDS
        ) as connection:
            connection.sendall(b"".join(ahead))
            with connection.makefile("rb") as reader:
                came = 0
                while came < len(ahead) and (answer := _answer(reader)) is not None:
                    answers.append(answer)
                    came += 1
        assert came, "a request without an answer"
    return answers


def _answer(reader: Any) -> tuple[int, bytes] | None:
    try:
        first = reader.readline()
        found = re.match(rb"HTTP/1\.1 (\d{3})", first)
        if found is None:
            return None
        length, status = 0, int(found[1])
        while (line := reader.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        return status, reader.read(length)
    except ConnectionError:
        return None


def _path(template: str, name: str) -> str:
    values = {"topic": name, "queue_name": name, "key": "nobody", "id": "1", "name": "x"}
    values |= {"node": "x", "subscription": "s"}
    return template.format(**values) + QUERIES.get(template, "")


def _theirs(body: Any) -> Any:
    """A body that names the topic of others, where it names one."""
    text = json.dumps(body)
    for own in (CRON, MINE):
        text = re.sub(rf'"{re.escape(own)}(?=["/])', f'"{THEIRS}', text)
    return json.loads(text)


def refused_plainly(caller: str, needs: str) -> bool:
    """True if the caller may not do this on the topic of others."""
    there = caller.replace("mine", "x").replace("theirs", "mine").replace("x", "theirs")
    return expected(there, needs, "") is not None


def _wrong(
    site: Site, asks: list[tuple[str, bytes]], allowed: Iterable[int] = range(300, 500)
) -> list[tuple[str, int]]:
    """What was answered otherwise than by a refusal."""
    found = asked(site, [request for _, request in asks])
    return [
        (name, status)
        for (name, _), (status, body) in zip(asks, found, strict=True)
        if status not in allowed or SECRET.encode() in body
    ]


BAD = ("none", "wrong secret")
"""Of those without a good key, as they are refused before anything is read but the key."""
CALLERS = (*BAD, *(
    f"{role} {where}" for role in ("produce", "consume", "manage", "observe", "admin")
    for where in ("mine", "theirs")
), "produce.own mine", "manage.own mine")  # fmt: skip


@pytest.mark.parametrize("caller", CALLERS)
def test_no_spelling_of_an_address_gets_more(site: Site, untouched: None, caller: str) -> None:
    key, asks = site.keys[caller], []
    for (method, template), (needs, body) in ROUTES.items():
        if "{topic}" not in template and "{queue_name}" not in template:
            continue
        if not refused_plainly(caller, needs):
            continue
        content = None if body is None else json.dumps(_theirs(body)).encode()
        for trick, name in tricks.paths(THEIRS, MINE).items():
            line = f"{method} {_path(template, name)} HTTP/1.1"
            asks.append((f"{line}: {trick}", _request(line, key, body=content)))
        for trick, address in tricks.addresses(_path(template, THEIRS)).items():
            line = f"{method} {address} HTTP/1.1"
            if not _is_public(address, method):
                asks.append((f"{line}: {trick}", _request(line, key, body=content)))
        for trick, query in tricks.queries(THEIRS, MINE).items():
            path = _path(template, THEIRS)
            line = f"{method} {path}{'&' if '?' in path else '?'}{query} HTTP/1.1"
            asks.append((f"{line}: {trick}", _request(line, key, body=content)))
    assert asks or caller == "admin theirs"  # who may do everything there
    assert _wrong(site, asks) == []


def _is_public(address: str, method: str) -> bool:
    """True for what everybody may see, whatever stands behind it."""
    path = re.split("[?#]", address)[0]
    return method == "GET" and path in ("/livez", "/readyz", "/docs", "/openapi.json")


@pytest.mark.parametrize("caller", CALLERS)
def test_no_name_in_a_body_gets_more(site: Site, untouched: None, caller: str) -> None:
    key, asks = site.keys[caller], []
    for (method, template), (needs, body) in ROUTES.items():
        if not isinstance(body, dict) or not refused_plainly(caller, needs):
            continue
        for field in {"name", "topic", "transaction", "participants", "dead_letter"} & body.keys():
            for trick, name in tricks.names(THEIRS, MINE).items():
                value = _in_place(body[field], name)
                changed = _theirs(body) | {field: value}
                line = f"{method} {_path(template, THEIRS)} HTTP/1.1"
                content = json.dumps(changed).encode()
                asks.append((f"{line}: {field}: {trick}", _request(line, key, body=content)))
            twice = json.dumps(body)[:-1] + f', "{field}": {json.dumps(_theirs(body)[field])}}}'
            line = f"{method} {_path(template, THEIRS)} HTTP/1.1"
            asks.append((f"{line}: {field} twice", _request(line, key, body=twice.encode())))
    assert asks
    assert _wrong(site, asks) == []


def _in_place(before: Any, name: Any) -> Any:
    """A name where a field has one: alone, or in a transaction's name."""
    is_inside = isinstance(before, str) and isinstance(name, str) and "/" in before
    return f"{name}/{before.partition('/')[2]}" if is_inside else name


@pytest.mark.parametrize("caller", CALLERS)
def test_no_header_gets_more(site: Site, untouched: None, caller: str) -> None:
    key, asks = site.keys[caller], []
    for (method, template), (needs, body) in ROUTES.items():
        if not refused_plainly(caller, needs):
            continue
        path = _path(template, THEIRS)
        content = None if body is None else json.dumps(_theirs(body)).encode()
        for trick, lines in tricks.headers(path, key).items():
            line = f"{method} {path} HTTP/1.1"
            asks.append((f"{line}: {trick}", _request(line, key, lines, content)))
        for other in ("HEAD", "OPTIONS", "TRACE", "PATCH", "PROPFIND", "LOCK"):
            seen = ROUTES.get(("GET", template), ("root",))[0]  # HEAD is GET
            if (other, template) not in ROUTES and refused_plainly(caller, seen):
                line = f"{other} {path} HTTP/1.1"
                asks.append((line, _request(line, key, ["Connection: close"], content)))
    assert asks
    assert _wrong(site, asks) == []


@pytest.mark.parametrize("caller", ["none", "unknown", "admin mine"])
def test_a_request_within_a_request_has_the_rights_of_its_own_key(
    site: Site, untouched: None, caller: str
) -> None:
    """Bodies whose length two readers take differently, and requests sent ahead of answers."""
    own, root = site.keys[caller], site.keys["root"]
    hidden = _request(f"GET /API/v1/queues/{THEIRS}/messages?ack=true HTTP/1.1", own)
    purge = _request(f"POST /v1/topics/{THEIRS}/purge HTTP/1.1", own)
    outer = "POST /v1/topics/mine/messages HTTP/1.1\r\nHost: 127.0.0.1"
    bearer = f"\r\nAuthorization: Bearer {root}"
    heads = (
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\nContent-Length: 4",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding:\tchunked\r\nContent-Length: 4",
        "Transfer-Encoding\r\n: chunked",
        "Content-Length: 0\r\nContent-Length: 4",
        "Content-Length: +0",
        "Content-Length: 0, 4",
        "Content-Length: 0x0",
        "Content-Length: 0",
        "Expect: 100-continue\r\nContent-Length: 0",
    )
    for head in heads:
        for inner in (hidden, purge):
            for first in (outer + bearer, outer):
                content = f"{first}\r\n{head}\r\n\r\n0\r\n\r\n".encode() + inner
                assert SECRET.encode() not in _everything(site, content), head
    for _ in range(3):  # the answer before was for one who may
        looks = _request(f"GET /v1/topics/{THEIRS} HTTP/1.1", root)
        found = asked(site, [looks, hidden, looks, purge, looks])
        assert [status for status, _ in found][::2] == [200, 200, 200]
        assert {status for status, _ in found[1::2]} <= {401, 403}


def _everything(site: Site, content: bytes) -> bytes:
    """All that comes back for these bytes."""
    with socket.create_connection(
        ("127.0.0.1", site.http.port), timeout=PATIENCE_SECONDS
    ) as connection:
        connection.settimeout(0.3)
        said = b""
        try:
            connection.sendall(content)
            while piece := connection.recv(65_536):
                said += piece
        except (TimeoutError, ConnectionError):
            pass
        return said


# --- Flight ---------------------------------------------------------------------------------------


def _options(key: str | None) -> flight.FlightCallOptions:
    headers = [] if key is None else [(b"authorization", b"Bearer " + key.encode())]
    return flight.FlightCallOptions(timeout=PATIENCE_SECONDS, headers=headers)


def _outcome(call: Any) -> str:
    """How a call was refused; "" = it was not, or by a mistake of ours."""
    try:
        call()
    except (flight.FlightError, pa.ArrowException, OSError, DejaQError) as error:
        found = error_of(error)
        is_refused = isinstance(found, NotAllowed | BadRequest | TopicUnknown | Refused)
        assert SECRET not in str(error)
        return type(found).__name__ if is_refused else ""
    return ""


@pytest.mark.parametrize("caller", CALLERS)
def test_no_name_in_an_action_gets_more(site: Site, untouched: None, caller: str) -> None:
    wrong, count, options = [], 0, _options(site.keys[caller])
    with flight.FlightClient(site.flight.url.replace("dejaq", "grpc")) as client:
        for name, (needs, body) in ACTIONS.items():
            if not refused_plainly(caller, needs):
                continue
            fields = {"name", "topic", "transaction", "participants", "dead_letter", "to", "key"}
            for field in sorted(fields & body.keys()):
                if (name, field) in (("create_key", "name"), ("cron_get", "name")):
                    continue
                for trick, value in tricks.names(THEIRS, MINE).items():
                    changed = _theirs(body) | {field: _in_place(body[field], value)}
                    content = json.dumps(changed).encode()
                    action = flight.Action(name, content)
                    count += 1
                    if not _outcome(lambda action=action: list(client.do_action(action, options))):
                        wrong.append((name, field, trick))
            for odd in (name.upper(), f"{name} ", f"{name}\0", f" {name}", f"/{name}"):
                action = flight.Action(odd, json.dumps(_theirs(body)).encode())
                count += 1
                if not _outcome(lambda action=action: list(client.do_action(action, options))):
                    wrong.append((odd, "", "spelling"))
    assert count
    assert wrong == []


@pytest.mark.parametrize("caller", CALLERS)
def test_no_name_in_a_stream_gets_more(site: Site, untouched: None, caller: str) -> None:
    wrong, count, options = [], 0, _options(site.keys[caller])
    with flight.FlightClient(site.flight.url.replace("dejaq", "grpc")) as client:
        for stream, needs in STREAMS.items():
            if not refused_plainly(caller, needs) or stream in ("list_flights", "list_actions"):
                continue
            for trick, name in tricks.names(THEIRS, MINE).items():
                count += 1
                if not _outcome(lambda s=stream, n=name: _open(client, s, n, options)):
                    wrong.append((stream, trick))
    assert count or caller.startswith("admin theirs")
    assert wrong == []


def _open(
    client: flight.FlightClient, stream: str, name: Any, options: flight.FlightCallOptions
) -> None:
    if stream == "get_flight_info":
        path = name if isinstance(name, str) else json.dumps(name)
        client.get_flight_info(flight.FlightDescriptor.for_path(path), options)
        return
    values = {"topic": name}
    if stream in WRITE_OPS or stream == "consume":
        command = values if stream == "consume" else values | {"op": stream}
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
        if stream == "consume":
            writer, reader = client.do_exchange(descriptor, options)
            with writer:
                reader.read_chunk()
            return
        batch = pa.record_batch({"nonsense": [1]})
        writer, reader = client.do_put(descriptor, batch.schema, options)
        with writer:
            writer.write_batch(batch)
            writer.done_writing()
            reader.read()
        return
    ranges: dict[str, dict[str, Any]] = {
        "scan": {"partition": 0},
        "claim": {"partition": 0, "claim": 1},
        "history": {"partition": 0, "file": "x"},
        "payload": {"voucher": ""},
    }
    more = ranges.get(stream, {})
    ticket = flight.Ticket(json.dumps({"op": stream} | values | more).encode())
    client.do_get(ticket, options).read_all()


def test_every_caller_is_tried() -> None:
    with running() as fresh:
        give_keys(fresh)
        assert set(fresh.keys) - {"root"} == {*CALLERS, *BAD_KEYS}
