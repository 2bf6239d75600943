"""The broker: topics, their partitions and workers, put together.

Room: broker. What the Flight server, the HTTP API and the in-process client call; no sockets.
Holds: `start` returns when everything serves, `stop` when everything is durable and closed; both
may be called twice.
See: docs/internals/README.md for the reading order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from dejaqueue.access.key_ring import KeyRing
from dejaqueue.access.quotas import Account, Quotas
from dejaqueue.access.senders import ANYBODY, NOBODY, Requester, Sender
from dejaqueue.backup.fence import Fence
from dejaqueue.broker import news
from dejaqueue.broker.backup.backups import Backups
from dejaqueue.broker.backup.restoring import check_finished
from dejaqueue.broker.calls import calls
from dejaqueue.broker.consumers.dispatch import Sink
from dejaqueue.broker.counting import BrokerCounts, TopicCounts
from dejaqueue.broker.history.history import History, directory_of
from dejaqueue.broker.letters.carrier import Carrier
from dejaqueue.broker.partition.staged import StageOf
from dejaqueue.broker.partition.worker import PartitionWorker
from dejaqueue.broker.payloads.cold_objects import ColdObjects
from dejaqueue.broker.payloads.payloads import THREADS, Payloads
from dejaqueue.broker.replacement import take_out
from dejaqueue.broker.roster import Roster
from dejaqueue.broker.shard.opening import OPENERS
from dejaqueue.broker.shard.timekeeping import broker_clock
from dejaqueue.broker.shard.turn_hold import TurnHold
from dejaqueue.broker.site import Site
from dejaqueue.broker.standby.following import follow_change, follow_entries
from dejaqueue.broker.standby.standby import Standby
from dejaqueue.broker.topic import deleting, forecast, handing_over
from dejaqueue.broker.topic.catalogue import Catalogue, Changes, with_births
from dejaqueue.broker.topic.cluster_port import ClusterPort, TopicOwnership, in_shards
from dejaqueue.broker.topic.erasure_schedule import ErasureSchedule, check_bound
from dejaqueue.broker.topic.homes import Homes
from dejaqueue.broker.topic.lone_catalogue import LoneCatalogue
from dejaqueue.broker.topic.name_locks import NameLocks
from dejaqueue.broker.topic.payload_collector import PayloadCollector
from dejaqueue.broker.topic.peers import READ_AHEAD, Peers
from dejaqueue.broker.topic.reading_ahead import ReadingsAhead
from dejaqueue.broker.topic.room import Room
from dejaqueue.broker.topic.served_topic import ServedTopic, Service, TopicPorts
from dejaqueue.broker.topic.served_view import ServedView, moved
from dejaqueue.broker.topic.session import ConsumerSession
from dejaqueue.broker.topic.threads import Running, Threads
from dejaqueue.broker.topic.writer import Writer
from dejaqueue.broker.transactions.coordinator import Coordinator
from dejaqueue.broker.transactions.home import is_over
from dejaqueue.broker.transactions.transactions import Transactions
from dejaqueue.catalogue.changes import Change
from dejaqueue.catalogue.state import CatalogueState, TopicRow
from dejaqueue.clock import Clock
from dejaqueue.errors import (
    Elsewhere,
    InternalError,
    Refused,
    TopicUnknown,
    Unavailable,
)
from dejaqueue.journal.interface import Entry, JournalStore
from dejaqueue.journal.registry import encrypt, store_of
from dejaqueue.model import Topic
from dejaqueue.schema.warm import warm_up
from dejaqueue.settings import BrokerSettings
from dejaqueue.settings import Change as SettingChange
from dejaqueue.subscriptions import has_ephemeral
from dejaqueue.topic_names import parse_subscription, subscription_name, topic_of
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream
from dejaqueue.wire.lane import LaneAddress

RUNNING = "running"
"""The phase in which a broker takes calls."""


AWAITED = {"subscriptions", "retention_ms", "retention_bytes", "retention_keys"}
"""Settings of a topic whose change is answered when partitions follow it."""


class Broker:
    """A broker on one machine.

    Attributes:
        phase: what it is doing: starting with what, RUNNING, stopping.
        peers, lane, where: the way to other brokers; its express lanes; its address, for people.
            Who serves them gives them.
        site, standby: whether it is the active one of two, and what it does while it is not.

    Args:
        settings: where and how; the defaults keep messages in ./dejaq-data.
        clock: the time; the machine's unless a test brings its own.
        store: the journals; made from `settings.journal` unless given.
        threads: where its own work runs.
        node: its part in a cluster; None = it is alone and serves everything.

    >>> from dejaqueue.settings import BrokerSettings, JournalSettings
    >>> broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    >>> broker.start()
    >>> broker.create_topic(Topic("reminders")).partitions
    1
    >>> broker.stop()
    """

    store: JournalStore
    _catalogue: Catalogue

    def __init__(
        self,
        settings: BrokerSettings | None = None,
        clock: Clock | None = None,
        store: JournalStore | None = None,
        threads: Threads | None = None,
        node: ClusterPort | None = None,
    ) -> None:
        # A copy: `change_settings` must not change those of another broker.
        self.settings = (settings or BrokerSettings()).model_copy(deep=True)
        self.clock: Clock = clock or broker_clock(self.settings)
        self._given_store = store
        self.node, self._running = node, False
        self._threads = threads or Threads()
        self._lock = threading.Lock()
        """Over the two that follow it, for a few lines: nothing is read, written or asked in it."""
        self._topics: dict[str, ServedTopic] = {}
        """Those that were used, or given to it by a cluster."""
        self.alone: LoneCatalogue | None = None
        """The catalogue, if it is one of its own."""
        self._names = NameLocks(self._threads.lock)
        """For calls that make, change or delete a topic, and may wait for its journals' server."""
        self._workers: list[PartitionWorker] = []
        writers = 1 if node is None else handing_over.SNAPSHOT_WRITERS
        self.snapshot_writer = self._threads.executor("dejaq-snapshots", writers)
        self._room = Room(self.runtimes, self.runtime, self.clock)
        self.ahead = ReadingsAhead(self._threads, self.clock, self._topics.__contains__)
        self._opener = None if node is None else self._threads.executor("dejaq-open", OPENERS)
        askers = self._threads.executor("dejaq-payloads", THREADS)
        self.payloads = Payloads(self.settings, self.clock, askers)
        self._payload_collector = PayloadCollector(self.payloads, self._find_payload_owner)
        self._collecting: Running | None = None
        self._erasing: tuple[ErasureSchedule, Running] | None = None
        self.carrier = Carrier(self, self._threads.executor("dejaq-dead-letters"), self.payloads)
        settings, executor = self.settings, self._threads.executor("dejaq-history")
        self.history = History(directory_of(settings), settings.history, self.clock, executor)
        self._endings = deleting.Endings(self.history)
        self.keys = KeyRing(
            self.clock,
            keeps_signing=self.settings.sqs.enabled,
            apart=lambda keep: self._threads.start("dejaq-key-uses", keep),
        )
        self.counting = BrokerCounts()
        self.quotas = Quotas(self.settings, self.clock)
        self.phase, self.started_us, self._exchange = "not started", 0, ""
        self.peers: Peers | None = None
        self.lane: LaneAddress | None = None
        self.where, self.site, self.turn_hold = "", Site(), TurnHold(self.clock)
        self.standby = Standby(self, lambda: self.where)
        coordinator = Coordinator(
            self.runtime,
            lambda *of: self._catalogue.has_partition(*of),
            self.shard_of,
            lambda: self.peers,
            lambda name: self._catalogue.row_of(name),
            lambda name: is_over(name, self.clock.utc_ms(), self.settings.clock),
        )
        self.transactions = Transactions(coordinator, self.clock, self._served_of)
        self.homes = Homes(self.runtime, lambda: self.peers)
        archiving = self._threads.executor("dejaq-archive")
        self.backups = Backups(self, self._threads.executor("dejaq-backup", 3), archiving)
        self._roster = Roster(
            settings.dispatch,
            self.snapshot_writer,
            self._room,
            self.history,
            coordinator,
            self.carrier,
            self._grow_topic,
            ColdObjects(self.payloads) if self.settings.payloads.url else None,
        )

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the store, read the catalogue, start the workers. Raises Locked, JournalDamaged."""
        if self._running:
            return
        self.phase = "opening the journal"
        began_us = self.clock.now_us()
        InternalError.keep_story = news.told
        warm_up()
        self.store = self.standby.opened(lambda: self._given_store or store_of(self.settings))
        try:
            self._read_store()
        except BaseException:
            self.store.close()
            raise
        self._workers = [
            self._threads.worker(f"dejaq-worker-{number}", self.clock)
            for number in range(self.settings.dispatch.workers)
        ]
        self.phase = "starting the workers"
        for worker in self._workers:
            if self.alone is not None:
                worker.note_used = self.alone.use_all
            worker.start()
        self.history.start()
        if self.alone is not None and not self.site.stands_by:
            deleting.finish_all(self.store, self.alone)  # nobody can be told of transactions yet
        self.started_us = self.clock.now_us()
        self._running = True
        self.phase = RUNNING
        if self.site.stands_by:
            self._ring_used()
            self.standby.start(self._threads)
        else:
            self._begin_duties()
        news.started(self.topic_count, (self.started_us - began_us) // 1_000)

    def _read_store(self) -> None:
        """Read what the store has of the broker as a whole."""
        check_bound(self.settings.journal, self.store)
        encrypt(self.store, self.settings.encryption)
        check_finished(self.store)
        self.backups.archiver.check()
        self.standby.prepare()
        self.backups.archiver.check_active()
        self.payloads.open(self.store)
        if self.store.encryption is not None:
            self.history.encrypt(self.store.encryption.cipher("history"))
        node, writer, utc_ms = self.node, self.snapshot_writer, self.clock.utc_ms
        if node is None:
            lock, future = self._threads.lock(), self._threads.future
            self.alone = LoneCatalogue(self.store, lock, writer, utc_ms, future)
            self._catalogue = self.alone
            self.keys.open(self.store)
        else:
            self._catalogue = node.catalogue(self.store, writer, utc_ms)
            self.history.journals_of = lambda name: self._catalogue.journals(topic_of(name))
            node.open_keys(self.keys)
        ports = self.store, self.clock, self.settings, self._threads, self._worker, self.homes
        more = self.alter_topic, self._opener, self.payloads, self.ahead.take
        self._ports = TopicPorts(*ports, *more)

    def _ring_used(self) -> None:
        """Read partitions: each says by its journal how far it is."""
        for topic in self._catalogue.all():
            if self._catalogue.is_used(topic.name):
                self.runtime(topic.name).ring_all()

    def _begin_duties(self) -> None:
        """Begin what only the active one of two sites does."""
        self.backups.start()
        if self.settings.journal.erase_ms_max:
            settings, clock = self.settings.journal, self.clock
            schedule = ErasureSchedule(settings, clock, self.store)
            self._erasing = schedule, self._threads.start("dejaq-erase", schedule.run)
        if self.payloads.store is not None:
            self._collecting = self._threads.start("dejaq-collect", self._payload_collector.run)
        if self.alone is not None and self.alone.leaving():
            self._threads.start("dejaq-bury", self._finish_told)
        # Of a cluster, topics come by `take`.
        used = [] if self.alone is None else self.alone.used()
        self._room.begin(self.store, used, reads_all=bool(self.settings.journal.erase_ms_max))

    def stop(self) -> None:
        """Finish what waits, take snapshots, close everything."""
        with self._lock:
            if not self._running:
                return
            self._running = False
        self.phase = "stopping"
        began_us = self.clock.now_us()
        self.standby.close()
        self._names.wait()  # what is being made or deleted needs the store and the workers
        runtimes = list(self._topics.values())
        self.carrier.close()
        self.backups.close()
        self.backups.archiver.finish()  # journals on a server are read while they are open
        self._payload_collector.stop()
        if self._erasing is not None:
            schedule, running = self._erasing
            schedule.stop()
            running.join()
        if self._collecting is not None:
            self._collecting.join()
        self.payloads.close()
        for runtime in runtimes:
            runtime.begin_close(handing_over.finish)
        for runtime in runtimes:
            runtime.wait_closed()
        for worker in self._workers:
            worker.stop()
        self.transactions.coordinator.close()
        self.snapshot_writer.shutdown()
        if self._opener is not None:
            self._opener.shutdown()
        self.ahead.close()
        self.history.close()
        if self.node is None:  # a node of a cluster did so before it left
            self.keys.keep_uses()
        self.keys.close()
        self._catalogue.close()
        self.backups.archiver.close()
        self.store.close()
        self.phase = "stopped"
        news.stopped((self.clock.now_us() - began_us) // 1_000)

    @property
    def workers(self) -> tuple[PartitionWorker, ...]:
        """The workers; none before the broker was started."""
        return tuple(self._workers)

    def _serve(self, name: str) -> ServedTopic:
        """The topic of this name, or shard of one, with all that its partitions do."""
        # First of all: if it is the same in the end, everything else is of this topic, too.
        number = self._catalogue.number(topic_of(name))
        topic, node = self._catalogue.get(topic_of(name)), self.node
        service = Service(
            name,
            self._catalogue.journals(topic.name),
            self.site if node is None else TopicOwnership(node, name),
            node is not None,
            self._catalogue.counts(topic.name),
            number,
            self._catalogue.ids_from(topic.name),
            lambda: self._catalogue.use(topic.name, number),
            lambda: self._catalogue.check_there(topic.name, number),
            lambda: self.site.stands_by,
        )
        counting = TopicCounts()
        hold = self.turn_hold if self.backups.archiver.holds_turns else None
        publish = None if hold is None else partial(hold.open, number)
        shards = len(self.served_names(topic))
        duties_of = self._roster.of_topic(topic, counting, shards, publish)
        return ServedTopic(topic, service, self._ports, counting, duties_of)

    def _grow_topic(self, name: str, count: int) -> None:  # a worker calls it: return at once
        self._threads.start("dejaq-grow", lambda: forecast.grow(self, name, count))

    def worker_of(self, topic: str, partition: int) -> PartitionWorker:
        """The worker that owns a partition. Raises TopicUnknown."""
        return self._worker(topic, self._catalogue.number(topic), partition)

    def _worker(self, topic: str, number: int, partition: int) -> PartitionWorker:
        shard = self.store.shard_of(topic, number, partition)
        return self._workers[shard % len(self._workers)]

    def change_settings(
        self, settings: BrokerSettings
    ) -> tuple[list[SettingChange], list[SettingChange]]:
        """Take over the settings that can change live.

        Returns:
            What has changed, and what differs but needs a new start.
        """
        changes = self.settings.adopt(settings)
        for runtime in self.runtimes():
            runtime.settings_changed(self.settings)
        return changes

    # --- topics -------------------------------------------------------------------------------

    def runtime(self, name: str) -> ServedTopic:
        """The served topic, or shard of one. Raises TopicUnknown, Unavailable, Elsewhere."""
        self.check_running()
        served = self._topics.get(name)
        if served is None:
            topic = self._catalogue.get(topic_of(name))
            if name not in self.served_names(topic):
                raise in_shards(topic, 1 if self.node is None else topic.spread)
            if self.node is not None and self.node.refusal(name, begins=True) is not None:
                raise self.node.elsewhere(name)
            served = self._begin(name)  # nobody used it here yet
        return served

    def view(self, name: str) -> ServedView:
        """The served topic, or shard of one, or a subscription of it. Raises as `runtime`."""
        topic, subscription = parse_subscription(name)
        return self.runtime(topic).view(subscription)

    def served_names(self, topic: Topic) -> tuple[str, ...]:
        """What is served apart: its shards in a cluster, the topic as a whole by a lone broker."""
        return (topic.name,) if self.node is None else topic.shards

    def shard_of(self, name: str, partition: object) -> str:
        """What is to be asked about a partition of a topic: the shard that has it."""
        named, subscription = parse_subscription(name)
        topic = self._catalogue.find(named)
        if topic is None or type(partition) is not int:
            return name
        names = self.served_names(topic)
        return subscription_name(names[partition % len(names)], subscription)

    def _served_of(self, name: str) -> ServedTopic:
        """What of a topic is served here: all of it, or a shard. Raises as `runtime`."""
        names = self.served_names(self._catalogue.get(name))
        here = (one for one in names if self.node is None or self.node.refusal(one) is None)
        return self.runtime(next(here, names[0]))

    def serves(self, name: str) -> bool:
        """True if the topic, or the shard of one, is served here, or will be when it is used."""
        if name in self._topics:
            return True
        topic = self._catalogue.find(topic_of(name))
        is_known = topic is not None and name in self.served_names(topic)
        return is_known and (self.node is None or self.node.refusal(name) is None)

    def take(self, name: str) -> None:
        """Serve a topic from now on, as its owner in a cluster. Raises TopicUnknown."""
        if self.site.refusal() is not None:
            return  # this broker was replaced, and the others are
        self.check_running()
        if name not in self._topics:
            self._begin(name).ring_all()

    def _begin(self, name: str) -> ServedTopic:
        """Serve a topic, or shard of one, from now on. Raises TopicUnknown, Unavailable."""
        runtime = self._serve(name)  # it reads nothing before it is rung
        with self._lock:
            self.check_running()
            # Whoever deletes it has looked here before, or will.
            if self.node is None and deleting.is_gone(runtime, self._catalogue, self.served_names):
                raise TopicUnknown(name)
            runtime = self._topics.setdefault(name, runtime)
        self._follow_catalogue([runtime])  # it may have changed since `_serve` read it
        runtime.attend()
        return runtime

    def read_ahead(self, name: str) -> bool:
        """Read a topic, or shard of one, that is to be served here soon, while another broker
        serves it. Returns at once: whether it is read, or cannot be. Raises TopicUnknown."""
        self.check_running()
        topic = self._catalogue.get(topic_of(name))
        return self.ahead.ask(name, topic, self._catalogue.journals(topic.name), self.store)

    def ask_to_read(self, url: str, name: str) -> Future[dict[str, Any]] | None:
        """Have another broker `read_ahead`; `is_read` is in its answer. None: nobody does so."""
        if self.peers is None or not self.store.reads_ahead:
            return None
        return self.peers.ask(url, READ_AHEAD, {"topic": name})

    def prepare_to_give(self, name: str) -> None:
        """Take snapshots of a topic that will be given, while it is still served."""
        served = self._topics.get(name)
        if served is not None:
            handing_over.prepare(served, self.clock)

    def give(self, name: str, *, drain: bool, seconds_max: float | None = None) -> None:
        """Serve a topic no more: somebody else will, or does already.

        Args:
            drain: finish what waits; False = let go at once.
            seconds_max: so long are journals waited for that hang; None = CLOSE_SECONDS_MAX.
        """
        with self._lock:
            runtime = self._topics.pop(name, None)
        if runtime is None:
            return
        if not drain:
            runtime.ownership.end()
            runtime.partitions.unpublish()
        close_one = handing_over.let_go if drain else handing_over.drop
        runtime.close(close_one, seconds_max)
        runtime.ownership.end()  # what hangs longer than that lands in somebody else's time
        runtime.partitions.unpublish()
        runtime.end_consumers(moved(name))

    def catalogue_changed(self, names: Collection[str] | None = None) -> None:
        """The catalogue was changed by another broker: serve by it.

        Args:
            names: topics that were changed; None = all may have been.
        """
        self.ahead.let_go_unless(lambda topic: self._catalogue.find(topic) is not None)
        served = self.runtimes()
        if names is not None:
            served = [one for one in served if topic_of(one.served_as) in names]
        self._follow_catalogue(served)

    def _follow_catalogue(self, served: list[ServedTopic]) -> None:
        """Serve these topics by what the catalogue says of them now, and close what is gone."""
        gone = [one for one in served if deleting.is_gone(one, self._catalogue, self.served_names)]
        for runtime in [one for one in served if one not in gone]:
            runtime.alter(partial(self._catalogue.find, topic_of(runtime.served_as)))
        self._endings.begin(gone)
        with self._lock:  # two threads may see that a topic is gone: one of them closes it
            ended = [one for one in gone if self._topics.get(one.served_as) is one]
            for runtime in ended:
                del self._topics[runtime.served_as]
        self._endings.close(ended)

    def has_let_go(self, name: str) -> bool:
        """True if nothing here writes to the journals of a topic, or shard, that is gone."""
        is_open = name in self._topics or self.ahead.has(name)
        return not is_open and self._endings.are_over(name)

    def runtimes(self) -> list[ServedTopic]:
        """Every topic that is served and was used since the start; none while the broker is not
        running."""
        return list(self._topics.values()) if self._running else []

    def serving(self) -> list[str]:
        """What is served here, or will be when it is used, the oldest first."""
        if not self._running:
            return []
        return list(self._topics) if self.alone is None else self.alone.names()

    def is_used(self, name: str) -> bool:
        """Whether a topic, or shard of one, may have journals."""
        try:
            return self._catalogue.is_used(topic_of(name))
        except TopicUnknown:
            return False

    @property
    def topic_count(self) -> int:
        """How many topics there are: of a broker that is alone; how many it serves, of others."""
        if not self._running:
            return 0
        return len(self._topics) if self.alone is None else self.alone.count

    def create_topic(self, topic: Topic, *, exist_ok: bool = False) -> Topic:
        """Make a topic. Raises BadRequest, TopicExists."""
        self.check_running()
        self.site.check_changes()
        topic = with_births(topic.check())
        if self.node is not None and topic.name in self._catalogue.changing():
            self.node.settled(topic.name)
        with self._names.held(topic.name):
            self.check_running()
            self.history.check(topic.history)
            self.payloads.check(topic.cold_after_ms)
            if self.alone is not None:
                deleting.finish(topic.name, self.store, self.alone, self.tell_all)
                if self.alone.find(topic.name) is None:
                    self.history.drop(topic.name)
            made = self._catalogue.create(topic, exist_ok=exist_ok)
        if self.node is not None:
            for name in made.shards:
                self.node.placed(name)
        self._attend(made)
        return made

    def alter_topic(self, name: str, changes: Changes) -> Topic:
        """Change settings of a topic; they hold at once. Raises BadRequest, TopicUnknown."""
        self.site.check_changes()
        with self._names.held(name):
            self.check_running()
            self.history.check(not callable(changes) and changes.get("history"))
            self.payloads.check(0 if callable(changes) else changes.get("cold_after_ms"))
            topic = self._catalogue.alter(name, changes)
            served = [one for one in map(self._topics.get, self.served_names(topic)) if one]
            self._follow_catalogue(served)
        is_awaited = callable(changes) or AWAITED & changes.keys()
        for one in served if is_awaited else ():
            one.wait_subscribed()
        self._attend(topic)
        return topic

    def _attend(self, topic: Topic) -> None:
        """Serve a topic that nobody used yet if it has subscriptions that end by themselves."""
        if has_ephemeral(topic.subscriptions):
            for name in filter(self.serves, self.served_names(topic)):
                self.runtime(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its messages. Raises TopicUnknown.

        Raises:
            Unavailable: it is deleted, but not everybody has let go of it yet, or knows of its
                transactions; the same call again waits for them.
        """
        if self.alone is None:
            self.check_running()
            self._catalogue.delete(name)
            self.catalogue_changed()
            assert self.node is not None
            self.node.settled(name)
            return
        with self._names.held(name):
            self.check_running()
            if self.alone.row_of(name) is None:
                self.alone.delete(name)
            with self._lock:
                runtime = self._topics.pop(name, None)
            known = {}
            if runtime is not None:  # somebody used it
                self._endings.close([runtime])
                known = runtime.given()
            deleting.finish(name, self.store, self.alone, self.tell_all, known)
        self._payload_collector.look_soon()

    def catalogue_state(self) -> CatalogueState:
        """A copy of all of the catalogue, as of now. Raises JournalDamaged, Unavailable."""
        return self._catalogue.state()

    def payload_owner(self, name: str) -> str:
        """As ServedTopic.payload_owner, whichever broker serves it. Raises TopicUnknown."""
        return f"{self._catalogue.number(topic_of(name))}-{name}"

    def erase_payloads(self, names: Sequence[str]) -> None:
        """Delete payloads now, though backups may have their messages. Raises Unavailable."""
        self._payload_collector.erase(names)

    def _find_payload_owner(self, owner: str) -> ServedTopic | bool:
        """As PayloadCollector's `find_owner`; `owner` as ServedTopic.payload_owner."""
        number, _, name = owner.partition("-")
        topic = self._catalogue.find(topic_of(name))
        try:
            is_there = topic is not None and str(self._catalogue.number(topic.name)) == number
        except TopicUnknown:
            is_there = False
        if not is_there:
            # Of a cluster, another broker may have made the topic a moment ago.
            return self.alone is None
        if self.alone is not None and topic is not None:
            return self.runtime(topic.name)  # also what a shard had, in a cluster that was followed
        return self.runtime(name) if self.serves(name) else True

    def _finish_told(self) -> None:
        """Finish deletions that a crash has cut short, once all know what was decided there."""
        assert self.alone is not None
        deleting.finish_all(self.store, self.alone, self.tell_all, self._names.held)

    def tell_all(self, row: TopicRow) -> None:
        """Have everybody know what was decided in a topic that is gone. Raises Unavailable."""
        self.check_running()
        deleting.tell_all(row, self.transactions.coordinator.tell_left, self._threads)

    def topics(self) -> list[Topic]:
        """Every topic, by name."""
        self.check_running()
        return self._catalogue.all()

    def topic(self, name: str, *, newest: bool = False) -> Topic:
        """As `Catalogue.seen`; `newest`: as of now, whoever changed it."""
        self.check_running()
        return self._catalogue.seen(name, newest=newest)

    def check_running(self) -> None:
        """Raise Unavailable unless the broker takes calls, NotActive if it was replaced."""
        if not self._running:
            raise Unavailable("the broker is not running", 1_000)
        if self._exchange:
            raise Unavailable(self._exchange, 1_000)
        self.site.check_reads()

    # --- two sites ----------------------------------------------------------------------------

    def replaced(self, fence: Fence) -> None:
        """Serve nothing any more: a standby has taken the place of this broker. Any thread."""
        self.site.replace(fence)
        self._payload_collector.stop()  # what ended here may not have ended there
        with self._lock:
            gone, self._topics = list(self._topics.values()), {}
        take_out(self.store, fence, gone, self.site)

    def serve_as_active(self) -> None:
        """Serve what was followed: this broker was promoted. Returns when all partitions do."""
        self.site.become_active()
        if self.alone is not None:
            deleting.finish_all(self.store, self.alone)
        for runtime in self.runtimes():
            runtime.ring_all()
        self._begin_duties()
        for runtime in self.runtimes():
            runtime.wait_stepped()

    def exchange_store(self, exchanged: Callable[[], JournalStore]) -> None:
        """Have other journals from now on, those of a standby that was filled anew. Nothing can be
        asked meanwhile; if it fails, nothing ever, until the broker is started again.

        Args:
            exchanged: opens the other ones; the ones before are closed.
        """
        with self._lock:  # as long as this has words, nothing is answered
            self._exchange = "what this standby has is exchanged for what a newer backup has"
            gone, self._topics = list(self._topics.values()), {}
        for topic in gone:
            topic.begin_close(lambda one: one.close(Unavailable(self._exchange, 1_000)))
        for topic in gone:
            topic.wait_closed()
        self._catalogue.close()
        self.keys.close()
        self.store.close()
        self.store = exchanged()
        self._read_store()
        for worker in self._workers:
            if self.alone is not None:
                worker.note_used = self.alone.use_all
        with self._lock:
            self._exchange = ""
        self._ring_used()

    def follow_change(self, change: Change, revision: int) -> None:
        """Take over a change of the catalogue of the broker that is followed."""
        assert self.alone is not None
        follow_change(self, self.alone, change, revision)

    def follow_entries(
        self, topic: str, partition: int, found: Sequence[tuple[int, Entry]]
    ) -> Future[None]:
        """Take over entries of a partition, each behind its position; done when durable."""
        assert self.alone is not None
        return follow_entries(self, self.alone, topic, partition, found)

    # --- messages -----------------------------------------------------------------------------

    def open_write(
        self, stream: WriteStream, sender: Sender = NOBODY, account: Account | None = None
    ) -> Writer:
        """A stream of batches of one sender, for whose `account` quotas count; None = they do not.
        Raises TopicUnknown, BadRequest, Refused."""
        self.site.check_changes()
        runtime, stage = self.runtime(parse_subscription(stream.topic)[0]), None
        if stream.transaction:
            stage = self.transactions.stage(stream.transaction, stream.op, sender)
            stage = StageOf(stage.transaction, stage.until_ms, account)
        return Writer(
            stream,
            runtime,
            self.clock,
            lambda: self.settings.dispatch.inbox_bytes_max,
            stage,
            sender,
            self.view(stream.topic),
        )

    def is_served_by(self, writer: Writer) -> bool:
        """Whether an open stream writes to what is served here now under that name."""
        return self._running and self._topics.get(writer.topic.served_as) is writer.topic

    def open_consume(self, options: ConsumeStream, sink: Sink) -> ConsumerSession:
        """A consumer, without credit yet. Raises TopicUnknown, ResourceExhausted."""
        self.site.check_changes()
        return ConsumerSession(
            self.view(options.topic), options, sink, self.clock, self.settings.clock
        )

    # --- calls --------------------------------------------------------------------------------

    def call(
        self, name: str, body: dict[str, Any] | None = None, by: Requester = ANYBODY
    ) -> dict[str, Any]:
        """Make a call of the table in access/calls.py, and wait for its answer.

        Args:
            body: checked against the call's row; it is not changed.
            by: who asks. Whether it may is for the server to check, before.

        Raises:
            BadRequest, TopicUnknown, Unavailable, Elsewhere; others as the call says.
        """
        reply = calls.answer(self, name, body or {}, by)
        return reply.result() if isinstance(reply, Future) else reply

    def ask(
        self, name: str, body: dict[str, Any] | None = None, by: Requester = ANYBODY
    ) -> Future[dict[str, Any]]:
        """As `call`, but a call that waits for several partitions answers later. Raises the same
        errors, of these calls some by the future."""
        reply = calls.answer(self, name, body or {}, by)
        if isinstance(reply, Future):
            return reply
        done: Future[dict[str, Any]] = Future()
        done.set_result(reply)
        return done

    def read(self, op: str, ticket: dict[str, Any], by: Requester = ANYBODY) -> calls.Rows:
        """Make a call that is answered with batches: `peek`, `scan`, `claim` or `history`.

        Returns:
            The schema, and the batches as they are read; `peek` has one.

        Raises:
            BadRequest, TopicUnknown, Unavailable, Elsewhere, Refused.
        """
        return calls.rows(self, op, ticket, by)

    def cluster(self, topic: str = "", *, servers: bool = False) -> dict[str, Any]:
        """Which brokers there are, and which topic each serves.

        Args:
            topic: this one alone; "" = all.
            servers: tell of the journal's servers, too, as `servers`, and of a topic's copies on
                them, as `copies` (journal/records/nats/status.py); a second if one is away.

        Returns:
            `node`, `nodes`, `topics` with `node` ("" = nobody now), as `ClusterPort.describe`; a
            broker that is alone has no name and lists nothing. Raises TopicUnknown.
        """
        if topic:
            self.topic(topic)
        description: dict[str, Any] = {"node": "", "coordinator": "", "nodes": [], "topics": []}
        if self.node is not None:
            description = self.node.describe(topic)
        if servers:
            description["servers"] = self.store.servers()
        if servers and topic:
            count = self.topic(topic).partitions
            description["copies"] = self.store.copies(self._catalogue.journals(topic), count)
        return description

    def consumers(self, name: str) -> list[dict[str, object]]:
        """Who consumes a topic now. Raises TopicUnknown, Unavailable, Elsewhere."""
        return self.view(name).dispatcher.describe()

    def journal_servers(self) -> list[dict[str, Any]]:
        """The servers that keep the journals, as they were last seen; see JournalStore.servers."""
        return self.store.servers(now=False) if self._running else []

    def act_on_servers(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """`remove_node`, `repair_node` (cluster/care.py), `check_cluster`. Raises Refused."""
        if self.node is None:
            raise Refused("this broker is alone")
        return self.node.act(name, body)

    def home(self, topic: str) -> str:
        """Where a topic is served: the URL of that broker, "" = here, or nobody knows."""
        if self.node is None or self.serves(parse_subscription(topic)[0]):
            return ""
        other = self.node.elsewhere(parse_subscription(topic)[0])
        return other.url if isinstance(other, Elsewhere) else ""

    @property
    def is_shared(self) -> bool:
        """True for one of several brokers of a cluster."""
        return self.node is not None
