"""Requests that another broker answers: passed on as they came, once, and what comes back.

A real connection to a broker that answers as the test says. Not covered: two brokers and caller's
keys (tests/integration/test_http_forwarding.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dejaqueue.errors import DejaQError, Elsewhere, Unavailable
from dejaqueue.flight.sharded import ShardedBrokers
from dejaqueue.http import forwarding as module
from dejaqueue.http.auditing import BEARER, OUTCOME, PRINCIPAL, SHARDED, SIGNED
from dejaqueue.http.forwarding import FOLLOWS, FORWARDED, Forwarding

OK = b"HTTP/1.1 202 Accepted\r\ncontent-length: 4\r\nx-kind: far\r\nconnection: close\r\n\r\nfine"
Message = MutableMapping[str, Any]


def body(content: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": content, "more_body": more}


GONE: Message = {"type": "http.disconnect"}


class Far:
    """Another broker: what it is asked, in bytes, and what it answers."""

    def __init__(self, answer: bytes = OK) -> None:
        self.answer = answer
        self.asked = b""
        self.ends_early = False
        self.url = ""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked = await reader.readuntil(b"\r\n\r\n")
        if b"chunked" in self.asked:
            self.asked += await reader.readuntil(b"0\r\n\r\n")
        elif b"content-length: " in self.asked:
            length = int(self.asked.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            self.asked += await reader.readexactly(length)
        if not self.ends_early and not self.answer:
            await reader.read()  # until the other side ends it
            self.ends_early = True
        writer.write(self.answer)
        writer.close()


class Near:
    """The application in front, which says that the topic is elsewhere."""

    def __init__(self, outcome: DejaQError | None) -> None:
        self.outcome = outcome
        self.read: list[Message] = []
        self.scopes: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(dict(scope))
        self.read.append(await receive())
        status = 200
        if self.outcome is not None and SHARDED not in scope:
            scope[OUTCOME], status = self.outcome, 503
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"near"})


def ask(
    near: Near,
    far: Far | None,
    messages: list[Message],
    headers: list[tuple[bytes, bytes]] | None = None,
    sharded: Any = None,
    more: dict[str, Any] | None = None,
) -> tuple[int, bytes, dict[bytes, bytes]]:
    """Status, body and headers of the answer; the caller stays after these messages."""

    async def run() -> list[Message]:
        sent: list[Message] = []
        left = list(messages)

        async def receive() -> Message:
            if left:
                return left.pop(0)
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            sent.append(message)

        scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/v1/t é"}
        scope |= {"headers": headers or [], **(more or {})}
        app = Forwarding(cast(Any, near), cast(ShardedBrokers, sharded))
        if far is None:
            await asyncio.wait_for(app(scope, receive, send), 20)
            return sent
        server = await asyncio.start_server(far, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            far.url = f"http://127.0.0.1:{port}"
            if isinstance(near.outcome, Elsewhere) and near.outcome.http_url:
                near.outcome.http_url = far.url
            await asyncio.wait_for(app(scope, receive, send), 20)
        return sent

    sent = asyncio.run(run())
    content = b"".join(one.get("body", b"") for one in sent[1:])
    return sent[0]["status"], content, dict(sent[0]["headers"])


def elsewhere(**more: Any) -> Elsewhere:
    return Elsewhere("served by b", 50, "b", **({"http_url": "somewhere"} | more))


def test_a_request_goes_on_as_it_came__and_the_answer_comes_back() -> None:
    near, far = Near(elsewhere()), Far()
    headers = [(b"content-length", b"4"), (b"authorization", b"Bearer k"), (b"x-mine", b"1")]
    found = ask(
        near, far, [body(b"ab", more=True), body(b"cd")], headers, more={"query_string": b"a=1"}
    )
    assert found == (202, b"fine", {b"content-length": b"4", b"x-kind": b"far"})
    head, _, content = far.asked.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/t%20%C3%A9?a=1 HTTP/1.1\r\n")
    assert content == b"abcd", "what was read here already goes on, too"
    lines = head.lower().split(b"\r\n")
    assert {b"authorization: bearer k", b"x-mine: 1", FORWARDED + b": 1"} <= set(lines)


def test_headers_of_this_connection_stay_here() -> None:
    far = Far()
    headers = [(b"host", b"mine.example"), (b"origin", b"http://mine.example")]
    headers += [(b"connection", b"keep-alive"), (b"referer", b"http://mine.example/x")]
    ask(Near(elsewhere()), far, [body(b"")], headers)
    told = far.asked.lower()
    assert b"mine.example" not in told
    assert b"keep-alive" not in told
    assert b"host: " + far.url.removeprefix("http://").encode() in told


def test_the_host_of_a_signed_request_goes_with_it() -> None:
    far = Far()
    headers = [(b"host", b"mine.example"), (b"x-dejaq-host", b"forged.example")]
    ask(Near(elsewhere()), far, [body(b"")], headers, more={SIGNED: True})
    told = far.asked.lower()
    assert b"x-dejaq-host: mine.example" in told
    assert b"forged" not in told


def test_a_body_of_unknown_length_goes_on_in_chunks() -> None:
    far = Far()
    chunked = [(b"transfer-encoding", b"chunked")]
    ask(Near(elsewhere()), far, [body(b"ab", more=True), body(b"cd")], chunked)
    assert far.asked.endswith(b"2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n")


@pytest.mark.parametrize("header", [FORWARDED, FOLLOWS])
def test_a_request_is_passed_on_once__and_not_for_who_goes_there_himself(header: bytes) -> None:
    near, far = Near(elsewhere()), Far()
    assert ask(near, far, [body(b"")], [(header, b"1")])[:2] == (503, b"near")
    assert far.asked == b""


@pytest.mark.parametrize(
    "outcome", [None, Unavailable("no"), elsewhere(http_url="")], ids=["none", "other", "nowhere"]
)
def test_what_this_broker_answers_is_not_passed_on(outcome: DejaQError | None) -> None:
    near, far = Near(outcome), Far()
    assert ask(near, far, [body(b"")])[1] == b"near"
    assert far.asked == b""


def test_who_is_known_by_a_certificate_is_told_where_to_go() -> None:
    """This broker does not have it, and would ask as somebody else."""
    near, far = Near(elsewhere()), Far()
    by_certificate: dict[str, Any] = {PRINCIPAL: SimpleNamespace(key_id="cert:shop"), BEARER: None}
    assert ask(near, far, [body(b"")], more=by_certificate)[0] == 503
    assert far.asked == b""


def problem_of(found: tuple[int, bytes, Any]) -> tuple[int, str]:
    return found[0], json.loads(found[1])["detail"]


def test_a_broker_that_is_not_there_is_said_to_be_silent() -> None:
    near = Near(Elsewhere("served by b", 50, "b", http_url="http://127.0.0.1:1"))
    status, said = problem_of(ask(near, None, [body(b"")]))
    assert status == 503
    assert "b at http://127.0.0.1:1 does not answer" in said


def test_where_no_answer_comes_the_outcome_is_said_to_be_unknown() -> None:
    far = Far(b"")
    far.ends_early = True
    status, said = problem_of(ask(Near(elsewhere()), far, [body(b"")]))
    assert status == 503
    assert "the outcome is unknown" in said
    assert problem_of(ask(Near(elsewhere()), Far(b"SMTP\r\n\r\n"), [body(b"")]))[0] == 503


def test_half_an_answer_does_not_look_whole() -> None:
    far = Far(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nfour")
    with pytest.raises(Exception, match="peer closed|the connection ended"):
        ask(Near(elsewhere()), far, [body(b"")])


def test_a_caller_who_goes_away_ends_the_request_there_too() -> None:
    far = Far(b"")
    with pytest.raises(IndexError):  # nobody is left to be answered
        ask(Near(elsewhere()), far, [body(b""), GONE])
    assert far.asked


def test_a_broker_that_is_silent_for_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENCE_S", 0.05)
    status, said = problem_of(ask(Near(elsewhere()), Far(b""), [body(b"")]))
    assert status == 503
    assert "TimeoutError" in said


# --- topics in shards ---------------------------------------------------------------------------

Of = Callable[[str | None], Any]


def test_a_topic_in_shards_is_asked_for_here_again__with_the_same_body() -> None:
    near = Near(elsewhere(spread=3))
    asked: list[str | None] = []

    def of(bearer: str | None) -> Any:
        asked.append(bearer)
        return "shards"

    sharded = SimpleNamespace(of=of)
    found = ask(near, None, [body(b"ab"), GONE], sharded=sharded, more={BEARER: "k"})
    assert found[:2] == (200, b"near")
    assert asked == ["k"]
    assert near.read == [body(b"ab"), body(b"ab")]
    assert [scope.get(SHARDED) for scope in near.scopes] == [None, "shards"]
    assert OUTCOME not in near.scopes[1]


def test_where_the_shards_cannot_be_asked_that_is_the_answer() -> None:
    def of(bearer: str | None) -> Awaitable[Any]:
        raise Unavailable("this broker has lost touch with the cluster", 100)

    near, sharded = Near(elsewhere(spread=3)), SimpleNamespace(of=of)
    found = ask(near, None, [body(b"")], sharded=sharded, more={BEARER: "k"})
    assert problem_of(found) == (503, "this broker has lost touch with the cluster")
