"""Bytes that are no calls of DOQ's gRPC API, at a real port: refused, answered, and gone.

Covered: requests that are no protobuf, texts that are no UTF-8, numbers and texts at their bounds,
bodies and headers that are too large, calls and services that are not there, what is no HTTP/2,
streams whose clients go away; drawn at random, with a seed. After each the port answers.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from dejaqueue.errors import InternalError
from dejaqueue.http.doq.door.protocol import SERVICE, load_calls
from dejaqueue.http.doq.door.server import MESSAGE_BYTES_MAX
from dejaqueue.model import Topic, TopicKind
from dejaqueue.setting_groups import DoqSettings
from tests.doq.grpc_client import request, stub_of
from tests.integration.access_fixture import Site, running
from tests.patience import PATIENCE_SECONDS, until

CODE = grpc.StatusCode
CALLS = load_calls()
TRIES = 600


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running(doq=DoqSettings(enabled=True, port=0)) as served:
        served.broker.create_topic(Topic("q", TopicKind.FAIR))
        yield served


@pytest.fixture
def channel(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[grpc.Channel]:
    """Bytes in, bytes out. Afterwards the broker is well, and no bug was met."""
    bugs: list[InternalError] = []
    monkeypatch.setattr(InternalError, "keep_story", bugs.append)
    with grpc.insecure_channel(f"127.0.0.1:{site.http.doq_port}") as made:
        yield made
        sent = request("Enqueue", queueName="q", content="a")
        assert stub_of(made).Enqueue(sent, timeout=PATIENCE_SECONDS).success
    assert bugs == []


def said(channel: grpc.Channel, name: str, content: bytes, **more: Any) -> Any:
    """The status of a call with these bytes, or of a stream that begins with them."""
    path = f"/{SERVICE}/{name}"
    try:
        if name.endswith("Stream"):
            for _ in channel.stream_stream(path)(iter([content]), timeout=PATIENCE_SECONDS, **more):
                break
        else:
            channel.unary_unary(path)(content, timeout=PATIENCE_SECONDS, **more)
    except grpc.RpcError as error:
        assert "Traceback" not in error.details()
        return error.code()
    return CODE.OK


@pytest.mark.parametrize("name", list(CALLS))
def test_what_is_no_request_is_refused(channel: grpc.Channel, name: str) -> None:
    wrong = {"no protobuf": b"\xff" * 9, "cut off": b"\x0a\x7fq", "no UTF-8": b"\x0a\x02\xc3\x28"}
    for what, content in wrong.items():
        if name == "GenerateIDs" and what != "no protobuf":
            continue  # it has no texts
        assert said(channel, name, content) is CODE.INVALID_ARGUMENT, what


def test_requests_drawn_at_random_are_answered(channel: grpc.Channel) -> None:
    dice = random.Random(24)
    texts = ["", "q", "none", "ü", "a\0b", "x" * 300, "..", "doq-priority", "\u001e"]
    numbers = [0, 1, -1, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1, 65_535, 1_001]
    found = set()
    for _ in range(TRIES):
        name, call = dice.choice(list(CALLS.items()))
        asked = call.request()
        for field in call.request.DESCRIPTOR.fields:
            if dice.random() < 0.3:
                continue
            if field.name == "metadata":
                asked.metadata[dice.choice(texts)] = dice.choice(texts)
            elif field.type == field.TYPE_STRING:
                text = (
                    "q"
                    if field.name.endswith("ame") and dice.random() < 0.6
                    else dice.choice(texts)
                )
                setattr(asked, field.name, text)
            elif field.type == field.TYPE_BOOL:
                setattr(asked, field.name, True)
            elif field.type != field.TYPE_MESSAGE:
                try:
                    setattr(asked, field.name, dice.choice(numbers))
                except ValueError:
                    continue  # protobuf itself lets no client send that
        if name in ("DeleteQueue", "DequeueStream"):
            continue  # the one would end the test, the other waits for what may not come
        content = asked.SerializeToString()
        if dice.random() < 0.2:
            content = bytes(dice.choice(content or b"\0") for _ in content)
        found.add(said(channel, name, content))
    assert {CODE.OK, CODE.INVALID_ARGUMENT, CODE.NOT_FOUND} <= found
    assert not found & {CODE.INTERNAL, CODE.UNKNOWN, CODE.DEADLINE_EXCEEDED}


def test_what_is_too_large_or_not_there_is_refused(channel: grpc.Channel) -> None:
    assert said(channel, "Enqueue", b"\0" * (MESSAGE_BYTES_MAX + 1)) is CODE.RESOURCE_EXHAUSTED
    assert said(channel, "Enqueue", b"", metadata=[("x", "y" * 70_000)]) is not CODE.OK
    assert said(channel, "Backup", b"") is CODE.UNIMPLEMENTED
    with pytest.raises(grpc.RpcError):
        channel.unary_unary("/other.Service/Enqueue")(b"", timeout=PATIENCE_SECONDS)


def test_what_is_no_http_2_is_hung_up_on(channel: grpc.Channel, site: Site) -> None:
    assert site.http.doq_port is not None
    dice = random.Random(7)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for content in (
        b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        dice.randbytes(4_096),
        preface + dice.randbytes(4_096),
        preface + b"\xff\xff\xff\x04\0\0\0\0\0",
    ):
        with socket.create_connection(("127.0.0.1", site.http.doq_port), PATIENCE_SECONDS) as raw:
            raw.sendall(content)
            try:
                while raw.recv(4_096):
                    pass
            except ConnectionError:
                pass


def test_streams_whose_clients_go_away_leave_nothing_open(
    channel: grpc.Channel, site: Site
) -> None:
    site.broker.create_topic(Topic("empty", TopicKind.FAIR))
    account = site.broker.quotas.of_address("127.0.0.1")
    before = account.streams
    first = CALLS["DequeueStream"].request(queueName="empty").SerializeToString()

    def asked() -> Iterator[bytes]:
        yield first
        yield first

    path = f"/{SERVICE}/DequeueStream"
    waiting = [channel.stream_stream(path)(asked()) for _ in range(50)]
    until(lambda: account.streams == before + 50)
    for stream in waiting:
        stream.cancel()
    until(lambda: account.streams == before)
    assert account.streams == before
