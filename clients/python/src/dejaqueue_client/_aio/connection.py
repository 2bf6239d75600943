"""Requests to a broker, tried again for as long as they may be.

Room: client. The source of _sync/connection.py (scripts/generate_sync_client.py): change this one.
Holds: what may do something twice is never sent twice, unless nobody was reached; a request that
finds no broker goes to the next one that the URL names; one that may be made twice leaves a broker
that gives no sign of life, and waits for one that is merely slow.
See: docs/guides/http.md; problems.py for what is made of answers.
"""

from __future__ import annotations

import json
import random
import time
from typing import Any

import httpx

from dejaqueue_client._aio import waiting
from dejaqueue_client.broker_urls import broker_urls
from dejaqueue_client.errors import DejaQError, Elsewhere, Fenced, Unavailable
from dejaqueue_client.problems import error_of, unavailable
from dejaqueue_client.tls import Tls, key_headers
from dejaqueue_client.version import __version__

CONNECT_SECONDS = 5.0
SILENCE_SECONDS = 30.0
"""A broker that answers a request nothing for so long is taken to be gone."""
SILENT_SECONDS_MAX = 5.0
"""A request that may be made twice, and has waited so long, has the broker asked for a sign of
life …"""
ANSWER_SECONDS_MAX = 5.0
"""… for which it has so long."""
AGAIN_LOOK_SECONDS, AGAIN_SECONDS_MAX = 0.1, 2.0
"""A broker that gave none is asked soon when the next request waits for it, and has less time. One
that answers is waited for as before."""
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.05, 2.0
"""Before a request is tried again: doubling, with jitter of a half."""
JSON, NDJSON = "application/json", "application/x-ndjson"
_BOUNDS = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=30.0)
"""Connections that wait end before the broker would end them: after 75 seconds, if nobody changed
that."""
_UNHEARD = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class AsyncConnection:
    """The way to a broker, or to several of a cluster.

    Args:
        url: as `AsyncClient` takes it.
        retry_ms_max: how long a request that finds no broker is tried again.
    """

    def __init__(self, url: str, api_key: str | None, tls: Tls | None, retry_ms_max: int) -> None:
        self.urls = broker_urls(url)
        self.retry_seconds_max = retry_ms_max / 1_000
        self.is_closed = False
        self._headers = {"user-agent": f"dejaqueue-client/{__version__}"} | key_headers(api_key)
        # Made once: reading all certificates takes longer than a request.
        is_secured = any(one.startswith("https:") for one in self.urls)
        self._verify = (tls or Tls()).context() if is_secured else False
        name = None if tls is None else tls.server_name
        self._extensions = {} if name is None else {"sni_hostname": name}
        self._index = 0
        self._lost: set[str] = set()
        """Which brokers gave no sign of life when they were asked last."""
        self._http = self._opened()

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        parameters: Any = None,
        repeats: bool = True,
        wait_seconds: float = 0.0,
        name: str = "",
    ) -> Any:
        """Make a request; the values of the answer's JSON, None where it has none.

        Args:
            body: values for JSON; bytes are lines of it (NDJSON).
            parameters: of the address; a list has one for each of its values.
            repeats: True = it may be carried out twice.
            wait_seconds: how long the broker was asked to wait.
            name: of the request; the broker carries out those of one name once.

        Raises:
            DejaQError: what the broker answers; Unavailable: nobody answered in time.
        """
        answer, _ = await self.ask_again(
            method,
            path,
            body,
            parameters=parameters,
            repeats=repeats,
            wait_seconds=wait_seconds,
            name=name,
        )
        return answer

    async def ask_again(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        parameters: Any = None,
        repeats: bool = True,
        wait_seconds: float = 0.0,
        name: str = "",
    ) -> tuple[Any, bool]:
        """As `ask`; and True if it was sent before, and may have been carried out then."""
        headers = dict(self._headers)
        content: bytes | None = None
        if body is not None:
            is_lines = isinstance(body, bytes)
            content = body if is_lines else _dumped(body)
            headers["content-type"] = NDJSON if is_lines else JSON
        if name:
            headers["idempotency-key"] = name
        until_s = time.monotonic() + wait_seconds + self.retry_seconds_max
        failures, was_heard = 0, False
        while True:
            try:
                url = self.urls[self._index]
                request = self._request(
                    method, f"{url}{path}", parameters, content, headers, wait_seconds
                )
                asked = url if repeats else None
                return await self._answer(request, asked), was_heard
            except (Unavailable, Fenced) as error:
                is_unheard = isinstance(error, Elsewhere) or getattr(error, "is_unheard", False)
                was_heard = was_heard or not is_unheard
                pause_s = min(PAUSE_SECONDS * 2.0 ** min(failures, 20), PAUSE_SECONDS_MAX)
                pause_s *= 0.5 + random.random() / 2
                may_repeat = repeats or is_unheard
                if self.is_closed or not may_repeat or time.monotonic() + pause_s > until_s:
                    raise
            failures += 1
            self._index = (self._index + 1) % len(self.urls)
            await waiting.pause(pause_s)

    def _request(
        self,
        method: str,
        address: str,
        parameters: Any,
        content: bytes | None,
        headers: dict[str, str],
        wait_seconds: float,
    ) -> httpx.Request:
        silence_s = SILENCE_SECONDS + wait_seconds
        timeout = httpx.Timeout(silence_s, connect=CONNECT_SECONDS)
        return httpx.Request(
            method,
            address,
            params=parameters,
            content=content,
            headers=headers,
            extensions=self._extensions | {"timeout": timeout.as_dict()},
        )

    async def _answer(self, request: httpx.Request, asked: str | None) -> Any:
        """Send a request; what it is answered.

        Args:
            asked: the broker, which is left if it gives no sign of life; None = the request is made
                once. Then it goes over a connection of its own: of one that may be broken already
                nobody could tell whether the request left.
        """
        if self.is_closed:
            raise Unavailable("the client is closed")
        where = f"{request.method} {request.url.path}"
        http = self._opened() if asked is None else self._http
        try:
            answer = await self._attended(http, request, asked)
        except _UNHEARD as error:
            shown = f"{_host(request)} does not answer: {error or type(error).__name__}"
            raise unavailable(shown, is_unheard=True) from error
        except httpx.RequestError as error:
            shown = f"{where}: the connection to {_host(request)} broke: {error!r}"
            raise unavailable(f"{shown}; the outcome is unknown") from error
        finally:
            if asked is None:
                await waiting.close_http(http)
        if not 200 <= answer.status_code < 300:
            raise error_of(answer.status_code, answer.content, where)
        try:
            return json.loads(answer.content) if answer.content else None
        except ValueError:
            raise DejaQError(f"{where}: the answer is no JSON: {answer.content[:100]!r}") from None

    async def _attended(
        self, http: waiting.Http, request: httpx.Request, url: str | None
    ) -> httpx.Response:
        """Send a request; of one that may be made twice, ask for a sign of life while it waits.
        Raises Unavailable."""
        if url is None:
            return await http.send(request)

        async def send() -> httpx.Response:
            return await http.send(request)

        async def is_silent() -> bool:
            return await self._is_silent(url)

        def patience() -> float:
            return AGAIN_LOOK_SECONDS if url in self._lost else SILENT_SECONDS_MAX

        answer = await waiting.unless_silent(send, patience, is_silent)
        if answer is None:
            waiting.hang_up(http, url)  # or what it is answered later is leased to nobody
            wrong = unavailable(f"the broker at {url} does not answer; the outcome is unknown")
            wrong.is_silent = True
            raise wrong
        return answer

    async def _is_silent(self, url: str) -> bool:
        """Ask for a sign of life; remember whether one came. Whatever is answered is one. Raises
        Unavailable if the client was closed meanwhile."""
        if self.is_closed:
            raise Unavailable("the client is closed")
        seconds = AGAIN_SECONDS_MAX if url in self._lost else ANSWER_SECONDS_MAX
        timeout = httpx.Timeout(seconds).as_dict()
        extensions = self._extensions | {"timeout": timeout}
        try:
            await self._http.send(httpx.Request("GET", f"{url}/livez", extensions=extensions))
        except httpx.RequestError:
            self._lost.add(url)
            return True
        self._lost.discard(url)
        return False

    def _opened(self) -> waiting.Http:
        # What the environment says of proxies and netrc is for browsers: not for a queue.
        return waiting.Http(verify=self._verify, limits=_BOUNDS, trust_env=False)

    async def close(self) -> None:
        """Close. Twice is fine."""
        self.is_closed = True
        await waiting.close_http(self._http)


def _dumped(values: Any) -> bytes:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


def _host(request: httpx.Request) -> str:
    return f"{request.url.scheme}://{request.url.netloc.decode()}"


def lines_of(rows: Any) -> bytes:
    """Rows as NDJSON."""
    return b"\n".join(map(_dumped, rows))
