"""Covers: closing a connection that is just being made anew; asking again what was "not now", in
answers that are played. All else: tests/conformance."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dejaqueue.connections.nats import connection as module
from dejaqueue.connections.nats.answers import Reply
from dejaqueue.connections.nats.connection import LOOK_UP_S, Body, NatsConnection
from dejaqueue.connections.nats.url import read_url
from dejaqueue.errors import Unavailable
from tests.record_servers import NatsServers


def test_who_comes_back_while_it_is_closed_is_closed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = NatsServers(tmp_path)
    try:
        connection = NatsConnection(read_url(servers.url))
        connects, made = connection._connect_one, threading.Event()
        clients: list[Any] = []

        async def connect(client: Any, server: str) -> None:
            await connects(client, server)
            clients.append(client)
            made.set()
            while not connection._closing:
                await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0.01)

        monkeypatch.setattr(connection, "_connect_one", connect)
        first = connection._client
        connection._loop.call_soon_threadsafe(first._transport._io_writer.transport.abort)
        assert made.wait(20)
        connection.close()
        assert [client.is_closed for client in (first, *clients)] == [True, True]
    finally:
        servers.stop()


class Played(NatsConnection):
    """Is connected to nobody: each content is answered by what is planned for it, in turn, and the
    last of that again and again. None = with silence."""

    url = read_url("nats://127.0.0.1:1")

    def __init__(self, **plans: Sequence[Reply | None]) -> None:
        self._plans = {name.encode(): list(plan) for name, plan in plans.items()}
        self.asked: list[list[str]] = []

    def publish_all(
        self, subject: str, messages: Sequence[Body], timeout_s: float = 1
    ) -> list[Reply | None]:
        self.asked.append([content.decode() for _, content in messages])
        plans = [self._plans[content] for _, content in messages]
        return [plan.pop(0) if len(plan) > 1 else plan[0] for plan in plans]


def says(**values: object) -> Reply:
    return Reply("subject", json.dumps(values).encode())


LEADERLESS = says(error={"code": 503, "err_code": 10008, "description": "not available"})
NOBODY = Reply("subject", b"", {"Status": "503"})


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.001)


@pytest.mark.usefixtures("soon")
def test_what_was_not_now_is_asked_again__and_nothing_else() -> None:
    played = Played(a=[says(seq=1)], b=[NOBODY, LEADERLESS, says(seq=2)], c=[None])
    replies = played.ask_all("subject", [({}, b"a"), ({}, b"b"), ({}, b"c")])
    assert replies == [says(seq=1), says(seq=2), None]
    assert played.asked == [["a", "b", "c"], ["b"], ["b"]]


@pytest.mark.usefixtures("soon")
def test_what_is_still_not_now_in_the_end_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_S_MAX", 0.02)
    played = Played(**{"1": [LEADERLESS]})
    with pytest.raises(Unavailable, match=r"STREAM.PURGE.x: not available \(10008\)"):
        played.api("STREAM.PURGE.x", 1)
    assert len(played.asked) > 1


@pytest.mark.usefixtures("soon")
def test_a_change_that_got_no_answer_is_not_repeated__a_question_is() -> None:
    silent = Played(**{"1": [None]})
    with pytest.raises(Unavailable, match=r"no answer"):
        silent.api("STREAM.PURGE.x", 1)
    assert len(silent.asked) == 1
    late = Played(**{"1": [*[None] * (len(LOOK_UP_S) - 1), says(seq=3)]})
    assert late.look_up("STREAM.INFO.x", 1) == {"seq": 3}
    assert len(late.asked) == len(LOOK_UP_S)
