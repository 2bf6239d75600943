"""Erasure on a real broker: afterwards no file has a byte of it, and everything else is delivered.

Here: `erase` by key and by group, with old segments, snapshots, history, dead letters, payloads
kept apart, and what was acked or cancelled long before; killed in the middle. Not here: what is
found in single entries (tests/unit/broker/shard/test_stored_erasure.py); the doors
(tests/integration/test_erasure.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import dejaqueue
from dejaqueue.clock import SystemClock
from dejaqueue.errors import DejaQError
from tests.crash.broker_process import BrokerProcess
from tests.patience import PATIENCE_SECONDS

TOPIC, OTHER = "orders", "letters"
MARKER = "marker-of-alice"
LARGE = 4_096
"""Bytes over which payloads go to the payload store."""
KEPT = 400


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {
        "journal__segment_bytes": 64 << 10,
        "journal__snapshot_entries": 60,
        "history__roll_ms": 200,
        "payloads__url": tmp_path / "payloads",
        "payloads__inline_bytes_max": LARGE,
    }
    process = BrokerProcess(tmp_path / "data", tmp_path / "log", **settings)
    process.start()
    try:
        yield process
    finally:
        process.kill()


def files_with(text: str, *roots: Path) -> list[str]:
    """Files that have it, as they are on the disk."""
    found = []
    for root in roots:
        for path in root.rglob("*"):
            with suppress(FileNotFoundError):  # it went since it was listed
                if path.is_file() and text.encode() in path.read_bytes():
                    found.append(str(path.relative_to(root.parent)))
    return found


def make_topics(client: dejaqueue.Client) -> None:
    client.create_topic(TOPIC, history=True, max_attempts=1, partitions=2)
    client.create_topic(OTHER)


def far_ms() -> int:
    return SystemClock().utc_ms() + 86_400_000


def kept_payload(number: int) -> bytes:
    return f"kept {number} ".encode() * (100 if number % 40 else 600)


def send_kept(client: dejaqueue.Client, first: int, end: int) -> None:
    """Messages that stay, in both topics, between those that go."""
    for number in range(first, end):
        client.send(TOPIC, kept_payload(number), key=f"kept-{number}", due=far_ms())
        client.send(OTHER, kept_payload(number), due=far_ms())


def fields(number: int) -> dict[str, Any]:
    texts: dict[str, Any] = {
        "group": f"{MARKER}-group",
        "tags": [f"{MARKER}-tag"],
        "headers": {"h": MARKER},
    }
    return {"key": f"{MARKER}-{number}", **texts}


def send_marked(client: dejaqueue.Client) -> list[str]:
    """A message for each way that one can end, and some that did not; their keys."""
    mark = MARKER.encode()
    client.send(TOPIC, mark + b" acked", **fields(0))
    client.send(TOPIC, mark + b" dies", **fields(1))
    client.send(TOPIC, mark * LARGE, **fields(2))
    with client.consume(TOPIC, max_messages=3, prefetch=1) as messages:
        for message in messages:
            if (message.key or "").endswith("-1"):
                message.nack(reason="refused", dead=True)
            else:
                message.ack(wait=True)
    client.send(TOPIC, mark + b" cancelled", due=far_ms(), **fields(3))
    client.cancel(TOPIC, keys=[f"{MARKER}-3"])
    client.send(TOPIC, mark + b" lives", due=far_ms(), **fields(4))
    client.send(TOPIC, mark * LARGE, due=far_ms(), **fields(5))
    return [f"{MARKER}-{number}" for number in range(6)]


def wait_for_letter(client: dejaqueue.Client) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        with suppress(DejaQError):
            if client.counts(f"{TOPIC}.dead")["scheduled"]:
                return
        threading.Event().wait(0.05)
    raise AssertionError("no dead letter came")


def check_kept(client: dejaqueue.Client) -> None:
    """All that was to stay is delivered, as it was sent."""
    for topic in (TOPIC, OTHER):
        assert client.move_where(topic, due=0) == KEPT
        with client.consume(topic, max_messages=KEPT, idle_ms=20_000) as messages:
            got = sorted(message.payload for message in messages if message.ack() is None)
        assert got == sorted(kept_payload(number) for number in range(KEPT))


def test_no_file_has_a_byte_of_what_was_erased(broker: BrokerProcess, tmp_path: Path) -> None:
    roots = tmp_path / "data", tmp_path / "payloads"
    with dejaqueue.Client(broker.url) as client:
        make_topics(client)
        send_kept(client, 0, 100)
        keys = send_marked(client)
        wait_for_letter(client)
        send_kept(client, 100, KEPT)
        assert any("segment" in name for name in files_with(MARKER, *roots))
        assert any("payloads" in name for name in files_with(MARKER, *roots))
        erased = client.erase(TOPIC, keys=keys)
        assert files_with(MARKER, *roots) == []
        assert (erased.ended, erased.held) == (3, 0)  # two that waited, and the dead letter
        assert erased.found >= 7
        assert erased.payloads >= 1
        assert client.erase(TOPIC, keys=keys).found == 0
        broker.kill()
        broker.start()
        assert files_with(MARKER, *roots) == []
        check_kept(client)
    assert broker.stop() == 0
    assert files_with(MARKER, *roots) == []
    assert '"erase"' in broker.log_text()  # the audit line
    assert MARKER not in broker.log_text()


def test_an_erasure_that_is_killed_is_done_by_the_next_one(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    roots = tmp_path / "data", tmp_path / "payloads"
    with dejaqueue.Client(broker.url) as client:
        make_topics(client)
        send_kept(client, 0, 200)
        send_marked(client)
        wait_for_letter(client)
        send_kept(client, 200, KEPT)
    kill_in_erasures(broker)
    with dejaqueue.Client(broker.url) as client:
        client.erase(TOPIC, group=f"{MARKER}-group")
        assert files_with(MARKER, *roots) == []
        check_kept(client)


def kill_in_erasures(broker: BrokerProcess) -> None:
    """Begin an erasure four times, kill the broker ever later in it, and start it again."""
    for seconds in (0.02, 0.3, 0.9, 1.6):
        with dejaqueue.Client(broker.url, retry_ms_max=100) as client:
            begun = threading.Thread(target=erase_until_it_breaks, args=(client,))
            begun.start()
            begun.join(seconds)
            broker.kill()
            begun.join(PATIENCE_SECONDS)
            assert not begun.is_alive()
        broker.start()


def erase_until_it_breaks(client: dejaqueue.Client) -> None:
    with suppress(DejaQError):
        client.erase(TOPIC, group=f"{MARKER}-group")
