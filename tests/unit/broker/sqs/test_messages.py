"""Messages of SQS on their partition: deleted after their lease, found when sent again."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from dejaqueue.access.senders import NOBODY, Sender
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.calls.at_once import lease_now
from dejaqueue.broker.sqs.messages import delete_lapsed, find_repeat
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[Broker]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")), clock)
    broker.start()
    broker.create_topic(Topic("t", lease_ms=1_000))
    yield broker
    broker.stop()


def send(broker: Broker, sender: Sender, producer: str, number: int) -> int:
    replies: list[Reply] = []
    writer = broker.open_write(WriteStream("t", producer=producer), sender)
    batch = pa.record_batch({"payload": pa.array([b"x"], pa.binary())})
    writer.submit(number, batch, replies.append)
    broker.runtime("t").look(0, lambda _: None).result(30)
    return int(replies[0].all_ids()[0])


def test_a_lapsed_message_goes__and_one_that_was_leased_again_stays(
    broker: Broker, clock: VirtualClock
) -> None:
    topic = broker.runtime("t")
    sequences = [send(broker, NOBODY, "", 0) for _ in range(2)]
    for _ in sequences:
        topic.change(0, lease_now).result(30)
    clock.advance(ms=1_001)
    assert delete_lapsed(topic, 0, [(sequences[0], 1)]).result(30) == [True]
    topic.change(0, lease_now).result(30)
    rows = [(sequences[0], 1), (sequences[1], 1), (sequences[1], 2), (99, 1)]
    assert delete_lapsed(topic, 0, rows).result(30) == [False] * 4
    clock.advance(ms=1_001)
    assert delete_lapsed(topic, 0, rows).result(30) == [False, False, True, False]


def test_a_batch_is_found_by_its_sender_and_its_number(broker: Broker) -> None:
    topic = broker.runtime("t")
    sender = Sender("shop")
    found = send(broker, sender, "p", 7)
    assert find_repeat(topic, 0, sender, "p", lambda n: n == 7).result(30) == (7, found)
    assert find_repeat(topic, 0, sender, "p", lambda n: n == 8).result(30) is None
    assert find_repeat(topic, 0, Sender("else"), "p", lambda n: n == 7).result(30) is None
