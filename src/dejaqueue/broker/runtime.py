"""A topic that is being served, and the way to its partitions' workers.

Room: broker. Any thread may call it; what is asked of a partition runs on its worker.
Holds: partition n of a topic is always stepped by the same worker.
See: broker.py, which makes one for each topic of the catalogue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from dejaqueue.broker.counting import PartitionCounts, TopicCounts
from dejaqueue.broker.dead_letters import Carrier, DeadLetters
from dejaqueue.broker.dispatch import Dispatcher
from dejaqueue.broker.forecast import Forecast, ForecastChore
from dejaqueue.broker.history.history import History
from dejaqueue.broker.maintenance import Maintenance
from dejaqueue.broker.notes import Notes
from dejaqueue.broker.partition import Partition
from dejaqueue.broker.partition_worker import PartitionWorker
from dejaqueue.broker.places import Places
from dejaqueue.broker.quotas import Backlog, Rates, share_of
from dejaqueue.broker.requests import ChangeRequest, LookRequest, Request
from dejaqueue.broker.room import Room
from dejaqueue.broker.route import Route
from dejaqueue.broker.shared import Shared
from dejaqueue.broker.staging import StagedWatch
from dejaqueue.broker.threads import Threads
from dejaqueue.broker.transactions import Transactions
from dejaqueue.broker.turns import Turns
from dejaqueue.clock import Clock
from dejaqueue.errors import DejaQError, InternalError, Unavailable
from dejaqueue.journal.interface import JournalStore
from dejaqueue.model import Assignment, Topic, TopicKind, parse_shard
from dejaqueue.settings import BrokerSettings
from dejaqueue.wire.frames import Reply

Answer = TypeVar("Answer")


def _silence_us(settings: BrokerSettings) -> int:
    return settings.dispatch.consumer_silence_ms_max * 1_000


class TopicRuntime:
    """A topic that is being served: its partitions, and the consumers they share.

    Attributes:
        topic: its settings; replaced when they change.
        dispatcher: its consumers.
        counting: what its partitions count together.
        rates: how fast its producers send.
        route: how keys find their partition.
        turns: of who sends the same batch again.
        partitions: by number; each is loaded when it is first used.
        served_as: the topic's name, or that of the one shard of it that is served.
        journals: what the topic is called in the store of its journals.
    """

    def __init__(
        self,
        topic: Topic,
        store: JournalStore,
        clock: Clock,
        settings: BrokerSettings,
        worker_of: Callable[[str, int], PartitionWorker],
        threads: Threads,
        snapshot_writer: Executor,
        carrier: Carrier,
        transactions: Transactions,
        counts: tuple[int, ...] = (),
        grow: Callable[[str, int], None] = lambda _name, _count: None,
        journals: str = "",
        shared: Shared | None = None,
        history: History | None = None,
        served_as: str = "",
        opener: Executor | None = None,
        room: Room | None = None,
    ) -> None:
        self.served_as = served_as or topic.name
        self.journals = journals or topic.name
        self.shard = parse_shard(self.served_as)
        self.topic = share_of(topic) if self.shard else topic
        self.dispatcher = Dispatcher(_silence_us(settings), self.ring_all)
        self.counting = TopicCounts()
        self.notes = Notes()
        self._workers: list[PartitionWorker] = []
        self.partitions = Places() if self.shard is None else Places(*self.shard[1:])
        self.rates = Rates()
        self.route = Route(counts or (topic.partitions,))
        self.turns = Turns(self.again)
        self._clock = clock
        self._threads = threads
        self._again: Executor | None = None
        self._again_lock = threading.Lock()
        self._is_closed = False

        self._forecast = Forecast(settings.dispatch, lambda count: grow(self.topic.name, count))

        def add(number: int) -> None:
            worker = worker_of(self.topic.name, number)
            partition = Partition(
                lambda: self.topic,
                number,
                lambda: store.open(self.journals, number, only_made=True),
                clock,
                settings,
                self.dispatcher,
                self.backlog,
                worker.committer,
                worker.ring,
            )
            in_due_order = topic.kind in (TopicKind.TIMELINE, TopicKind.CRON)
            partition.counting = PartitionCounts(self.counting, in_due_order=in_due_order)
            partition.maintenance = Maintenance(snapshot_writer, room)
            partition.dead_letters = DeadLetters(carrier)
            partition.staged_watch = StagedWatch(transactions)
            partition.forecast = ForecastChore(self._forecast)
            partition.shared, partition.opener = shared, opener
            partition.keep_apart(worker.apart if store.is_remote else None)
            partition.served_as, partition.places = self.served_as, self.partitions
            if history is not None:
                partition.recorder = history.recorder(topic.name, number, self.counting)
            self._workers.append(worker)
            self.partitions.append(partition)

        self._add = add
        for number in self.partitions.numbers_of(topic.partitions):
            add(number)
        self._share()

    def _share(self) -> None:
        exclusive = self.topic.assignment is Assignment.EXCLUSIVE
        self.dispatcher.configure(
            exclusive=exclusive,
            partition_count=len(self.partitions),
            now_us=self._clock.now_us(),
        )

    def alter(self, topic: Topic) -> None:
        """Serve the topic by these settings from now on."""
        if self.shard is not None:
            topic = share_of(topic)
        if topic == self.topic:
            return
        for number in self.partitions.numbers_of(topic.partitions)[len(self.partitions) :]:
            self._add(number)
        self.topic = topic
        self._share()
        if topic.partitions > self.route.count:
            self.route = Route((*self.route.counts, topic.partitions))
        self.ring_all()

    def settings_changed(self, settings: BrokerSettings) -> None:
        """Serve by these settings of the broker from now on."""
        self.dispatcher.silence_us_max = _silence_us(settings)
        self.ring_all()

    def again(self, send: Callable[[], None]) -> None:
        """Run `send`, which may wait for partitions, on a thread that may; in order. Raises
        Unavailable: the topic is being closed."""
        with self._again_lock:
            if self._again is None:
                self._again = self._threads.executor("dejaq-again")
            try:
                self._again.submit(send)
            except RuntimeError:  # it was shut down
                raise Unavailable("the topic is closed", 1_000) from None

    def assignments(self) -> dict[str, Any]:
        """Who has which partition: `assignment`, `partitions`, `standby`."""
        found = self.dispatcher.assignments(len(self.partitions))
        return {"topic": self.topic.name, "assignment": str(self.topic.assignment)} | found

    def backlog(self) -> Backlog:
        """What is live in all partitions, as of their last steps."""
        return sum((partition.backlog for partition in self.partitions), Backlog())

    def submit(self, partition: int, request: Request) -> None:
        """Leave a request for a partition."""
        worker = self._workers[self.partitions.at(partition)]
        worker.submit(self.partitions[partition], request)

    def ring_all(self) -> None:
        """Have every partition look for something to do."""
        for worker, partition in zip(self._workers, self.partitions, strict=False):  # may grow
            worker.ring(partition)

    def look(self, partition: int, function: Callable[[Partition], Answer]) -> Future[Answer]:
        """Run a function on the partition's worker."""
        future: Future[Answer] = self._threads.future()

        def run(place: Partition) -> None:
            try:
                place.check_loaded()
                future.set_result(function(place))
            except DejaQError as error:
                future.set_exception(error)
            except Exception as wrong:  # noqa: BLE001 - the asker gets it, the worker goes on
                future.set_exception(InternalError(f"{type(wrong).__name__}: {wrong}"))

        self.submit(partition, LookRequest(run))
        return future

    def change(self, partition: int, function: Callable[[Partition], Answer]) -> Future[Answer]:
        """Run a function that applies commands on the partition's worker; done when they are
        durable. It must not raise once it has applied one."""
        future: Future[Answer] = self._threads.future()
        answers: list[Answer] = []

        def answered(reply: Reply) -> None:
            if reply.error is not None:
                future.set_exception(reply.error)
            else:
                future.set_result(answers[0])

        request = ChangeRequest(lambda place: answers.append(function(place)), answered)
        self.submit(partition, request)
        return future

    def close(self, close_one: Callable[[Partition], None]) -> None:
        """Run a function on every partition, each on its worker, and wait for all."""
        if self._again is not None:
            self._again.shutdown()
        waits = []
        for worker, partition in zip(self._workers, self.partitions, strict=True):
            done: Future[None] = self._threads.future()

            def run(
                partition: Partition = partition,
                worker: PartitionWorker = worker,
                done: Future[None] = done,
            ) -> None:
                try:
                    close_one(partition)
                finally:
                    worker.forget(partition)
                    done.set_result(None)

            worker.call(run)
            waits.append(done)
        for done in waits:
            done.result()
        self._is_closed = True

    @property
    def is_left(self) -> bool:
        """True once it is closed and nothing reads a partition any more."""
        opening = [place.opening for place in self.partitions]
        return self._is_closed and all(one is None or one.is_gone for one in opening)
