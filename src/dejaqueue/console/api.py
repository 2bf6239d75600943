"""The HTTP API as the console calls it: requests without sockets, in the same process.

Room: console. Knows an ASGI application, and nothing of what is behind it.
Holds: a request carries the viewer's key, address and certificate, so the entrance judges it as if
the viewer had made it; what only a browser sends stays behind.
See: http/app.py, which puts both together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote, unquote, urlencode

import orjson
from starlette.types import ASGIApp, Message, Scope

Answer: TypeAlias = Any
"""JSON of an answer; a text where it is none; None where it has no body."""


class ApiError(Exception):
    """An answer that says no.

    Attributes:
        status: of HTTP.
        detail: the sentence of the problem.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Api:
    """The API for one viewer.

    Args:
        app: what answers.
        scope: of the viewer's own request.
        key: the viewer's API key; None = none.
    """

    def __init__(self, app: ASGIApp, scope: Scope, key: str | None) -> None:
        self._app = app
        self._scope = scope
        self._key = key

    async def get(self, path: str, **query: Any) -> Answer:
        """The answer to a GET; None among the parameters is left out. Raises ApiError."""
        return await self.call("GET", path, query=query)

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """The answer to a POST. Raises ApiError."""
        return await self.call("POST", path, body=body or {})

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The answer to a request.

        Args:
            path: its parts quoted, as `topic_path` does it.
            headers: further ones, with names in small letters; None = none.

        Raises:
            ApiError: it is no success.
        """
        content = b"" if body is None else orjson.dumps(body)
        scope = self._inner(method, path, query or {}, len(content))
        scope["headers"] += [
            (name.encode(), value.encode()) for name, value in (headers or {}).items()
        ]
        status, pieces = 500, []
        is_read, is_answered = False, asyncio.Event()

        async def receive() -> Message:
            nonlocal is_read
            if not is_read:
                is_read = True
                return {"type": "http.request", "body": content, "more_body": False}
            # As a server does it: what passes a request on waits here for a caller that goes away.
            await is_answered.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                pieces.append(bytes(message.get("body", b"")))
                if not message.get("more_body", False):
                    is_answered.set()

        await self._app(scope, receive, send)
        answer = _read(b"".join(pieces))
        if status >= 400:
            raise ApiError(status, _detail(answer))
        return answer

    def _inner(self, method: str, path: str, query: Mapping[str, Any], body_bytes: int) -> Scope:
        outer = self._scope
        host = [value for name, value in outer["headers"] if name == b"host"][:1]
        headers = [
            *((b"host", value) for value in host),
            (b"content-type", b"application/json"),
            (b"content-length", str(body_bytes).encode()),
        ]
        if self._key is not None:
            headers.append((b"authorization", f"Bearer {self._key}".encode()))
        given = [(name, one) for name, value in query.items() for one in _texts(value)]
        kept = {name: value for name, value in outer.items() if name.startswith("dejaq.")}
        names = ("asgi", "http_version", "scheme", "client", "server", "app", "extensions")
        kept |= {name: outer[name] for name in names if name in outer}
        raw_path = path.encode("ascii")
        return kept | {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": raw_path,
            "root_path": "",
            "query_string": urlencode(given).encode(),
            "headers": headers,
            "state": {},
        }


def topic_path(topic: str, *parts: str) -> str:
    """The path of a topic, or of something of it.

    >>> topic_path("a b", "messages", "7")
    '/v1/topics/a%20b/messages/7'
    """
    return "/".join(("/v1/topics", *(quote(part, safe="") for part in (topic, *parts))))


def _texts(value: Any) -> Iterable[str]:
    if value is None:
        return ()
    if isinstance(value, bool):
        return ("true" if value else "false",)
    if isinstance(value, list | tuple):
        return tuple(str(one) for one in value)
    return (str(value),)


def _read(content: bytes) -> Answer:
    if not content:
        return None
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return content.decode("utf-8", "replace")


def _detail(answer: Answer) -> str:
    if isinstance(answer, dict):
        return str(answer.get("detail") or answer.get("title") or answer)
    return str(answer)
