"""Headers go out with the body, and nothing is kept back for good."""

from __future__ import annotations

from asyncio import Transport

from dejaqueue.http.one_write import OneWrite
from tests.unit.http.conftest import Api


class Noting(Transport):
    """Notes what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, content: object) -> None:
        assert isinstance(content, bytes)
        self.written.append(content)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def test_head_and_body_are_one_write() -> None:
    noting = Noting()
    one = OneWrite(noting)
    for content in (b"HTTP/1.1 200 OK\r\n\r\n", b"body", b"more"):
        one.write(content)
    assert noting.written == [b"HTTP/1.1 200 OK\r\n\r\nbody", b"more"]
    assert not one.is_closing()


def test_an_empty_body_lets_the_head_go() -> None:
    noting = Noting()
    one = OneWrite(noting)
    one.write(b"HTTP/1.1 204 No Content\r\n\r\n")
    one.write(b"")
    assert noting.written == [b"HTTP/1.1 204 No Content\r\n\r\n"]


def test_whoever_waits_for_100_gets_it() -> None:
    noting = Noting()
    one = OneWrite(noting)
    one.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert noting.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    one.write(b"HTTP/1.1 200 OK\r\n\r\n")
    one.write(b"x")
    assert noting.written[1] == b"HTTP/1.1 200 OK\r\n\r\nx"


def test_closing_keeps_nothing_back() -> None:
    noting = Noting()
    one = OneWrite(noting)
    one.write(b"HTTP/1.1 500 No\r\n\r\n")
    one.close()
    assert noting.written == [b"HTTP/1.1 500 No\r\n\r\n"]
    assert one.is_closing()


def test_answers_without_a_body_come(api: Api) -> None:
    assert api.http.head("/livez").status_code == 200
    assert api.http.delete("/v1/topics/t").status_code == 204
    assert api.get("/v1/topics") == {"topics": []}
