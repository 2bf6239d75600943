"""What the transport asks of DejaQ: with the client in this process, and in one of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dejaqueue.celery.link import Link, LocalLink
from dejaqueue.celery.proxy import ProxyLink
from dejaqueue.client import Client
from dejaqueue.clock import SystemClock
from dejaqueue.errors import DejaQError, TopicUnknown
from tests.patience import until

CLOCK = SystemClock()


@pytest.fixture(scope="module", params=["here", "apart"])
def link(request: pytest.FixtureRequest, url: str) -> Iterator[Link]:
    made = (LocalLink if request.param == "here" else ProxyLink)(url, {"retry_ms_max": 2_000})
    made.connect()
    yield made
    made.close()
    made.close()


@pytest.fixture
def topic(link: Link) -> str:
    name = f"link-{CLOCK.now_us()}"
    link.declare(name, {"on_duplicate": "reject"})
    return name


class Came:
    """What a consumer was given."""

    def __init__(self) -> None:
        self.arrivals: list[tuple[int, bytes, int]] = []
        self.error: DejaQError | None = None

    def __call__(self, arrivals: Any) -> None:
        if isinstance(arrivals, DejaQError):
            self.error = arrivals
        else:
            self.arrivals.extend(arrivals)

    def wait(self, count: int) -> list[tuple[int, bytes, int]]:
        until(lambda: len(self.arrivals) >= count, f"{count} messages")
        return self.arrivals


def test_a_topic_that_is_there_stays_as_it_is(link: Link, topic: str, client: Client) -> None:
    link.declare(topic, {"lease_ms": 60_000})
    assert client.topic(topic).lease_ms == 30_000
    link.delete(topic)
    link.delete(topic)
    with pytest.raises(TopicUnknown, match="existing topic"):
        link.size(topic)


def test_what_is_due_later_does_not_count_as_waiting(link: Link, topic: str) -> None:
    link.send(topic, b"now", {})
    link.send(topic, b"later", {"due": 253_402_300_799_999})
    assert link.size(topic) == 1
    assert link.purge(topic) == 2


def test_a_key_that_is_taken_costs_no_message(link: Link, topic: str) -> None:
    link.send(topic, b"1", {"key": "t"})
    link.send(topic, b"2", {"key": "t"})
    assert sorted((key, payload) for key, _, _, payload in link.rows(topic) if key) == [("t", b"1")]
    assert link.size(topic) == 2


def test_what_is_posted_arrives(link: Link, topic: str) -> None:
    for number in range(20):
        link.post(topic, str(number).encode(), {})
    until(lambda: link.size(topic) == 20, "20 messages")
    assert {payload for *_, payload in link.rows(topic)} == {str(n).encode() for n in range(20)}


def test_a_message_by_its_key(link: Link, topic: str) -> None:
    link.put(topic, "k", b"v", None, 60_000)
    assert link.get(topic, "k") == b"v"
    assert link.get(topic, "other") is None
    assert link.get_many(topic, ["other", "k", "k"]) == [None, b"v", b"v"]
    assert link.get_many(topic, []) == []
    (before,) = link.rows(topic)
    assert link.renew(topic, ["k", "other"], 120_000) == [True, False]
    (after,) = link.rows(topic)
    assert after[1] > before[1]
    assert link.cancel(topic, ["k"], before[1]) == 0
    assert link.cancel(topic, ["k"], after[1]) == 1


def test_a_consumer_holds_no_more_than_its_prefetch(link: Link, topic: str) -> None:
    came = Came()
    number = link.consume(topic, 2, came)
    for _ in range(4):
        link.send(topic, b"x", {})
    assert len(came.wait(2)) == 2
    assert link.size(topic) == 2
    link.settle(number, came.arrivals[0][0], "ack")
    came.wait(3)
    link.end(number)
    until(lambda: link.size(topic) == 3, "what was not acked to be given back")


def test_a_message_is_requeued_or_dies(link: Link, topic: str, client: Client) -> None:
    client.create_topic(f"{topic}.dead")
    came = Came()
    number = link.consume(topic, 1, came)
    link.send(topic, b"x", {})
    link.settle(number, came.wait(1)[0][0], "requeue", wait=True)
    assert came.wait(2)[1][1:] == (b"x", 2)
    link.settle(number, came.arrivals[1][0], "reject", wait=True)
    until(lambda: link.size(f"{topic}.dead") == 1, "the dead letter")
    link.end(number)


def test_what_a_drained_consumer_was_given_can_be_acked(link: Link, topic: str) -> None:
    came = Came()
    number = link.consume(topic, 5, came)
    link.send(topic, b"x", {})
    ((tag, _, _),) = came.wait(1)
    link.drain(number)
    link.settle(number, tag, "ack", wait=True)
    link.end(number)
    assert link.size(topic) == 0


def test_a_consumer_is_told_when_its_topic_is_deleted(link: Link, topic: str) -> None:
    came = Came()
    link.consume(topic, 5, came)
    link.delete(topic)
    until(lambda: came.error is not None, "the error")
    assert isinstance(came.error, TopicUnknown)
