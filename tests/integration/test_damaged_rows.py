"""A message whose stored bytes are damaged holds up no other one, nor does it make others dead.

Not covered: which damage is found when a journal is opened (tests/corruption).
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.broker.consumers.gathering import UNREAD_MS
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from tests.rules.broker_fixture import TOPIC, BrokerFixture

COUNT, BAD = 20, 7
HOUR_MS = 3_600_000
FILLERS = 20
"""Messages that fill a segment, and then some: what is behind it is not read at a start."""


def payload(number: int) -> bytes:
    return f"message {number:02d} of twenty".encode()


def damage(folder: Path, content: bytes) -> int:
    """Flip a bit of it wherever it is stored; in how many places that is."""
    count = 0
    for path in (one for one in folder.rglob("*") if one.is_file()):
        stored = path.read_bytes()
        if content in stored:
            path.write_bytes(stored.replace(content, content[:-1] + bytes([content[-1] ^ 1])))
            count += stored.count(content)
    return count


def stored_floor(broker: BrokerFixture) -> int:
    """Up to where the journal is read no more when it is opened."""
    journal: Any = broker.broker.runtime(TOPIC).partitions[0].core.journal
    return int(journal.log.room._stored_floor)


@pytest.fixture
def broker(tmp_path: Path) -> BrokerFixture:
    """One message of many is damaged, in a segment that nothing reads when the broker starts."""
    made = BrokerFixture(tmp_path, snapshot_entries=5, max_attempts=3)
    due_ms = made.now_ms + HOUR_MS
    for number in range(COUNT):
        made.send([payload(number)], dues_ms=[due_ms])
    while stored_floor(made) < COUNT + FILLERS:
        made.send([bytes(100_000)], dues_ms=[due_ms + HOUR_MS])
        made.settle_down()
        made.wait_for_snapshots()
    made.stop()
    assert damage(tmp_path, payload(BAD)) == 1
    made.broker = made._start()
    return made


@pytest.mark.parametrize("auto_ack", [False, True], ids=["acked when done", "acked as sent"])
def test_the_others_are_delivered_and_acked(
    broker: BrokerFixture, auto_ack: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    consumer = broker.consumer(auto_ack=auto_ack)
    consumer.knows_its_clock()
    before = broker.counts()["scheduled"]
    try:
        broker.advance(HOUR_MS)
        got = consumer.take_all()
        assert {one for each in got for one in each.payloads} == {
            payload(number) for number in range(COUNT) if number != BAD
        }
        for each in got if not auto_ack else ():
            consumer.ack_rows(each.ids, each.attempts)
        for _ in range(5):  # more often than a message is tried
            broker.advance(UNREAD_MS)
            assert consumer.payloads() == []
        counts = broker.counts()
        assert counts["scheduled"] + counts["leased"] == before - COUNT + (not auto_ack)
        assert counts["dead"] == 0
        assert "is not what was written" in caplog.text or "damaged" in caplog.text, caplog.text
        broker.send([payload(COUNT)])
        assert consumer.payloads() == [payload(COUNT)]
    finally:
        broker.stop()


@pytest.mark.parametrize("ack", ["false", "true"], ids=["acked when done", "acked as taken"])
def test_who_takes_one_by_doqs_door_fails_alone(broker: BrokerFixture, ack: str) -> None:
    server = HttpServer(Service(broker.broker, Gate(), lambda: True), "127.0.0.1", 0)
    server.start()
    url = f"http://127.0.0.1:{server.port}/API/v1/queues/{TOPIC}/messages?ack={ack}"
    try:
        broker.advance(HOUR_MS)
        with httpx.Client(timeout=60, trust_env=False) as http, ThreadPoolExecutor(COUNT) as pool:
            answers = list(pool.map(lambda _: http.get(url), range(COUNT)))
        taken = [one.json()["content"] for one in answers if one.status_code == 200]
        assert sorted(taken) == [
            payload(number).decode() for number in range(COUNT) if number != BAD
        ]
        (failed,) = (one for one in answers if one.status_code != 200)
        assert failed.status_code == 400  # as DOQ answers whatever went wrong
        assert "is not what was written" in failed.text
    finally:
        server.stop()
        broker.stop()
