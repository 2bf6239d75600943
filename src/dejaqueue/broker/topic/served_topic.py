"""A topic that is being served, and the way to its partitions' workers.

Room: broker. Any thread may call it; what is asked of a partition runs on its worker.
Holds: partition n of a topic is always stepped by the same worker, until it is closed.
See: broker.py, which makes one for each topic of the catalogue.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from dejaqueue.broker import news
from dejaqueue.broker.collector import collector_off
from dejaqueue.broker.consumers.dispatch import Dispatcher
from dejaqueue.broker.counting import PartitionCounts, TopicCounts
from dejaqueue.broker.partition.partition import Duties, Partition
from dejaqueue.broker.partition.requests import ChangeRequest, LookRequest, Request, SettleRequest
from dejaqueue.broker.partition.view import follows
from dejaqueue.broker.partition.worker import PartitionWorker
from dejaqueue.broker.payloads.partition_payloads import PartitionPayloads, ReleasedRows
from dejaqueue.broker.payloads.payloads import Payloads
from dejaqueue.broker.replies import no_reply
from dejaqueue.broker.shard.allotment import Allotment
from dejaqueue.broker.shard.backlog import Backlog
from dejaqueue.broker.shard.core import PartitionCore
from dejaqueue.broker.shard.opening import JournalDoor
from dejaqueue.broker.shard.ownership import LoneOwnership, Ownership
from dejaqueue.broker.shard.reading import StateReader
from dejaqueue.broker.shard.stored_rows import RowsAwaited
from dejaqueue.broker.topic.allotment_queue import AllotmentQueue, DurableBacklog
from dejaqueue.broker.topic.given_ids import PartitionReport
from dejaqueue.broker.topic.home_chore import HomeChore
from dejaqueue.broker.topic.homes import Homes, TopicHome
from dejaqueue.broker.topic.rates import Rates
from dejaqueue.broker.topic.route import Route
from dejaqueue.broker.topic.served_partitions import ServedPartitions
from dejaqueue.broker.topic.served_view import Answer, Changing, ServedView
from dejaqueue.broker.topic.subscription import ServedSubscription, SubscriptionPorts
from dejaqueue.broker.topic.threads import Threads
from dejaqueue.broker.topic.turns import Turns
from dejaqueue.broker.topic.write_reports import WriteReports
from dejaqueue.clock import Clock
from dejaqueue.engine.arrays import Int64s
from dejaqueue.errors import DejaQError, InternalError, TopicUnknown, Unavailable
from dejaqueue.journal.interface import Journal, JournalStore
from dejaqueue.model import Assignment, Topic
from dejaqueue.settings import BrokerSettings
from dejaqueue.subscriptions import BORN, has_ephemeral
from dejaqueue.topic_names import parse_shard, subscription_name
from dejaqueue.wire.frames import Reply, SettleOp

CLOSE_SECONDS_MAX = 30.0
"""So long does who closes a topic wait for journals that hang; they are closed when they go on."""


def _silence_us(settings: BrokerSettings) -> int:
    return settings.dispatch.consumer_silence_ms_max * 1_000


@dataclass(frozen=True, slots=True)
class TopicPorts:
    """What a topic is served with, the same for all topics of a broker.

    Attributes:
        worker_of: the worker of a partition, by the topic's name and number and its own number.
        homes: the way to what the shards of a topic agree on.
        opener: where journals are read; None = on the workers.
        take_ahead: what was read of a partition before it is served here (reading_ahead.py).
        payloads: where large payloads are kept; None = with the others.
        alter: changes settings of a topic (Broker.alter_topic).
    """

    store: JournalStore
    clock: Clock
    settings: BrokerSettings
    threads: Threads
    worker_of: Callable[[str, int, int], PartitionWorker]
    homes: Homes
    alter: Callable[[str, Callable[[Topic], dict[str, Any]]], Topic]
    opener: Executor | None = None
    payloads: Payloads | None = None
    take_ahead: Callable[[str, str, int], StateReader | None] = lambda *_: None


@dataclass(frozen=True, slots=True)
class Service:
    """As what one topic is served.

    Attributes:
        served_as: the topic's name, or that of the one shard of it that is served.
        journals: what the topic is called in the store of its journals.
        ownership: whether its journals are this broker's; of a broker that is alone they are.
        is_shared: other brokers may own them, too: what cannot be read is tried again.
        partition_counts: how many partitions the topic had, one number after each raise.
        number: what tells the topic from those that had its name before; see Catalogue.number.
        ids_from: the sequence of the first message of each partition.
        use: called before a journal is opened; see Catalogue.use.
        check_there: called behind an epoch that was begun; see Catalogue.check_there.
        stands_by: whether its partitions follow an archive.
    """

    served_as: str
    journals: str
    ownership: Ownership = field(default_factory=LoneOwnership)
    is_shared: bool = False
    partition_counts: tuple[int, ...] = ()
    number: int = 0
    ids_from: int = 0
    use: Callable[[], None] = lambda: None
    check_there: Callable[[], None] = lambda: None
    stands_by: Callable[[], bool] = lambda: False


class ServedTopic(ServedView):
    """A topic that is being served: its partitions, and the consumers they share.

    Args:
        duties_of: what a partition does beside answering requests, by its number.

    Attributes:
        topic: its settings; replaced when they change.
        dispatcher: its consumers.
        counting: what its partitions count together.
        rates: how fast its producers send.
        allotment: what its partitions may hold.
        allotment_queue: of a shard, batches that wait for more of it; None = it is no shard.
        route: how keys find their partition.
        turns: of who sends the same batch again.
        home: what all shards of the topic agree on; None = this is not its first shard.
        partitions: by number; each is loaded when it is first used.
        claimed_dues: when the rows of claims became due, by partition and number of the claim; each
            partition's own, on its worker (claims.py).
        served_as, journals, number, ownership: as in Service.
        payloads: where large payloads are kept; None = with the others.
        subscriptions: its named ones.
    """

    def __init__(
        self,
        topic: Topic,
        service: Service,
        ports: TopicPorts,
        counting: TopicCounts,
        duties_of: Callable[[int], Duties],
    ) -> None:
        self.served_as = service.served_as
        self.journals = service.journals
        self.number = service.number
        self.topic = topic = topic.served_ahead(ports.store.lease_ahead_ms)
        self.shard = parse_shard(self.served_as)
        self.home: TopicHome | None = None
        if self.shard is not None and self.shard[1] == 0:
            self.home = TopicHome(lambda: self.topic, ports.clock, ports.homes)
        self.dispatcher = Dispatcher(
            _silence_us(ports.settings), self._wake, self._worker_of, self.ring_all
        )
        self.counting = counting
        self.write_reports = WriteReports()
        self.partitions = (
            ServedPartitions() if self.shard is None else ServedPartitions(*self.shard[1:])
        )
        self.rates = Rates()
        self.allotment = Allotment(self.backlog, is_shard=self.shard is not None)
        self.allotment_queue: AllotmentQueue | None = None
        if self.shard is not None:
            self.allotment_queue = AllotmentQueue(
                self.served_as,
                lambda: self.topic,
                self.allotment,
                ports.homes,
                self._learn,
                self.again,
            )
        self.route = Route(service.partition_counts or (topic.partitions,))
        self.turns = Turns(self.again)
        self.claimed_dues: dict[int, dict[int, Int64s]] = defaultdict(dict)
        self.subscriptions: dict[str, ServedSubscription] = {}
        self._service = service
        self.ownership = service.ownership
        self.payloads = ports.payloads
        self._ports = ports
        self._duties_of = duties_of
        self._workers: list[PartitionWorker] = []
        self._again: Executor | None = None
        self._again_lock = threading.Lock()
        self._altering = threading.Lock()
        self._closings: list[Future[None]] | None = None
        self._close_until_us = 0
        self._grow(topic.partitions)
        self._subscribe(topic)
        self._share()

    def _grow(self, count: int) -> None:
        with collector_off():
            for number in self.partitions.numbers_of(count)[len(self.partitions) :]:
                self._add(number)

    def _add(self, number: int) -> None:
        """One more partition, with the next number that is served here."""
        ports, service, names = self._ports, self._service, (self.topic.name, self.number)
        worker = ports.worker_of(*names, number)
        in_due_order = self.topic.kind.is_by_time
        duties = self._duties_of(number)
        if self.shard is not None and not self.partitions:
            chore = HomeChore(self.served_as, self.dispatcher, ports.homes)
            duties = replace(duties, chores=(*duties.chores, chore))
        core = PartitionCore(
            lambda: self.topic,
            number,
            ports.clock,
            ports.settings,
            PartitionCounts(self.counting, in_due_order=in_due_order),
            lambda: worker.ring(partition),
        )
        if self.payloads is not None:
            place = f"topic {self.served_as}, partition {number}"
            let_go = partial(self._let_go, number)
            of = self.topic.name, self.payload_owner
            core.payloads = PartitionPayloads(self.payloads, let_go, place, *of)
        # A journal on a server may hang: it is read and appended to beside the worker.
        apart = worker.apart if ports.store.is_remote else None
        door = JournalDoor(
            lambda: self._open(number),
            ownership=self.ownership,
            listener=duties.listener,
            executor=ports.opener or (None if apart is None else apart.executor),
            comes_back=service.is_shared,
            check_there=service.check_there,
            stands_by=service.stands_by,
            used_as=names,
        )
        door.take_ahead = partial(ports.take_ahead, self.served_as, self.journals, number)
        partition = Partition(
            core,
            door,
            apart or worker.committer,
            self.dispatcher,
            self.allotment,
            duties,
            service.ids_from,
            lambda: worker.landed(partition),
        )
        self._workers.append(worker)
        self.partitions.append(partition)
        self.dispatcher.waiting.expect(number)

    @property
    def payload_owner(self) -> str:
        """What its payloads have in their names; of no other topic, whatever it is called."""
        return f"{self.number}-{self.served_as}"

    def _let_go(self, number: int, rows: ReleasedRows) -> None:
        """End leases of messages that could not be delivered."""
        # What was leased ahead is not due yet, and must not come back early (rule 2).
        delay_ms = max(rows.delay_ms, rows.due_ms - self._ports.clock.utc_ms())
        request = SettleRequest(
            SettleOp.NACK,
            0,
            no_reply,
            argument_ms=delay_ms,
            sequences=rows.sequences,
            attempts=rows.attempts,
            release=True,
            subscription=rows.subscription,
        )
        self.submit(number, request)

    def _open(self, number: int) -> Journal:
        """The journal of a partition."""
        self._service.use()
        return self._ports.store.open(self.journals, number, only_made=True)

    def _share(self) -> None:
        exclusive = self.topic.assignment is Assignment.EXCLUSIVE
        self.dispatcher.configure(
            exclusive=exclusive,
            numbers=self.partitions.numbers,
            now_us=self._ports.clock.now_us(),
            is_shard=self.shard is not None,
        )
        for subscription in self.subscriptions.values():
            subscription.share()

    def _subscribe(self, topic: Topic) -> None:
        """Have the subscriptions that the topic says."""
        before, self.subscriptions = self.subscriptions, {}
        for name, settings in topic.subscriptions.items():
            found = before.get(name)
            if found is None or found.born != settings[BORN]:
                ports = self._ports
                here = self, ports.clock, self._wake, self._worker_of, self.ring_all
                shards = self.shard and self.served_as, self.home, ports.homes
                to_all = SubscriptionPorts(*here, *shards, ports.alter, self._apart)
                found = ServedSubscription(topic, name, to_all, _silence_us(ports.settings))
            found.follow(topic)
            self.subscriptions[name] = found
        for partition in self.partitions:
            served = self.subscriptions.values()
            partition.views = tuple(one.view_of(partition) for one in served)
        for one in before.values():
            if self.subscriptions.get(one.name) is not one:
                one.end(TopicUnknown(one.topic.name))

    def _apart(self, run: Callable[[], None]) -> None:
        """Run the end of a subscription, which may wait for the catalogue."""
        self._ports.threads.start("dejaq-ephemeral", run)

    def attend(self) -> None:
        """Where subscriptions end when nobody is there, begin to look."""
        if has_ephemeral(self.topic.subscriptions):
            self.partitions[self.partitions.numbers[0]].ring()

    def subscription(self, name: str) -> ServedSubscription:
        """One of its subscriptions. Raises TopicUnknown."""
        found = self.subscriptions.get(name)
        if found is None:
            raise TopicUnknown(subscription_name(self.topic.name, name))
        return found

    def subscription_backlogs(self) -> dict[str, Backlog]:
        """How much each of its subscriptions has in what was read here, about. Any thread."""
        found = dict.fromkeys(self.subscriptions, Backlog())
        for core in (partition.core for partition in self.partitions if partition.was_read):
            for view in list(core.views.named.values()):
                if view.name in found:
                    held = Backlog(*view.engine.backlog(core.mean_payload_bytes))
                    found[view.name] += held
        return found

    def view(self, subscription: str) -> ServedView:
        """As one of its subscriptions, "" = the unnamed one. Raises TopicUnknown."""
        return self.subscription(subscription) if subscription else self

    def wait_subscribed(self) -> None:
        """Return when what comes in is in each of the subscriptions that there are now, and in no
        other. Partitions that cannot be read follow before they take anything."""
        for number in self.partitions.numbers:
            try:
                while self.has_journal(number) and not self.change(number, follows).result(30):
                    continue  # its step had begun before it could know
            except (DejaQError, TimeoutError):
                continue

    def alter(self, read: Callable[[], Topic | None]) -> None:
        """Serve the topic by its settings of now. Any thread.

        Args:
            read: the settings, from memory; None = there is no such topic any more. Read under the
                lock, so that of two changes the older one is never adopted last.
        """
        with self._altering:
            changed = read()
            if changed is None:
                return
            topic = changed.served_ahead(self._ports.store.lease_ahead_ms)
            if topic == self.topic:
                return
            self._grow(topic.partitions)
            self._subscribe(topic)
            self.topic = topic
            if topic.partitions > self.route.count:
                self.route = Route((*self.route.counts, topic.partitions))
            self._share()
            if self.allotment_queue is not None:
                self.allotment_queue.begin_anew()
        self.ring_all()

    def end_consumers(self, error: DejaQError) -> None:
        """Tell every consumer that nothing more comes."""
        for served in (self, *self.subscriptions.values()):
            served.dispatcher.end_all(error)

    def settings_changed(self, settings: BrokerSettings) -> None:
        """Serve by these settings of the broker from now on."""
        for served in (self, *self.subscriptions.values()):
            served.dispatcher.silence_us_max = _silence_us(settings)
        self.ring_all()

    def again(self, send: Callable[[], None]) -> None:
        """Run `send`, which may wait, on another thread, in order. Raises Unavailable: closed."""
        with self._again_lock:
            if self._again is None:
                self._again = self._ports.threads.executor("dejaq-again")
            try:
                self._again.submit(send)
            except RuntimeError:  # it was shut down
                raise Unavailable("the topic is closed", 1_000) from None

    def backlog(self) -> Backlog:
        """What is live in all partitions, as of their last steps."""
        return sum((partition.backlog for partition in self.partitions), Backlog())

    def check_owned(self) -> None:
        """Raise why its journals are not this broker's any more, if they are not."""
        refusal = self._service.ownership.refusal()
        if refusal is not None:
            raise refusal

    def give_back(self, by: Backlog) -> Future[Backlog]:
        """Keep less of what the shards of the topic may hold; what is kept."""
        assert self.allotment_queue is not None, "a shard is asked"
        return self.allotment_queue.give_back(by)

    def _learn(self) -> Future[DurableBacklog]:
        """Read all partitions; done when what was applied to them before is durable."""
        learned: Future[DurableBacklog] = Future()
        numbers = self.partitions.numbers
        left = itertools.count(len(numbers) - 1, -1)

        def note(core: PartitionCore) -> tuple[int, Backlog]:
            core.backlog = core.live()
            return core.commits.epoch, core.backlog

        def noted(_: object) -> None:
            if next(left):  # counts under the interpreter's lock
                return
            error = next((one.exception() for one in asked if one.exception() is not None), None)
            if error is not None:
                learned.set_exception(error)
                return
            found = [one.result() for one in asked]
            live = sum((backlog for _, backlog in found), Backlog())
            learned.set_result(DurableBacklog(found[0][0], live))

        asked = [self.change(number, note) for number in numbers]
        for one in asked:
            one.add_done_callback(noted)
        return learned

    def submit(self, partition_number: int, request: Request) -> None:
        """Leave a request for a partition."""
        worker = self._worker_of(partition_number)
        worker.submit(self.partitions[partition_number], request)

    def ring_all(self) -> None:
        """Have every partition look for something to do."""
        for worker, partition in zip(self._workers, self.partitions, strict=False):  # may grow
            worker.ring(partition)

    def wait_stepped(self) -> None:
        """Return when every partition that was read has made a step, or cannot."""
        looks = [self.look(one.number, lambda _: None) for one in self.partitions if one.was_read]
        for one in looks:
            with suppress(DejaQError, TimeoutError):
                one.result(CLOSE_SECONDS_MAX)

    def _worker_of(self, partition_number: int) -> PartitionWorker:
        return self._workers[self.partitions.at(partition_number)]

    def _wake(self, partition_number: int) -> bool:
        """Have a partition look for somebody with credit; False = there is nothing in it."""
        if not self.has_journal(partition_number):
            return False
        partition = self.partitions[partition_number]
        self._worker_of(partition_number).ring(partition)
        return True

    def has_journal(self, partition_number: int) -> bool:
        """False if nothing was ever stored in a partition: it need not be read to look for more."""
        partition = self.partitions[partition_number]
        if partition.loaded or self.dispatcher.waiting.was_used(partition_number):
            return True
        return self._ports.store.was_used(self.journals, partition_number)

    def look(
        self, partition_number: int, function: Callable[[PartitionCore], Answer]
    ) -> Future[Answer]:
        """Run a function on the worker; again from its beginning, if it waits for stored rows."""
        future: Future[Answer] = self._ports.threads.future()
        partition = self.partitions[partition_number]

        def run(core: PartitionCore) -> None:
            try:
                partition.check_loaded()
                future.set_result(function(core))
            except RowsAwaited:
                raise  # it is run again
            except DejaQError as error:
                future.set_exception(error)
            except Exception as wrong:  # noqa: BLE001 - the asker gets it, the worker goes on
                future.set_exception(InternalError(f"{type(wrong).__name__}: {wrong}"))

        self.submit(partition_number, LookRequest(run))
        return future

    def change(
        self, partition_number: int, function: Callable[[PartitionCore], Answer]
    ) -> Future[Answer]:
        """Run a function that applies commands, on the worker; done when they are durable. It must
        not raise once it has applied one."""
        return self.change_ahead(partition_number, function).durable

    def change_ahead(
        self, partition_number: int, function: Callable[[PartitionCore], Answer]
    ) -> Changing[Answer]:
        """As `change`, for who has more to ask for before that is durable."""
        future = self._ports.threads.future
        changing: Changing[Answer] = Changing(future(), future())

        def answered(reply: Reply) -> None:
            if reply.error is None:
                changing.durable.set_result(changing.applied.result())
                return
            changing.durable.set_exception(reply.error)
            if not changing.applied.done():
                changing.applied.set_exception(reply.error)

        def change(core: PartitionCore) -> None:
            changing.applied.set_result(function(core))

        self.submit(partition_number, ChangeRequest(change, answered))
        return changing

    def given(self) -> dict[int, PartitionReport]:
        """What each partition that was read has given, by number; exact if the topic is closed."""
        read = [partition for partition in self.partitions if partition.was_read]
        engines = {partition.number: partition.core.engine for partition in read}
        return {
            number: PartitionReport(engine.next_sequence, dict(engine.decisions))
            for number, engine in engines.items()
        }

    def close(
        self, close_one: Callable[[Partition], None], seconds_max: float | None = None
    ) -> None:
        """Run a function on every partition; wait for all, or so long; None = CLOSE_SECONDS_MAX."""
        self.begin_close(close_one, seconds_max)
        self.wait_closed()

    def begin_close(
        self, close_one: Callable[[Partition], None], seconds_max: float | None = None
    ) -> None:
        """Run a function on every partition, on its worker; beside it if the journal is on a
        server: there it may hang, and the worker has other partitions."""
        if self._again is not None:
            self._again.shutdown()
        self._closings = []
        for worker, partition in zip(self._workers, self.partitions, strict=True):
            done: Future[None] = self._ports.threads.future()
            self._closings.append(done)
            worker.call(partial(self._close_one, worker, partition, close_one, done))
        seconds = CLOSE_SECONDS_MAX if seconds_max is None else seconds_max
        self._close_until_us = self._ports.clock.now_us() + round(seconds * 1_000_000)

    def wait_closed(self) -> None:
        """Wait for what `begin_close` has begun, so long as was said there."""
        for done in self._closings or ():
            left_us = max(self._close_until_us - self._ports.clock.now_us(), 0)
            try:
                done.result(left_us / 1_000_000)
            except TimeoutError:
                news.still_closing(self.topic.name)
                break

    def _close_one(
        self,
        worker: PartitionWorker,
        partition: Partition,
        close_one: Callable[[Partition], None],
        done: Future[None],
    ) -> None:
        if not self._ports.store.is_remote or worker.apart is None:
            try:
                close_one(partition)
            finally:
                worker.forget(partition)
                done.set_result(None)
            return

        def close_apart() -> None:
            try:
                close_one(partition)
            finally:
                worker.give_back(partition)  # it turns away what has come meanwhile
                done.set_result(None)

        worker.lend(partition)
        worker.apart.executor.submit(close_apart)

    @property
    def is_closing(self) -> bool:
        """True once it is being closed: what comes now may not be done any more."""
        return self._closings is not None

    @property
    def is_gone(self) -> bool:
        """True once it is closed and nothing reads a partition any more, or writes to it."""
        if self._closings is None or not all(one.done() for one in self._closings):
            return False
        return all(one.opening is None or one.opening.is_gone for one in self.partitions)
