"""The short lane: the same answers as by the ordinary way, once, whatever comes and however."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.http.app import App
from dejaqueue.http.leasing.session import SharedSession
from dejaqueue.http.leasing.waiter import Waiter
from dejaqueue.http.short_lane import ShortLaneProtocol
from dejaqueue.http.sqs import short_lane
from dejaqueue.http.sqs.short_lane import SqsLane
from tests.patience import until
from tests.unit.http.sqs.conftest import Sqs
from tests.unit.http.sqs.test_door import clock, signed

__all__ = ["clock"]

SECONDS = 20.0
Values = dict[str, Any]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whether each request that the short lane was asked for was taken: `taken` or `left`."""
    seen: list[str] = []
    begin = SqsLane.begin

    def noted(self: SqsLane, *values: Any) -> Any:
        answering = begin(self, *values)
        seen.append("left" if answering is None else "taken")
        return answering

    monkeypatch.setattr(SqsLane, "begin", noted)
    return seen


class Raw:
    """A connection on which bytes are sent as they are."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), SECONDS)
        self._file = self.socket.makefile("rb")

    def say(self, *parts: bytes) -> None:
        for part in parts:
            self.socket.sendall(part)

    def answer(self) -> tuple[bytes, dict[bytes, bytes], bytes]:
        """Status line, headers, body."""
        status, headers = self._file.readline().rstrip(), {}
        while line := self._file.readline().rstrip():
            name, _, value = line.partition(b": ")
            headers[name] = value
        return status, headers, self._file.read(int(headers.get(b"content-length", b"0")))

    def close(self) -> None:
        self._file.close()
        self.socket.close()


@pytest.fixture
def raw(sqs: Sqs) -> Iterator[Raw]:
    raw = Raw(int(sqs.base_url.rpartition(":")[2]))
    yield raw
    raw.close()


AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential=any/20300101/eu-west-1/sqs/aws4_request, "
    f"SignedHeaders=host;x-amz-date, Signature={'0' * 64}"
)


def request(
    name: str,
    values: Values | bytes,
    *,
    more: str = "",
    chunked: bool = False,
    version: str = "1.1",
) -> bytes:
    """A request that is signed with anything; in chunks the short lane leaves it alone."""
    body = values if isinstance(values, bytes) else json.dumps(values).encode()
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    head = (
        f"POST /sqs HTTP/{version}\r\nHost: 127.0.0.1\r\nX-Amz-Target: AmazonSQS.{name}\r\n"
        f"Authorization: {AUTHORIZATION}\r\n{more}{length}\r\n\r\n"
    )
    if chunked:
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return head.encode() + body


def test_both_ways_answer_alike(sqs: Sqs, raw: Raw, taken: list[str]) -> None:
    url = sqs.queue("q")
    taken.clear()
    entries = [{"Id": "a", "MessageBody": "x"}, {"Id": "b", "MessageBody": ""}]
    asked: list[tuple[str, Values | bytes]] = [
        ("SendMessage", {"QueueUrl": url, "MessageBody": "x"}),
        ("SendMessageBatch", {"QueueUrl": url, "Entries": entries}),
        ("ReceiveMessage", {"QueueUrl": url}),
        ("GetQueueUrl", {"QueueName": "q"}),
        ("SendMessage", {"QueueUrl": f"{url}x", "MessageBody": "x"}),
        ("SendMessage", {"QueueUrl": url}),
        ("SendMessage", {"QueueUrl": url, "MessageBody": "x", "Colour": 1}),
        ("DeleteMessage", {"QueueUrl": url, "ReceiptHandle": "?"}),
        ("SendMessage", b"{"),
        ("SendMessage", b"[]"),
        ("Fly", {}),
        ("CreateQueue", {"QueueName": "q"}),
    ]
    for name, values in asked:
        found = []
        for chunked in (False, True):
            raw.say(request(name, values, chunked=chunked))
            status, headers, body = raw.answer()
            answer = json.loads(body)
            headers.pop(b"date", None)
            if status.startswith(b"HTTP/1.1 200"):
                headers.pop(b"content-length")
            shape = sorted(answer) if b"200" in status else answer
            found.append((status, sorted(headers.items()), shape))
        assert found[0] == found[1], name
    assert taken.count("taken") == 6, "those that are operations for messages, right or refused"


@pytest.mark.parametrize("size", [1, 7, 4_096])
def test_a_request_may_come_in_pieces__and_with_others(
    sqs: Sqs, raw: Raw, taken: list[str], size: int
) -> None:
    url = sqs.queue("q")
    taken.clear()
    whole = b"".join(
        request("SendMessage", {"QueueUrl": url, "MessageBody": f"m{number}"})
        for number in range(3)
    )
    raw.say(*(whole[at : at + size] for at in range(0, len(whole), size)))
    answers = [raw.answer() for _ in range(3)]
    assert [status for status, _, _ in answers] == [b"HTTP/1.1 200 OK"] * 3
    assert "taken" in taken
    assert sorted(sqs.bodies(url)) == ["m0", "m1", "m2"]


@pytest.mark.parametrize(
    ("values", "form", "is_asked"),
    [
        ({"more": "Expect: 100-continue\r\n"}, b"HTTP/1.1 100 Continue", False),
        ({"version": "1.0"}, b"HTTP/1.1 200 OK", False),
        ({"more": "Connection: close\r\n"}, b"HTTP/1.1 200 OK", True),
        ({"more": "Authorization: Bearer x\r\n"}, b"HTTP/1.1 403 Forbidden", True),
        ({"more": "Host: another\r\n"}, b"HTTP/1.1 400 Bad Request", True),
        ({"more": "Origin: http://evil.example\r\n"}, b"HTTP/1.1 403 Forbidden", True),
    ],
)
def test_what_is_said_beside_a_request_counts(
    sqs: Sqs, raw: Raw, taken: list[str], values: Any, form: bytes, is_asked: bool
) -> None:
    url = sqs.queue("q")
    taken.clear()
    raw.say(request("SendMessage", {"QueueUrl": url, "MessageBody": "x"}, **values))
    status, headers, _ = raw.answer()
    assert status == form
    assert bool(taken) == is_asked
    if "Connection" in values.get("more", "") or "version" in values:
        assert headers[b"connection"] == b"close"
        assert raw.socket.recv(1) == b"", "it is closed"


def test_a_body_that_is_not_read_at_once_goes_the_ordinary_way(
    sqs: Sqs, raw: Raw, taken: list[str]
) -> None:
    url = sqs.queue("q")
    taken.clear()
    raw.say(request("SendMessage", {"QueueUrl": url, "MessageBody": "x" * 200_000}))
    assert raw.answer()[0] == b"HTTP/1.1 200 OK"
    assert taken == []


def test_with_keys_a_signature_is_verified(sqs: Sqs, gate: Gate, taken: list[str]) -> None:
    url = sqs.queue("q")
    taken.clear()
    root, text = gate.keys.create("root", ["admin:*"])
    reader, reader_text = gate.keys.create("reader", ["consume:q"])
    body = json.dumps({"QueueUrl": url, "MessageBody": "x"}).encode()

    def status(key_id: str, secret: str) -> tuple[int, str]:
        asked = signed(sqs, key_id, secret, body=body, name="SendMessage")
        return sqs.http.send(asked).status_code, taken.pop()

    assert status(root.id, text) == (200, "taken")
    assert status(root.id, f"{text}x") == (403, "left")
    assert status(reader.id, reader_text) == (403, "taken"), "refused by the ordinary way, then"
    gate.keys.create("other", ["admin:*"])
    gate.keys.revoke(root.id)
    assert status(root.id, text) == (403, "left")


def test_each_request_is_counted_once(sqs: Sqs, raw: Raw) -> None:
    url = sqs.queue("q")

    def counted() -> dict[str, float]:
        lines = sqs.http.get("/metrics").text.splitlines()
        named = [line for line in lines if line.startswith("dejaq_http_requests_total{")]
        return {
            line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
            for line in named
            if 'route="/sqs"' in line
        }

    before = counted()
    for values in ({"QueueUrl": url, "MessageBody": "x"}, {"QueueUrl": url}, {"QueueUrl": "no"}):
        raw.say(request("SendMessage", values))
        raw.answer()
    more = {name: count - before.get(name, 0) for name, count in counted().items()}
    by_status = {name.partition('status="')[2][:3]: count for name, count in more.items() if count}
    assert by_status == {"200": 1, "400": 2}


def test_an_operation_that_fails_is_not_done_again(
    sqs: Sqs, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def fails(operation: Any) -> Any:
        asked.append(operation)
        raise RuntimeError("a bug")

    call = short_lane._CALLS[b"AmazonSQS.SendMessage"]
    spoilt = type(call)(fails, call.required, call.optional, call.audited)
    monkeypatch.setitem(short_lane._CALLS, b"AmazonSQS.SendMessage", spoilt)
    raw.say(request("SendMessage", {"QueueUrl": "q", "MessageBody": "x"}))
    status, _, body = raw.answer()
    assert status.startswith(b"HTTP/1.1 500")
    assert json.loads(body)["__type"].endswith("InternalFailure")
    assert len(asked) == 1


def test_who_goes_away_while_waiting_gets_nothing(
    sqs: Sqs, raw: Raw, broker: Broker, taken: list[str]
) -> None:
    def is_waited_on() -> bool:
        return any(one["credit"] for one in broker.consumers("q"))

    url = sqs.queue("q")
    taken.clear()
    raw.say(request("ReceiveMessage", {"QueueUrl": url, "WaitTimeSeconds": 20}))
    until(is_waited_on, "the request waits")
    assert taken == ["taken"]
    raw.close()
    until(lambda: not is_waited_on(), "nobody waits")
    sqs.send(url, "x")
    assert sqs.bodies(url) == ["x"]


def test_who_goes_away_in_the_instant_in_which_messages_come_gets_none(
    sqs: Sqs, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were leased for it, and would be with nobody until their lease ends."""
    url = sqs.queue("q")
    sqs.send(url, "x")
    answer = SharedSession._answer
    calls: list[Waiter] = []

    def answers(session: SharedSession, waiter: Waiter) -> None:
        answer(session, waiter)  # from here on nobody watches
        if not calls:
            calls.append(waiter)
            for connection in connections:
                connection.transport.close()

    connections: list[ShortLaneProtocol] = []
    begin = ShortLaneProtocol.on_message_complete

    def noted(connection: ShortLaneProtocol) -> None:
        connections.append(connection)
        begin(connection)

    taken.clear()
    monkeypatch.setattr(ShortLaneProtocol, "on_message_complete", noted)
    monkeypatch.setattr(SharedSession, "_answer", answers)
    with closing(Raw(int(sqs.base_url.rpartition(":")[2]))) as raw:
        raw.say(request("ReceiveMessage", {"QueueUrl": url}))
        assert raw.socket.recv(1) == b"", "closed without an answer"
    assert taken == ["taken"]
    connections.clear()
    assert sqs.bodies(url, WaitTimeSeconds=20) == ["x"]


def test_an_application_without_sqs_has_no_short_lane() -> None:
    assert App.short_lane is None
