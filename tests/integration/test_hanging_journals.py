"""A topic whose journals' server hangs holds no call for another topic: neither the making nor the
changing, serving, sending, reading and deleting of it, by a broker that is alone or of a cluster.

Appends that hang: tests/integration/test_hanging_journal.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager

import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.journal.records.memory import MemoryRecordStore
from dejaqueue.journal.records.store import RecordJournalStore
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings
from tests.cluster.brokers import Cluster, payloads, send
from tests.patience import until

SECONDS_MAX = 8.0
HUNG_SECONDS_MAX = 60.0


class HangingRecords(MemoryRecordStore):
    """A server that answers no call of one kind about the topic `slow` until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.hung_call = ""
        self.is_hanging = threading.Event()
        self.answers = threading.Event()

    def _answer(self, call: str, name: str) -> None:
        if call == self.hung_call and "slow" in name:
            self.is_hanging.set()
            assert self.answers.wait(HUNG_SECONDS_MAX)

    def put_object(self, name: str, content: bytes | memoryview) -> None:
        self._answer("put", name)
        super().put_object(name, content)

    def get_object(self, name: str) -> bytes | None:
        self._answer("get", name)
        return super().get_object(name)

    def drop_objects(self, names: Sequence[str]) -> None:
        self._answer("drop", ",".join(names))
        super().drop_objects(names)


@contextmanager
def lone(records: HangingRecords) -> Iterator[Broker]:
    broker = Broker(BrokerSettings(), store=RecordJournalStore(records))
    broker.start()
    try:
        yield broker
    finally:
        records.answers.set()
        broker.stop()


@contextmanager
def clustered(records: HangingRecords) -> Iterator[Broker]:
    with Cluster(records) as cluster:
        broker = cluster.start("a")
        try:
            yield broker
        finally:
            records.answers.set()


def make(broker: Broker) -> object:
    return broker.create_topic(Topic("slow"))


def delete(broker: Broker) -> None:
    broker.delete_topic("slow")


def read(broker: Broker) -> object:
    return payloads(broker, "slow")


@pytest.mark.parametrize(
    ("started", "hung_call", "act"),
    [
        pytest.param(lone, "put", read, id="first-use"),
        pytest.param(lone, "drop", delete, id="deleting"),
        pytest.param(lone, "get", read, id="reading"),
        pytest.param(clustered, "put", read, id="first-use-clustered"),
        pytest.param(clustered, "drop", delete, id="deleting-clustered"),
    ],
)
def test_a_topic_whose_journals_hang_holds_no_other(
    started: Callable[[HangingRecords], AbstractContextManager[Broker]],
    hung_call: str,
    act: Callable[[Broker], object],
) -> None:
    records = HangingRecords()
    with ThreadPoolExecutor(2) as threads, started(records) as broker:

        def in_time(call: Callable[[], object]) -> object:
            return threads.submit(call).result(SECONDS_MAX)

        broker.create_topic(Topic("slow"))
        broker.create_topic(Topic("before"))
        records.hung_call = hung_call
        hanging: Future[object] = threads.submit(act, broker)
        assert records.is_hanging.wait(SECONDS_MAX)
        in_time(lambda: broker.create_topic(Topic("quick")))
        in_time(lambda: until(lambda: broker.serves("quick"), "served", SECONDS_MAX))
        in_time(lambda: send(broker, "quick", ["one"]))
        assert in_time(lambda: payloads(broker, "quick")) == ["one"]
        in_time(lambda: broker.alter_topic("before", {"partitions": 2}))
        assert in_time(lambda: broker.topic("before").partitions) == 2
        in_time(lambda: broker.delete_topic("quick"))
        in_time(lambda: broker.delete_topic("before"))
        assert not hanging.done()
        records.answers.set()
        hanging.result(SECONDS_MAX)
        assert broker.serves("slow") == (act is not delete)


def test_a_topic_that_is_being_deleted_is_deleted_before_the_broker_stops() -> None:
    records = HangingRecords()
    with ThreadPoolExecutor(2) as threads:
        with lone(records) as broker:
            make(broker)
            send(broker, "slow", ["one"])
            records.hung_call = "drop"
            deleting = threads.submit(delete, broker)
            assert records.is_hanging.wait(SECONDS_MAX)
            stopping = threads.submit(broker.stop)
            with pytest.raises(TimeoutError):
                stopping.result(0.1)
            records.answers.set()
            stopping.result(SECONDS_MAX)
            deleting.result(SECONDS_MAX)
        with lone(records) as broker:
            assert broker.topics() == []
            assert broker.store.made() == []
