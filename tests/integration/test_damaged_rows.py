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
from dejaqueue.client.results import by_row
from dejaqueue.errors import BadRequest, JournalDamaged, TopicUnknown
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.schema.messages import SCAN, UNREAD
from dejaqueue.setting_groups import SqsSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from dejaqueue.wire.frames import SettleOp
from tests.damaged import BAD, COUNT, FILLERS, HOUR_MS, damage, damaged, payload, spoiled
from tests.patience import until
from tests.rules.broker_fixture import TOPIC, BrokerFixture
from tests.unit.http.sqs.conftest import Sqs

OTHERS = [payload(number) for number in range(COUNT) if number != BAD]


@pytest.fixture
def broker(tmp_path: Path) -> BrokerFixture:
    return damaged(tmp_path)


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


def test_who_settles_all_of_a_delivery_is_answered_for_what_it_got(broker: BrokerFixture) -> None:
    consumer = broker.consumer()
    consumer.knows_its_clock()
    try:
        broker.advance(HOUR_MS)
        [got] = [each for each in consumer.take_all() if len(each.ids) > 1]
        for op in (SettleOp.EXTEND, SettleOp.ACK):
            reply = consumer.settle(op, partition=got.partition, lease_id=got.lease_id)
            assert reply.error is None
            assert by_row(reply, len(got.ids)).all_statuses().tolist() == [0] * len(got.ids)
        assert broker.counts()["leased"] == 0
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


def scanned(broker: BrokerFixture, *columns: str, op: str = "scan", **more: int) -> list[Any]:
    """Rows that were streamed, and the error that the stream ended with, if it did."""
    ticket = {"topic": TOPIC, "partition": 0, "columns": list(columns), **more}
    found: list[Any] = []
    try:
        for batch in broker.broker.read(op, ticket)[1]:
            found += batch.to_pylist()
    except JournalDamaged as damage:
        found.append(damage)
    return found


def test_who_scans_is_told_which_entry_cannot_be_read(
    broker: BrokerFixture, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        [bad] = [row for row in broker.peek(limit=COUNT) if row["unread"]]
        for columns in (SCAN.names, ["id", "key"]):  # a row without a key is not there by its null
            damage = scanned(broker, *columns)[-1]
            assert isinstance(damage, JournalDamaged)
            assert damage.told() == bad["unread"]
        assert f"{bad['unread'].partition(':')[0]}: {tmp_path}" in caplog.text
        ids = [row["id"] for row in scanned(broker, "id", "state")]  # nothing stored is read
        assert len(ids) >= COUNT + FILLERS
        assert bad["id"] in ids
    finally:
        broker.stop()


def test_who_scans_gets_the_others__if_it_says_that_it_takes_note(broker: BrokerFixture) -> None:
    try:
        [bad] = [row for row in broker.peek(limit=COUNT) if row["unread"]]
        rows = scanned(broker, *SCAN.names, UNREAD.name)
        [lost] = [row for row in rows if row["unread"]]
        stored = {"key", "group", "tags", "headers", "payload"}
        assert {name for name, value in lost.items() if value is None} == {*stored, "expires"}
        assert (lost["id"], lost["due"], lost["unread"]) == (bad["id"], bad["due"], bad["unread"])
        assert [row["payload"] for row in rows if not row["unread"]][: COUNT - 1] == OTHERS
        assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
        narrow = scanned(broker, "id", "key", "unread")
        assert [row["id"] for row in narrow] == [row["id"] for row in rows]
        assert [row["id"] for row in narrow if row["unread"]] == [bad["id"]]
    finally:
        broker.stop()


def test_who_claims_is_told__and_cannot_take_the_others_alone(broker: BrokerFixture) -> None:
    """A claim is acked as a whole: what is left out of it would be lost."""
    try:
        [bad] = [row for row in broker.peek(limit=COUNT) if row["unread"]]
        broker.advance(HOUR_MS)
        claim = broker.broker.call("claim", {"topic": TOPIC, "partition": 0, "rows": COUNT})
        assert claim["rows"] == COUNT
        named = {"claim": claim["claim"]}
        damage = scanned(broker, *SCAN.names, op="claim", **named)[-1]
        assert damage.told() == bad["unread"]
        with pytest.raises(BadRequest, match="columns: a list of id, .*, got: .*unread"):
            scanned(broker, *SCAN.names, UNREAD.name, op="claim", **named)
        whole = scanned(broker, "payload", op="claim", first=0, end=BAD, **named)
        assert [row["payload"] for row in whole] == OTHERS[:BAD]
    finally:
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
