"""Covers: what a session tells of the broker's looks at its partitions.

Not covered: deliveries and settles (tests/rules).
"""

from __future__ import annotations

from concurrent.futures import Future
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.topic.session import ConsumerSession
from dejaqueue.errors import Unavailable
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.wire.descriptors import ConsumeStream


class Pushes:
    """A sink that keeps what is pushed."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def push(self, push: Any) -> None:
        self.found.append(push)

    def end(self, error: Any) -> None:
        raise AssertionError(error)


@pytest.fixture
def broker() -> Any:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    broker.create_topic(Topic("t", partitions=3))
    yield broker
    broker.stop()


def session(broker: Broker, sink: Pushes) -> ConsumerSession:
    return broker.open_consume(ConsumeStream("t", holds=False), sink)


def test_it_has_looked_when_every_partition_has(broker: Broker) -> None:
    """One of them is held up until the others have answered."""
    held, began, go_on = session(broker, Pushes()), Event(), Event()

    def wait(_partition: object) -> bool:
        began.set()
        return go_on.wait(20)

    stuck = broker.runtime("t").look(2, wait)
    assert began.wait(20)  # a partition that nobody has used yet is not asked
    looked = held.looked()
    first = broker.runtime("t").change(0, lambda _: None)
    if broker.worker_of("t", 0) is not broker.worker_of("t", 2):
        first.result(20)
    assert not looked.done()
    go_on.set()
    assert stuck.result(20)
    assert looked.result(20) is None


@pytest.mark.parametrize("failed", [0, 1, 2])
def test_a_partition_that_cannot_be_read_ends_the_look(failed: int) -> None:
    looks: list[Future[None]] = [Future() for _ in range(3)]
    topic = SimpleNamespace(
        has_journal=lambda number: number != 3,
        change=lambda number, _function: looks[number],
        dispatcher=SimpleNamespace(
            add=lambda *_: SimpleNamespace(), waiting=SimpleNamespace(occupied=[0, 1, 2, 3])
        ),
    )
    clock = SimpleNamespace(now_us=lambda: 0)
    made: Any = ConsumerSession
    looked = made(topic, ConsumeStream("t"), Pushes(), clock, None).looked()
    for number, look in enumerate(looks):
        if number == failed:
            look.set_exception(Unavailable("it is away", 5))
        else:
            look.set_result(None)
    with pytest.raises(Unavailable, match="it is away"):
        looked.result(0)


def test_credit_that_is_not_used_is_withdrawn(broker: Broker) -> None:
    held = session(broker, Pushes())
    held.credit(5)
    assert held.withdraw(2) == 2
    assert held.withdraw(9) == 3
    assert held.withdraw(1) == 0
