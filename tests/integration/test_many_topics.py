"""One client that sends to many topics: one stream to the broker, and each topic by itself.

What each part does: tests/unit/client/test_shared_streams, tests/unit/flight/test_topic_writers.
"""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.client import Client
from dejaqueue.client import core as client_core
from dejaqueue.errors import BadRequest, DejaQError, Forbidden, TopicUnknown
from dejaqueue.model import Topic
from dejaqueue.wire.descriptors import Address, encode_address
from tests.hostile.arrow_bytes import messages_of, replaced
from tests.hostile.raw_flight import RawPut
from tests.integration.access_fixture import MINE, THEIRS, Site, give_keys, make_topics, running

TOPICS = [f"t{number}" for number in range(40)]
THREADS = 8


def open_streams(site: Site) -> int:
    return site.flight._open_streams.count


def test_many_topics_have_one_stream() -> None:
    with running() as site:
        for name in TOPICS:
            site.broker.create_topic(Topic(name))
        with Client(site.flight.url) as client:
            for name in TOPICS:
                client.send(name, b"one")
                client.send_batch(name, [b"two", b"three"])
            assert open_streams(site) == 1
            assert {client.stats(name)["scheduled"] for name in TOPICS} == {3}


def test_who_made_room_for_others_is_sent_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A send found its link closed, by another thread that sent to one topic more than there was
    room for."""
    monkeypatch.setattr(client_core, "LINKS_MAX", 2)
    errors: list[DejaQError] = []
    with running() as site:
        for name in TOPICS:
            site.broker.create_topic(Topic(name))
        with Client(site.flight.url) as client:

            def send(first: int) -> None:
                try:
                    for number in range(5 * len(TOPICS)):
                        client.send(TOPICS[(first + number) % len(TOPICS)], b"x")
                except DejaQError as error:
                    errors.append(error)

            threads = [threading.Thread(target=send, args=(5 * at,)) for at in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not errors
            assert {client.stats(name)["scheduled"] for name in TOPICS} == {5 * THREADS}


def test_what_is_wrong_with_one_topic_is_not_the_others_business() -> None:
    with running() as site:
        give_keys(site)
        make_topics(site.broker)
        with Client(site.flight.url, api_key=site.keys["produce mine"]) as client:
            client.send_batch(MINE, [b"one"])
            for _ in range(2):
                with pytest.raises(Forbidden):
                    client.send_batch(THEIRS, [b"no"])
            client.send_batch(MINE, [b"two"])
            assert open_streams(site) == 1
        with Client(site.flight.url, api_key=site.keys["root"]) as client:
            client.send_batch(MINE, [b"three"])
            with pytest.raises(TopicUnknown):
                client.send_batch("nowhere", [b"no"])
            client.delete_topic(MINE)
            with pytest.raises(TopicUnknown):
                client.send_batch(MINE, [b"no"])
            client.create_topic(MINE)
            client.send_batch(MINE, [b"four"])
            assert client.stats(MINE)["scheduled"] == 1
            assert open_streams(site) == 1


def test_a_batch_that_is_no_valid_arrow_is_refused_alone() -> None:
    batch = pa.record_batch({"payload": pa.array([b"abcde", b"fghij"])})
    old, new = (np.array(offsets, "<i4").tobytes() for offsets in ([0, 5, 10], [0, 90, 10]))
    schema, good = messages_of(batch)
    bad = replaced(messages_of(batch), old, new)[1]
    with running() as site:
        for name in ("a", "b"):
            site.broker.create_topic(Topic(name))
        with RawPut(site.flight.port, topic="", op="enqueue") as stream:
            stream.send(schema.metadata, schema.body)
            for number, (topic, message) in enumerate([("a", good), ("b", bad), ("a", good)]):
                address = number.to_bytes(4, "little") + encode_address(Address(topic))
                stream.send(message.metadata, message.body, address)
            stream.wait(3)
            errors = {reply.number: reply.error for reply in stream.replies}
        assert errors[0] is None
        assert isinstance(errors[1], BadRequest)
        assert errors[2] is None
        assert site.broker.call("stats", {"topic": "a"})["scheduled"] == 4
