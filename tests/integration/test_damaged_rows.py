"""A message whose stored bytes are damaged holds up no other one, nor does it make others dead.

Not covered: which damage is found when a journal is opened (tests/corruption).
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.broker.consumers.gathering import UNREAD_MS
from dejaqueue.broker.letters.dead_letters import DAMAGED_US
from dejaqueue.errors import TopicUnknown
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.setting_groups import SqsSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.patience import until
from tests.rules.broker_fixture import TOPIC, BrokerFixture
from tests.unit.http.sqs.conftest import Sqs

COUNT, BAD = 20, 7
HOUR_MS = 3_600_000
FILLERS = 20
"""Messages that fill a segment, and then some: what is behind it is not read at a start."""


def payload(number: int) -> bytes:
    return f"message {number:02d} of twenty".encode()


def spoiled(content: bytes) -> bytes:
    """With another last bit."""
    return content[:-1] + bytes([content[-1] ^ 1])


def damage(folder: Path, content: bytes) -> int:
    """Flip a bit of it wherever it is stored; in how many places that is."""
    count = 0
    for path in (one for one in folder.rglob("*") if one.is_file()):
        stored, at = path.read_bytes(), -1
        with path.open("r+b") as file:  # whoever has it mapped sees it
            while (at := stored.find(content, at + 1)) >= 0:
                file.seek(at)
                file.write(spoiled(content))
                count += 1
    return count


def stored_floor(broker: BrokerFixture) -> int:
    """Up to where the journal is read no more when it is opened."""
    journal: Any = broker.broker.runtime(TOPIC).partitions[0].core.journal
    return int(journal.log.room._stored_floor)


def damaged(root: Path, **columns: list[int]) -> BrokerFixture:
    """One message of many is damaged, in a segment that nothing reads when the broker starts."""
    made = BrokerFixture(root, snapshot_entries=5, max_attempts=3)
    due_ms = made.now_ms + HOUR_MS
    for number in range(COUNT):
        made.write("enqueue", {"payload": [payload(number)], "due": [due_ms]} | columns)
    while stored_floor(made) < COUNT + FILLERS:
        made.send([bytes(100_000)], dues_ms=[due_ms + HOUR_MS])
        made.settle_down()
        made.wait_for_snapshots()
    made.stop()
    assert damage(root, payload(BAD)) == 1
    made.broker = made._start()
    return made


@pytest.fixture
def broker(tmp_path: Path) -> BrokerFixture:
    return damaged(tmp_path)


OTHERS = [payload(number) for number in range(COUNT) if number != BAD]


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
def test_who_takes_one_by_doqs_door_fails_alone(
    broker: BrokerFixture, ack: str, tmp_path: Path
) -> None:
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
        assert f"{TOPIC}/0, entry " in failed.text
        assert "is not what was written" in failed.text
        assert str(tmp_path) not in failed.text
    finally:
        server.stop()
        broker.stop()


def test_who_looks_sees_the_others__and_which_one_cannot_be_read(
    broker: BrokerFixture, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = HttpServer(Service(broker.broker, Gate(), lambda: True), "127.0.0.1", 0)
    server.start()
    try:
        rows = broker.peek(limit=COUNT)
        assert [row["payload"] for row in rows if not row["unread"]] == OTHERS
        [bad] = [row for row in rows if row["unread"]]
        assert (bad["payload"], bad["key"], bad["headers"]) == (None, None, {})
        entry = int(bad["unread"].removeprefix(f"{TOPIC}/0, entry ").partition(":")[0])
        assert bad["unread"] == (
            f"{TOPIC}/0, entry {entry}: is not what was written; the broker's log names the file"
        )
        assert f"entry {entry}: {tmp_path}" in caplog.text
        assert broker.peek(ids=[bad["id"]])[0]["unread"] == bad["unread"]
        url = f"http://127.0.0.1:{server.port}/v1/topics/{TOPIC}/messages"
        answer = httpx.get(url, params={"limit": COUNT}, timeout=60, trust_env=False)
        assert answer.status_code == 200, answer.text
        assert answer.text.count("is not what was written") == 1
        assert str(tmp_path) not in answer.text
    finally:
        server.stop()
        broker.stop()


@pytest.mark.parametrize("count", [1, 10])
def test_who_receives_by_sqs_gets_the_others(broker: BrokerFixture, count: int) -> None:
    broker.broker.settings = broker.broker.settings.model_copy(
        update={"sqs": SqsSettings(enabled=True)}
    )
    server = HttpServer(Service(broker.broker, Gate(), lambda: True), "127.0.0.1", 0)
    server.start()
    sqs = Sqs(server.port)
    got: list[str] = []
    try:
        broker.advance(HOUR_MS)
        url = sqs.do("GetQueueUrl", QueueName=TOPIC)["QueueUrl"]

        def take_all() -> bool:
            got.extend(sqs.bodies(url, count))  # each answer is 200
            return len(got) == COUNT - 1

        until(take_all, "all others were received")
        assert sorted(got) == [one.decode() for one in OTHERS]
        broker.advance(UNREAD_MS)
        assert sqs.bodies(url, count) == []
    finally:
        sqs.http.close()
        server.stop()
        broker.stop()


def test_the_others_become_dead_letters__and_it_when_it_can_be_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = damaged(tmp_path, expires=[VirtualClock().now_ms() + HOUR_MS])

    def letters() -> list[bytes]:
        broker.settle_down()
        with suppress(TopicUnknown):
            return [row["payload"] for row in broker.peek(f"{TOPIC}.dead", limit=2 * COUNT)]
        return []

    try:
        broker.advance(HOUR_MS)
        until(lambda: len(letters()) == COUNT - 1, "the others are dead letters")
        assert sorted(letters()) == OTHERS
        assert f"cannot be sent: {TOPIC}/0, entry " in caplog.text
        assert broker.counts()["dead"] == COUNT, "they are buried together"
        assert damage(tmp_path, spoiled(payload(BAD))) == 1  # somebody puts the file back
        broker.advance(DAMAGED_US // 1_000)
        until(lambda: len(letters()) == COUNT, "it is one, too")
        until(lambda: broker.counts()["dead"] == 0, "all are buried")
    finally:
        broker.stop()


def test_the_others_are_copied_forward__and_the_partition_goes_on(
    broker: BrokerFixture, caplog: pytest.LogCaptureFixture
) -> None:
    partition = broker.broker.runtime(TOPIC).partitions[0]
    again = "rows stay where they are"

    def is_tried_again() -> bool:
        broker.settle_down()
        return caplog.text.count(again) > 1

    try:
        [first] = [row["id"] for row in broker.peek(limit=1)]
        broker.cancel([first])
        broker.broker.store.press_dead(broker.now_ms, 0)

        def are_copied() -> bool:
            broker.advance(1_000)
            broker.wait_for_snapshots()
            return partition.maintenance.copied_rows >= COUNT - 2

        until(are_copied, "all but the damaged one are copied")
        assert caplog.text.count(again) == 1
        broker.advance(DAMAGED_US // 1_000)
        until(is_tried_again, "it is tried again")
        broker.send([payload(COUNT)], dues_ms=[broker.now_ms + HOUR_MS])
        broker.advance(HOUR_MS)
        got = {one for each in broker.consumer().take_all() for one in each.payloads}
        assert got.issuperset({*OTHERS[1:], payload(COUNT)})
        assert broker.counts()["dead"] == 0
    finally:
        broker.stop()
