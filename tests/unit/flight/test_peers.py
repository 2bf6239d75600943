"""What brokers say to one another: who hangs, who is gone. Whole: tests/cluster."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.errors import DejaQError, InternalError, Unavailable
from dejaqueue.flight.peers import SAID_AT_ONCE, FlightPeers

WAIT_S = 20.0


class Answer:
    """What Flight gives back."""

    def __init__(self, content: bytes) -> None:
        self.body = pa.py_buffer(content)


class Lines:
    """In place of connections: one broker hangs, one answers nonsense, the others answer."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.bearers: list[str | None] = []

    def action(self, onward: Any, action: Any, seconds: float) -> list[Answer]:
        self.bearers.append(onward.bearer)
        if onward.url == "hangs":
            assert self.may.wait(WAIT_S)
            raise Unavailable("it hung", 100)
        return [Answer(b"[]" if onward.url == "nonsense" else b'{"commit": true}')]


@pytest.fixture
def lines() -> Lines:
    return Lines()


def ask(peers: FlightPeers, url: str) -> Any:
    return peers.ask(url, "ask_transaction", {"transaction": "t"})


def test_it_shows_the_key_of_the_cluster_and_gives_the_answer(lines: Lines) -> None:
    peers = FlightPeers(lines, lambda: "key of the cluster")  # type: ignore[arg-type]
    assert ask(peers, "b").result(WAIT_S) == {"commit": True}
    assert lines.bearers == ["key of the cluster"]
    with pytest.raises(InternalError, match="nonsense answered"):
        ask(peers, "nonsense").result(WAIT_S)
    peers.close()


def test_who_hangs_keeps_nobody_waiting_who_speaks_to_another(lines: Lines) -> None:
    peers = FlightPeers(lines, lambda: None)  # type: ignore[arg-type]
    hanging = [ask(peers, "hangs") for _ in range(3 * SAID_AT_ONCE)]
    assert ask(peers, "b").result(WAIT_S) == {"commit": True}
    peers.drop("hangs")
    assert [one.cancelled() for one in hanging[SAID_AT_ONCE:]] == [True] * 2 * SAID_AT_ONCE
    lines.may.set()
    for one in hanging[:SAID_AT_ONCE]:
        with pytest.raises(Unavailable):
            one.result(WAIT_S)
    peers.close()


def test_after_its_end_nothing_is_said(lines: Lines) -> None:
    peers = FlightPeers(lines, lambda: None)  # type: ignore[arg-type]
    peers.close()
    peers.close()
    with pytest.raises(DejaQError, match="is stopping"):
        ask(peers, "b").result(WAIT_S)
    assert lines.bearers == []
