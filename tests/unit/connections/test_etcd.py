"""etcd's gateway: what a URL says, which endpoint is asked, and what an answer means."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from dejaqueue.connections.etcd import EtcdAddress, EtcdGateway, parse_url
from dejaqueue.errors import BadRequest, Refused, ResourceExhausted, Unavailable

Answer = Callable[[str, dict[str, str], dict[str, Any]], tuple[int, dict[str, Any]]]


class Endpoint:
    """An endpoint that answers as a test says, and notes what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[tuple[str, str]] = []
        endpoint = self

        class Asked(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                token = self.headers.get("Authorization", "")
                endpoint.asked.append((self.path, token))
                status, said = answer(self.path, {"token": token}, body)
                if status == 0:  # the connection ends without an answer
                    self.close_connection = True
                    return
                content = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Asked)
        self.place = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def endpoints() -> Iterator[Callable[..., EtcdGateway]]:
    made: list[Endpoint] = []
    gateways: list[EtcdGateway] = []

    def gateway(*answers: Answer, user: str = "", password: str = "") -> EtcdGateway:
        made.extend(Endpoint(answer) for answer in answers)
        places = tuple(one.place for one in made)
        gateways.append(EtcdGateway(EtcdAddress(places, "dejaq/", user, password)))
        gateways[-1].asked = [one.asked for one in made]  # type: ignore[attr-defined]
        return gateways[-1]

    yield gateway
    for one in gateways:
        one.close()
    for endpoint in made:
        endpoint.close()


def says(status: int, body: dict[str, Any]) -> Answer:
    return lambda *_: (status, body)


def asked(gateway: EtcdGateway, place: int) -> list[str]:
    return [path for path, _ in gateway.asked[place]]  # type: ignore[attr-defined]


def test_a_url_in_parts() -> None:
    address = parse_url("etcd://me:s%40cret@one:1234,two,[::1]:5/cluster/a")
    assert address.endpoints == ("http://one:1234", "http://two:2379", "http://[::1]:5")
    assert (address.namespace, address.user, address.password) == ("cluster/a/", "me", "s@cret")
    assert "s@cret" not in repr(address)
    assert parse_url("etcd://one").namespace == "dejaq/"
    assert parse_url("etcd://one?tls=true").endpoints == ("https://one:2379",)


@pytest.mark.parametrize("url", ["etcd://", "etcd:///a", "etcd://one?cert=x", "etcd://o?ca=/none"])
def test_urls_that_say_nothing_are_refused(url: str) -> None:
    with pytest.raises(BadRequest, match="coordinator: "):
        parse_url(url)


def test_what_reads_is_asked_of_the_next_endpoint(
    endpoints: Callable[..., EtcdGateway],
) -> None:
    gateway = endpoints(says(0, {}), says(503, {"code": 14}), says(200, {"count": "1"}))
    assert gateway.call("/v3/kv/range", {}, reads=True) == {"count": "1"}
    assert gateway.call("/v3/kv/range", {}, reads=True) == {"count": "1"}
    assert [len(asked(gateway, place)) for place in range(3)] == [1, 1, 2]


def test_what_changes_is_not_sent_twice(endpoints: Callable[..., EtcdGateway]) -> None:
    gateway = endpoints(says(0, {}), says(503, {"code": 14}), says(200, {"succeeded": True}))
    for _ in range(2):
        with pytest.raises(Unavailable):
            gateway.call("/v3/kv/txn", {})
    assert gateway.call("/v3/kv/txn", {}) == {"succeeded": True}
    assert [len(asked(gateway, place)) for place in range(3)] == [1, 1, 1]


def test_an_endpoint_that_nobody_listens_at_is_left(
    endpoints: Callable[..., EtcdGateway],
) -> None:
    gateway = endpoints(says(200, {"succeeded": True}))
    places = ("http://127.0.0.1:1", *gateway.address.endpoints)
    other = EtcdGateway(EtcdAddress(places, "dejaq/", "", ""))
    assert other.call("/v3/kv/txn", {}) == {"succeeded": True}
    other.close()


@pytest.mark.parametrize(
    ("code", "error"),
    [(8, ResourceExhausted), (3, BadRequest), (7, Refused), (2, Unavailable), (14, Unavailable)],
)
def test_what_the_server_says_has_its_error(
    endpoints: Callable[..., EtcdGateway], code: int, error: type[Exception]
) -> None:
    gateway = endpoints(says(500, {"code": code, "message": "so it is"}))
    with pytest.raises(error, match="so it is"):
        gateway.call("/v3/kv/txn", {})
    assert gateway.call("/v3/kv/txn", {}, expects=(code,))["code"] == code


def test_an_old_token_is_renewed_and_the_call_made_once_more(
    endpoints: Callable[..., EtcdGateway],
) -> None:
    given: list[str] = []

    def answer(path: str, headers: dict[str, str], _: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if path.endswith("authenticate"):
            given.append(f"token-{len(given)}")
            return 200, {"token": given[-1]}
        if headers["token"] != "token-1":
            return 401, {"code": 16, "error": "etcdserver: invalid auth token"}
        return 200, {"succeeded": True}

    gateway = endpoints(answer, user="me", password="secret")
    assert gateway.call("/v3/kv/txn", {}) == {"succeeded": True}
    assert len(given) == 2


def test_a_wrong_password_is_said_without_it(endpoints: Callable[..., EtcdGateway]) -> None:
    wrong = says(400, {"code": 3, "error": "authentication failed, invalid user ID or password"})
    gateway = endpoints(wrong, user="me", password="hidden")
    with pytest.raises(BadRequest) as refusal:
        gateway.call("/v3/kv/txn", {})
    assert "hidden" not in str(refusal.value)


def test_a_call_after_the_end_is_unavailable() -> None:
    """A broker that stops closes its connection while a thread may be on its way to a call."""
    gateway = EtcdGateway(parse_url("etcd://127.0.0.1:1"))
    gateway.close()
    with pytest.raises(Unavailable, match="the connection to etcd is closed"):
        gateway.call("/v3/kv/range", {})
