"""Who is let in, by a request's headers alone, and what leaves a line in the audit log.

Not covered: what pages send (access/test_pages.py), keys (access/test_gate.py), every route
(tests/integration/test_authorisation.py).
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.access.key_ring import InMemory, KeyRing
from dejaqueue.access.pages import Pages
from dejaqueue.access.roles import EVERYBODY
from dejaqueue.http import entrance as module
from dejaqueue.http.auditing import BEARER, CERTIFICATE, PRINCIPAL
from dejaqueue.http.entrance import _Entrance
from dejaqueue.http.forwarding import FORWARDED
from dejaqueue.testing.virtual_clock import VirtualClock

TAKING = "/API/v1/queues/q/messages"
PAGE = [(b"host", b"localhost"), (b"sec-fetch-site", b"cross-site")]


class Site:
    """An application behind the entrance, and what reached it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.keys = KeyRing(VirtualClock(), InMemory())
        self.pages = Pages()
        self.reached: list[dict[str, Any]] = []
        self.lines: list[int] = []
        self.entrance = _Entrance(self._answer, Gate(self.keys), self.pages)
        patch.setattr(module, "record", lambda scope, status: self.lines.append(status))

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        self.reached.append(scope)
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    def ask(
        self,
        headers: list[tuple[bytes, bytes]],
        *,
        method: str = "GET",
        path: str = "/v1/topics",
        **more: Any,
    ) -> tuple[int, dict[str, Any]]:
        """Status, and what is wrong."""
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.disconnect"}

        usual = {"type": "http", "scheme": "http", "client": ("10.0.0.1", 5), "query_string": b""}
        scope = usual | {"method": method, "path": path, "headers": headers} | more
        asyncio.run(self.entrance(scope, receive, send))
        body = b"".join(one.get("body", b"") for one in sent)
        return sent[0]["status"], {} if body == b"done" else json.loads(body)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(monkeypatch)


def shown(text: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"Bearer {text}".encode())]


def test_without_a_key_a_program_is_let_in_and_a_page_is_not(site: Site) -> None:
    assert site.ask([])[0] == 201
    assert site.reached[0][PRINCIPAL] is EVERYBODY
    status, told = site.ask(PAGE)
    assert (status, told["title"]) == (403, "Forbidden")
    assert len(site.reached) == 1
    assert site.pages.refused()["site"] == 1


def test_a_key_that_means_nothing_yet_does_not_let_a_page_in(site: Site) -> None:
    """A page that has had its name rebound can send what it likes."""
    assert site.ask([*PAGE, *shown("dq_anything")])[0] == 403


def test_once_there_is_a_key_nothing_is_answered_without_one__public_paths_are(
    site: Site,
) -> None:
    _, text = site.keys.create("root", ["admin:*"])
    for path in ("/v1/topics", "/no/such/path"):
        assert site.ask([], path=path)[0] == 401
    assert site.reached == []
    assert site.ask([], path="/livez")[0] == 201
    assert site.ask(shown(text))[0] == 201
    assert site.reached[1][BEARER] == text
    assert site.reached[1][PRINCIPAL].name == "root"
    assert site.ask(shown(text[:-1] + "z"))[0] == 401


def test_with_a_key_that_counts_a_page_may_call(site: Site) -> None:
    _, text = site.keys.create("root", ["admin:*"])
    assert site.ask([*PAGE, *shown(text)])[0] == 201


def test_two_headers_of_which_one_counts_are_refused(site: Site) -> None:
    assert site.ask([*shown("a"), *shown("b")])[0] == 401
    status, told = site.ask([(b"host", b"localhost"), (b"host", b"evil.example")])
    assert (status, told["detail"]) == (400, "host: one header, got: 'two'")
    assert site.reached == []


def test_a_certificate_counts_unless_another_broker_has_passed_the_request_on(
    site: Site,
) -> None:
    site.keys.create("root", ["admin:*"])
    site.keys.create("cert:shop", ["produce:*"])
    by_shop = {CERTIFICATE: "shop"}
    assert site.ask([], **by_shop)[0] == 201
    assert site.reached[0][PRINCIPAL].name == "cert:shop"
    assert site.ask([(FORWARDED, b"1")], **by_shop)[0] == 401


def test_what_was_let_in_once_is_not_looked_at_again__other_headers_are(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Any] = []
    check = site.pages.check

    def look(headers: Any, **more: Any) -> None:
        looked.append(headers)
        check(headers, **more)

    monkeypatch.setattr(site.pages, "check", look)
    program = [(b"host", b"localhost"), (b"accept", b"*/*")]
    for _ in range(3):
        site.ask(program)
    assert len(looked) == 1
    for _ in range(2):
        assert site.ask([*program, PAGE[1]])[0] == 403
    assert len(looked) == 3, "who was refused is looked at each time"
    site.ask([(b"host", b"127.0.0.1")])
    assert len(looked) == 4
    site.ask(program, path=TAKING)
    assert len(looked) == 5, "and who takes a message"


@pytest.mark.parametrize(
    ("method", "path", "is_written"),
    [
        ("GET", "/v1/topics", False),
        ("POST", "/v1/topics/t/messages", False),
        ("POST", "/v1/topics/t/lease", False),
        ("POST", "/v1/topics", True),
        ("DELETE", "/v1/topics/t", True),
        ("GET", TAKING, True),
        ("GET", "/API/v1/queues/q", False),
    ],
)
def test_what_is_called_most_goes_past_the_audit_log__but_a_get_that_takes(
    site: Site, method: str, path: str, is_written: bool
) -> None:
    assert site.ask([], method=method, path=path)[0] == 201
    assert site.lines == ([201] if is_written else [])
