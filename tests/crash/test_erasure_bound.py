"""`journal.erase_ms_max` on a real broker: what is done is in no segment any more after that time.

Here: acked, cancelled and replaced messages, what was done before a start, topics that nobody uses;
one process, and two.
Not here: erasure that is asked for (test_erasure_kill.py).
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import dejaqueue
from tests.crash.broker_process import BrokerProcess
from tests.crash.test_erasure_kill import far_ms, files_with
from tests.patience import PATIENCE_SECONDS

ERASE_MS = 8_000
KEPT = 100


def wait_until_gone(text: str, data: Path) -> float:
    """Seconds until no file has it."""
    began = time.monotonic()
    while files_with(text, data):
        assert time.monotonic() - began < PATIENCE_SECONDS
        threading.Event().wait(0.2)
    return time.monotonic() - began


def kept(number: int) -> bytes:
    return f"kept {number}".encode()


def send_done(client: dejaqueue.Client, topic: str, text: bytes) -> None:
    """Messages between those that stay: one that is acked, one that is cancelled."""
    for number in range(KEPT):
        client.send(topic, kept(number), due=far_ms())
        if number == KEPT // 2:
            client.send(topic, text + b" acked")
            client.send(topic, text + b" cancelled", key="c", due=far_ms())
    with client.consume(topic, max_messages=1) as messages:
        for message in messages:
            message.ack(wait=True)
    assert client.cancel(topic, keys=["c"]).ok


@pytest.mark.parametrize("processes", [0, 2], ids=["one process", "two processes"])
def test_what_is_done_goes_in_time__and_what_lives_stays(tmp_path: Path, processes: int) -> None:
    data = tmp_path / "data"
    settings = {"server__processes": processes} if processes else {}
    broker = BrokerProcess(data, tmp_path / "log", journal__erase_ms_max=ERASE_MS, **settings)
    broker.start()
    try:
        with dejaqueue.Client(broker.url) as client:
            client.create_topic("a")
            client.create_topic("b")
            send_done(client, "a", b"marker")
            send_done(client, "b", b"marker")
            assert files_with("marker", data)
            assert wait_until_gone("marker", data) < 2 * ERASE_MS / 1_000  # the machine is busy
            send_done(client, "a", b"later")
        broker.kill()
        broker.start()  # nobody uses it: what was done before goes all the same
        wait_until_gone("later", data)
        with dejaqueue.Client(broker.url) as client:
            for topic, count in (("a", 2 * KEPT), ("b", KEPT)):
                assert client.move_where(topic, due=0) == count
                with client.consume(topic, max_messages=count, idle_ms=20_000) as messages:
                    got = sorted(one.payload for one in messages if one.ack() is None)
                numbers = [number for number in range(KEPT) for _ in range(count // KEPT)]
                assert got == sorted(kept(number) for number in numbers)
    finally:
        broker.kill()
