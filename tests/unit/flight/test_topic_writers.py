"""A stream whose batches name their topics, over a broker in this process. Over the network, with
keys: tests/integration/test_many_topics.py.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from queue import SimpleQueue

import pyarrow as pa
import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.streams import Writer
from dejaqueue.errors import BadRequest, TopicUnknown
from dejaqueue.flight import topic_writers
from dejaqueue.flight.topic_writers import LOOK_AT, TopicWriters
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.wire.descriptors import Address, WriteStream, encode_address
from dejaqueue.wire.frames import Reply
from tests.patience import PATIENCE_SECONDS

BATCH = pa.record_batch({"payload": pa.array([b"1", b"2"], pa.binary())})


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    for name in ("a", "b"):
        broker.create_topic(Topic(name))
    yield broker
    broker.stop()


class Site:
    """A stream, and which writers it opened."""

    def __init__(self, broker: Broker, stream: WriteStream | None = None) -> None:
        self.opened: list[str] = []
        self._broker = broker
        self._replies: SimpleQueue[Reply] = SimpleQueue()
        stream = stream or WriteStream("")
        self.writers = TopicWriters(stream, self._open, broker.is_served_by)

    def _open(self, stream: WriteStream) -> Writer:
        self.opened.append(stream.topic)
        return self._broker.open_write(stream)

    def send(self, number: int, topic: str, producer: str = "", own_number: int = 0) -> Reply:
        address = encode_address(Address(topic, producer, own_number))
        metadata = pa.py_buffer(number.to_bytes(4, "little") + address)
        place, submit = self.writers.addressed(metadata)
        submit(place, BATCH, self._replies.put)
        reply = self._replies.get(timeout=PATIENCE_SECONDS)
        assert reply.number == number
        return reply


def test_each_batch_goes_to_its_topic(broker: Broker) -> None:
    site = Site(broker)
    replies = [site.send(number, topic) for number, topic in ((1, "a"), (2, "b"), (9, "a"))]
    assert [reply.first_id for reply in replies] == [0, 0, 2]
    assert site.opened == ["a", "b"]


def test_a_producers_batch_is_known_again_whatever_its_number_on_the_stream(
    broker: Broker,
) -> None:
    site = Site(broker)
    first = site.send(1, "a", "p", 1)
    assert site.send(2, "a", "p", 2).first_id == 2
    assert site.send(3, "a", "p", 1).first_id == first.first_id
    assert site.send(4, "a", "q", 1).first_id == 4


def test_topics_that_are_gone_are_let_go_of(broker: Broker) -> None:
    """A client that makes and deletes topics had the broker keep the last 4,096 of them."""
    site, served = Site(broker), []
    for number in range(3 * LOOK_AT):
        name = f"for-a-while-{number}"
        broker.create_topic(Topic(name))
        site.send(2 * number, name)
        served.append(weakref.ref(broker.runtime(name)))
        broker.delete_topic(name)
        site.send(2 * number + 1, "a")
    gc.collect()
    assert sum(one() is not None for one in served) <= LOOK_AT + 1
    assert site.opened.count("a") == 1


def test_an_unknown_topic_is_an_error_of_its_batch(broker: Broker) -> None:
    site = Site(broker)
    assert isinstance(site.send(1, "nowhere").error, TopicUnknown)
    assert isinstance(site.send(2, "no name").error, BadRequest)
    assert site.send(3, "a").error is None


def test_a_topic_that_was_made_again_is_another_one(broker: Broker) -> None:
    site = Site(broker)
    assert site.send(1, "a").error is None
    broker.delete_topic("a")
    assert isinstance(site.send(2, "a").error, TopicUnknown)
    broker.create_topic(Topic("a"))
    assert site.send(3, "a").error is None
    assert broker.call("stats", {"topic": "a"})["scheduled"] == 2
    assert site.opened == ["a", "a", "a"]


def test_writers_are_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_writers, "WRITERS_MAX", 1)
    site = Site(broker)
    for topic in ("a", "b", "a", "a"):
        assert site.send(1, topic).error is None
    assert site.opened == ["a", "b", "a"]


def test_without_replies_an_error_is_nobodys(broker: Broker) -> None:
    site = Site(broker, WriteStream("", acks="none"))
    replies: list[Reply] = []
    place, submit = site.writers.addressed(
        pa.py_buffer(bytes(4) + encode_address(Address("nowhere")))
    )
    submit(place, BATCH, replies.append)
    assert not replies


@pytest.mark.parametrize("metadata", [None, b"", b"1234", b"12345678"])
def test_a_batch_without_an_address_ends_the_stream(broker: Broker, metadata: bytes | None) -> None:
    with pytest.raises(BadRequest, match="app_metadata"):
        Site(broker).writers.addressed(None if metadata is None else pa.py_buffer(metadata))


@pytest.mark.parametrize("names", [b"\x05abc", b"\x00\xff\xfe", b"\x01pa b"])
def test_an_address_that_names_nothing_is_an_error_of_its_batch(
    broker: Broker, names: bytes
) -> None:
    replies: list[Reply] = []
    place, submit = Site(broker).writers.addressed(pa.py_buffer(bytes(8) + names))
    submit(place, BATCH, replies.append)
    assert isinstance(replies[0].error, BadRequest)


def test_a_schema_is_looked_at_once_for_all_topics(broker: Broker) -> None:
    with pytest.raises(BadRequest, match="load"):
        Site(broker).writers.check_schema(pa.schema([("load", pa.binary())]))
