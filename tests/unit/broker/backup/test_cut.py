"""Covers: the cut through a broker: what is in it, what is kept while it is held, and who waits.

Not covered: what is made of it (test_copying.py); transactions under load
(tests/integration/test_backup.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from dejaqueue.broker.backup import cut as module
from dejaqueue.broker.backup.cut import held_cut
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import Unavailable
from dejaqueue.model import Topic
from tests.backups import client_of, started
from tests.patience import until


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = started("memory:")
    yield broker
    broker.stop()


def test_a_cut_has_every_partition_that_was_used__and_what_was_made(broker: Broker) -> None:
    broker.create_topic(Topic("a", partitions=2))
    broker.create_topic(Topic("unused"))
    broker.call("counts", {"topic": "a"})  # looks at both partitions
    with held_cut(broker) as cut:
        places = [(one.served.topic.name, one.core.number) for one in cut.partitions]
        assert places == [("a", 0), ("a", 1)]
        assert [one.position for one in cut.partitions] == [
            one.journal.tail for one in cut.partitions
        ]
        assert list(cut.catalogue.rows) == ["a", "unused"]
        assert cut.at_ms >= max(one.core.engine.now_ms for one in cut.partitions)
        assert all(one.core.is_held for one in cut.partitions)
    assert not any(one.core.is_held for one in cut.partitions)


def test_what_is_acked_while_a_cut_is_held_stays_readable_until_it_ends(broker: Broker) -> None:
    with client_of(broker) as client:
        client.create_topic("a")
        client.send("a", b"kept")
        with held_cut(broker) as cut:
            [held] = cut.partitions
            [locators] = held.core.engine.live_locators()
            with client.consume("a", idle_ms=5_000) as messages:
                next(iter(messages)).ack()
            assert held.core.engine.counts.live == 0
            assert held.journal.read(locators, ("payload",)).column(0).to_pylist() == [b"kept"]
            assert held.core.commits._held
        until(lambda: not held.core.commits._held, "what was held is freed")


def test_a_worker_that_hangs_fails_the_cut__and_the_others_go_on(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS_MAX", 0.2)
    goes_on = threading.Event()

    def hang() -> None:
        goes_on.wait()

    broker.workers[0].call(hang)
    with pytest.raises(Unavailable, match="a worker hangs"), held_cut(broker):
        pass
    goes_on.set()
    with held_cut(broker) as cut:
        assert cut.partitions == ()


def test_a_partition_that_is_not_read_for_long_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS_MAX", 0.01)
    with pytest.raises(Unavailable, match="topic orders is not read yet"):
        module._answered(Future(), "orders")
