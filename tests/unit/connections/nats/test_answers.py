"""What JetStream's answers mean. Answers of real servers: tests/cluster/test_no_leader.py."""

from __future__ import annotations

import json

import pytest

from dejaqueue.connections.nats.answers import (
    ERROR_BYTES_MAX,
    MEANINGS,
    ApiRefusal,
    Meaning,
    Reply,
    is_not_now,
    read_answer,
)
from dejaqueue.errors import Unavailable


def refused(code: int, number: int) -> Reply:
    error = {"code": code, "err_code": number, "description": "no"}
    return Reply("subject", json.dumps({"error": error}).encode())


NOBODY = Reply("subject", b"", {"Status": "503"})


@pytest.mark.parametrize(
    ("code", "number", "meaning"),
    [
        (503, 10008, Meaning.AGAIN),
        (400, 10005, Meaning.AGAIN),
        (500, 10118, Meaning.AGAIN),
        (503, 10077, Meaning.UNKNOWN),
        (503, 10023, Meaning.NO_ROOM),
        (404, 10059, Meaning.ABSENT),
        (503, 19999, Meaning.UNKNOWN),
        (400, 10071, Meaning.FINAL),
    ],
)
def test_a_refusal_means_what_the_table_says__or_its_code(
    code: int, number: int, meaning: Meaning
) -> None:
    assert ApiRefusal("no", code, number).meaning is meaning
    assert is_not_now(refused(code, number)) is (meaning is Meaning.AGAIN)


@pytest.mark.parametrize("number", MEANINGS)
def test_what_may_be_otherwise_in_a_moment_is_unavailable__the_rest_is_a_refusal(
    number: int,
) -> None:
    passes = MEANINGS[number] in {Meaning.AGAIN, Meaning.UNKNOWN}
    with pytest.raises(Unavailable if passes else ApiRefusal, match=rf"place: no \({number}\)"):
        read_answer("place", refused(500, number))


def test_nobody_there_is_not_now__silence_may_be_anything() -> None:
    assert is_not_now(NOBODY)
    assert not is_not_now(None)
    assert not is_not_now(Reply("subject", b"", {"Status": "404"}))
    with pytest.raises(Unavailable, match="place: nobody there to answer"):
        read_answer("place", NOBODY)


def test_an_answer_is_its_json() -> None:
    assert read_answer("place", Reply("subject", b'{"seq": 3}')) == {"seq": 3}
    with pytest.raises(Unavailable, match=r"place: the answer is not JSON \(status 0\)"):
        read_answer("place", Reply("subject", b"text"))


def test_a_long_answer_is_no_refusal_whatever_is_in_it() -> None:
    page = {"streams": ["err_code"], "more": "x" * ERROR_BYTES_MAX}
    reply = Reply("subject", json.dumps(page).encode())
    assert not is_not_now(reply)
    assert read_answer("place", reply) == page
