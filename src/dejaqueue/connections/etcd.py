"""etcd's JSON gateway: several endpoints, sign-in, and errors by what became of the call.

    etcd://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…][/NAMESPACE][?tls=true&ca=FILE&…]

Room: connections.
Holds: a call that may have been carried out is not sent again by itself, unless it only reads;
no password is in any text of ours.
See: coordinator/etcd.py; docs/adr/0014-one-contract-for-six-coordinators.md, why not a client
package.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx

from dejaqueue.connections.tls import OPTIONS, client_context
from dejaqueue.errors import BadRequest, Refused, ResourceExhausted, Unavailable

PORT = 2379
CONNECT_S = 1.0
ANSWER_S = 3.0
SILENCE_S = 2.0
"""A stream that says nothing for so long is opened anew: the other end may be gone."""

# gRPC's numbers, as the gateway gives them.
INVALID, NOT_FOUND, DENIED, EXHAUSTED, OUT_OF_RANGE, UNAUTHENTICATED = 3, 5, 7, 8, 11, 16
_TOKEN_WORDS = ("auth token", "auth store", "user name is empty")
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True, slots=True)
class EtcdAddress:
    """What a URL says."""

    endpoints: tuple[str, ...]
    namespace: str
    user: str
    password: str = field(repr=False)
    tls: ssl.SSLContext | None = field(repr=False, default=None)


def parse_url(url: str) -> EtcdAddress:
    """The parts of an `etcd://` URL. Raises BadRequest."""
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise BadRequest("coordinator", f"options {', '.join(sorted(OPTIONS))}", unknown[0])
    tls = client_context(options, "coordinator")
    scheme = "https" if tls else "http"
    endpoints = tuple(f"{scheme}://{_with_port(host)}" for host in hosts.split(",") if host)
    if not endpoints:
        raise BadRequest("coordinator", "etcd://HOST:PORT", f"etcd://{parts.path}")
    namespace = parts.path.strip("/") or "dejaq"
    return EtcdAddress(endpoints, f"{namespace}/", unquote(user), unquote(password), tls)


def _with_port(host: str) -> str:
    return host if ":" in host.rpartition("]")[2] else f"{host}:{PORT}"


class EtcdGateway:
    """Calls to whichever endpoint answers. Any thread may call.

    Attributes:
        summary: the server's name and version.
    """

    def __init__(self, address: EtcdAddress) -> None:
        self.address = address
        self._client = httpx.Client(
            verify=address.tls or False,
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            trust_env=False,
        )
        self._current = 0
        self._lock = threading.Lock()
        # A token is good for the member that gave it only.
        self._tokens: dict[str, str] = {}
        self.summary = ""

    def open(self) -> None:
        """Ask for the version. Raises Unavailable."""
        body = self.call("/version", None, reads=True)
        self.summary = f"etcd {body.get('etcdserver', '')}".strip()

    def call(
        self,
        path: str,
        body: Mapping[str, Any] | None,
        *,
        reads: bool = False,
        expects: tuple[int, ...] = (),
    ) -> dict[str, Any]:
        """The answer to a call, as JSON.

        Args:
            body: None = a GET.
            reads: it changes nothing, so it may be sent again after no answer.
            expects: gRPC codes that are an answer and no error; `code` is then in it.

        Raises:
            Unavailable: no answer; what the call was to change is unknown.
            ResourceExhausted, BadRequest, Refused: the server said so; nothing was changed.
        """
        reason = "no endpoint"
        for endpoint in self._in_turn():
            try:
                answer = self._send(endpoint, path, body)
            except _NOT_SENT as error:
                reason = f"{endpoint}: {error!r}"
            except httpx.TransportError as error:
                reason = f"{endpoint}: {error!r}"
                if not reads:
                    self._leave(endpoint)
                    break
            else:
                code = int(answer.get("code", 0))
                if not code or code in expects:
                    return answer
                reason = f"{endpoint}: {answer.get('message') or answer.get('error')}"
                _raise_refusal(code, reason)
                if not reads:
                    self._leave(endpoint)
                    break
            self._leave(endpoint)
        raise Unavailable(f"etcd does not answer: {reason}")

    @contextlib.contextmanager
    def stream(self, path: str, body: Mapping[str, Any]) -> Iterator[httpx.Response]:
        """The answers to a call that goes on, from the endpoint that answers now.

        Raises:
            httpx.TransportError: also while it is read; ReadTimeout after `SILENCE_S`.
        """
        endpoint = self.address.endpoints[self._current]
        # A member that lost the others must say so, not fall silent.
        headers = {"Grpc-Metadata-hasleader": "true"} | self._authorization(endpoint)
        timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S, read=SILENCE_S)
        with self._client.stream(
            "POST", endpoint + path, json=body, headers=headers, timeout=timeout
        ) as response:
            if response.status_code == 401:
                self._tokens.pop(endpoint, None)
            yield response

    def leave_current(self) -> None:
        """Try the next endpoint first from now on."""
        self._leave(self.address.endpoints[self._current])

    def close(self) -> None:
        """Close every connection. Calls that come later, or are on their way, are Unavailable."""
        self._client.close()

    def _in_turn(self) -> list[str]:
        endpoints, first = self.address.endpoints, self._current
        return [*endpoints[first:], *endpoints[:first]]

    def _leave(self, endpoint: str) -> None:
        with self._lock:
            if self.address.endpoints[self._current] == endpoint:
                self._current = (self._current + 1) % len(self.address.endpoints)

    def _send(self, endpoint: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        answer = self._send_once(endpoint, path, body)
        words = str(answer.get("message") or answer.get("error") or "")
        if self.address.user and any(word in words for word in _TOKEN_WORDS):
            # The call was refused before it was looked at: signing in anew and sending is safe.
            self._tokens.pop(endpoint, None)
            answer = self._send_once(endpoint, path, body)
        return answer

    def _send_once(
        self, endpoint: str, path: str, body: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        try:
            if body is None:
                response = self._client.get(endpoint + path)
            else:
                headers = self._authorization(endpoint)
                response = self._client.post(endpoint + path, json=body, headers=headers)
        except RuntimeError:
            if not self._client.is_closed:
                raise
            # httpx has no error of its own for this. A broker that stops closes its connection
            # while threads of its own may still be on their way to a call.
            raise Unavailable("the connection to etcd is closed", 1_000) from None
        return _answer(response)

    def _authorization(self, endpoint: str) -> dict[str, str]:
        if not self.address.user:
            return {}
        token = self._tokens.get(endpoint)
        if token is None:
            sign_in = {"name": self.address.user, "password": self.address.password}
            response = self._client.post(f"{endpoint}/v3/auth/authenticate", json=sign_in)
            answer = _answer(response)
            if "token" not in answer:
                said = answer.get("message") or answer.get("error") or "no token"
                _raise_refusal(int(answer.get("code", 0)), f"{endpoint}: {said}")
                raise httpx.ConnectError(f"no sign-in: {said}")  # the call itself was not sent
            token = self._tokens[endpoint] = str(answer["token"])
        return {"Authorization": token}


def _answer(response: httpx.Response) -> dict[str, Any]:
    """The JSON of an answer; with `code` if it is an error."""
    try:
        body = response.json()
    except json.JSONDecodeError:
        body = {"message": response.text[:200]}
    if not isinstance(body, dict):
        body = {"message": str(body)[:200]}
    if response.status_code != 200:
        body.setdefault("code", 14)
    elif isinstance(stream_error := body.get("error"), dict):
        return {"code": stream_error.get("grpc_code", 14), "message": stream_error.get("message")}
    result = body.get("result")
    return result if isinstance(result, dict) else body


def _raise_refusal(code: int, reason: str) -> None:
    """Raise what the server says about the call itself; return if it says nothing of the kind."""
    if code == EXHAUSTED:
        raise ResourceExhausted(f"etcd has no room: {reason}", 1_000)
    if code == INVALID:
        raise BadRequest("coordinator", "a call that etcd takes", reason)
    if code in {DENIED, UNAUTHENTICATED}:
        raise Refused(f"etcd refuses this user: {reason}")
