"""Covers: a broker that loses a partition in the middle of a call: clients try again by themselves.

Not covered: that no two owners append (tests/conformance), real hand-overs (tests/cluster).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.client import Client
from dejaqueue.errors import Fenced, Unavailable
from dejaqueue.flight.server import FlightServer
from dejaqueue.journal.format import Encoded
from dejaqueue.journal.interface import Append, EntryKind
from dejaqueue.journal.segments.log import ShardLog
from dejaqueue.settings import BrokerSettings, JournalSettings


@pytest.fixture
def url() -> Iterator[str]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    server = FlightServer(broker)
    server.start()
    yield server.url
    server.stop()
    broker.stop()


def fence(patch: pytest.MonkeyPatch, kind: EntryKind, times: int) -> list[int]:
    """Another owner was there before the next appends with such an entry."""
    encode, left = ShardLog._encode, [times]

    def fenced(self: ShardLog, one: Append, *rest: Any) -> list[Encoded]:
        if left[0] and any(entry.kind == kind for entry in one.entries):
            left[0] -= 1
            raise Fenced("another owner has appended")
        return encode(self, one, *rest)

    patch.setattr(ShardLog, "_encode", fenced)
    return left


@pytest.mark.parametrize("kind", [EntryKind.ENQUEUE, EntryKind.MOVE, EntryKind.ACK])
def test_what_met_another_owner_is_tried_again(
    kind: EntryKind, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = fence(monkeypatch, kind, 2)
    with Client(url) as client:
        client.create_topic("t")
        message = client.send("t", b"1", delay=3_600)
        client.move("t", id=message, due=1_600_000_000_000).raise_for_status()
        with client.consume("t", idle_ms=20_000) as consumer:
            next(consumer).ack()
        assert left == [0]
        assert client.stats("t")["acked"] == 1


def test_who_does_not_want_to_wait_is_told_in_words_of_a_client(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence(monkeypatch, EntryKind.ENQUEUE, 1_000)
    with Client(url, retry_ms_max=200) as client:
        client.create_topic("t")
        with pytest.raises(Unavailable):
            client.send("t", b"1")
