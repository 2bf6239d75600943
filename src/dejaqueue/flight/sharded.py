"""Topics in shards for callers who do not follow: the broker that is asked asks each shard.

    brokers = ShardedBrokers(broker)
    brokers.of(bearer).call("counts", {"topic": "reminders"})      # as Broker.call, of all shards

Room: flight; http/ uses it, too. Our own client, with the caller's own key, behind the broker's
calls: whoever serves a broker can serve this.
Holds: nothing is handed over early: shards send what is due and nothing ahead; credit that is
given is shared out so that every shard may send, so at most one row for each shard less one comes
beyond it.
See: client/shards/calls.py, client/shards/writing.py; docs/adr/0016-a-topic-in-shards.md.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dejaqueue.access.calls import ACTIONS
from dejaqueue.access.quotas import Account
from dejaqueue.access.senders import ANYBODY, NOBODY, Requester, Sender
from dejaqueue.broker.streams import ReplyTo, Sink
from dejaqueue.client.alarm import Alarm
from dejaqueue.client.credentials import Tls
from dejaqueue.client.flight_transport import FlightTransport
from dejaqueue.client.routed_transport import FOLLOW_MS_MAX, RoutedTransport
from dejaqueue.client.transport import WriteChannel
from dejaqueue.clock import SteadyClock
from dejaqueue.errors import DejaQError, Elsewhere, Refused, Unavailable
from dejaqueue.flight.sharded_session import ShardedSession
from dejaqueue.model import Topic
from dejaqueue.schema.checks import check_schema
from dejaqueue.topic_names import parse_subscription
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream
from dejaqueue.wire.frames import Reply

if TYPE_CHECKING:
    from dejaqueue.broker.broker import Broker

CALLERS_MAX = 64
"""Callers whose connections are kept; the one that was idle for longest makes room."""
TARGETS_MAX = 256
AGAIN_MS = 50
"""Between two attempts to send to a shard that is on its way."""


class ShardedBrokers:
    """Brokers of all shards, one for each caller.

    Args:
        broker: the one that is asked.
        tls: for brokers at `dejaqs://`; None = the system's certificates are trusted.
    """

    def __init__(self, broker: Broker, tls: Tls | None = None) -> None:
        self._broker = broker
        self._tls = tls
        self._lock = threading.Lock()
        self._of: OrderedDict[str | None, ShardedBroker] = OrderedDict()
        self._retired: list[ShardedBroker] = []
        self._closed = False

    def of(self, bearer: str | None) -> ShardedBroker:
        """For the caller with this API key. Raises Unavailable."""
        crowded = None
        with self._lock:
            if self._closed:
                raise Unavailable("the broker is stopping", 1_000)
            sharded = self._of.pop(bearer, None)
            if sharded is None:
                sharded = ShardedBroker(self._broker, self._connect(bearer))
            self._of[bearer] = sharded
            if len(self._of) > CALLERS_MAX:
                _, crowded = self._of.popitem(last=False)
        if crowded is not None:
            threading.Thread(target=crowded.close, name="dejaq-shards", daemon=True).start()
        return sharded

    def _connect(self, bearer: str | None) -> RoutedTransport:
        known = self._broker.cluster()
        # This broker first: it tells where shards are, whoever else hangs.
        nodes = sorted(known["nodes"], key=lambda node: node["node"] != known["node"])
        urls = [str(node["url"]) for node in nodes]
        if not urls:
            raise Unavailable("this broker has lost touch with the cluster", 100)
        return RoutedTransport(urls, partial(self._transport, bearer))

    def _transport(self, bearer: str | None, url: str) -> FlightTransport:
        """A connection to a broker. What serves in plain text has files for TLS all the same."""
        tls = self._tls if url.startswith("dejaqs:") else None
        return FlightTransport(url, bearer, tls, follows=True, watches_consumers=True)

    def flows(self) -> list[Any]:
        """What HTTP requests of callers share."""
        with self._lock:
            return [broker.flow for broker in self._of.values() if broker.flow is not None]

    def renew(self) -> None:
        """Connect with the files as they are now; what is open goes on, until the next time."""
        with self._lock:
            past, self._retired = self._retired, list(self._of.values())
            self._of = OrderedDict()
        for broker in past:
            broker.close()

    def close(self) -> None:
        """End what is passed on. Twice is fine."""
        with self._lock:
            self._closed = True
            brokers, self._of = [*self._retired, *self._of.values()], OrderedDict()
            self._retired = []
        for broker in brokers:
            broker.close()


class ShardedBroker:
    """What callers of a broker call, for topics in shards.

    Attributes:
        clock, settings, keys, payloads: of the broker that is asked.
        flow: what HTTP requests share (http/flow.py).
    """

    def __init__(self, broker: Broker, transport: RoutedTransport) -> None:
        self._broker = broker
        self._transport = transport
        self._alarm = Alarm(SteadyClock(), "dejaq-shards")
        self._apart = ThreadPoolExecutor(1, thread_name_prefix="dejaq-shards")
        self._lock = threading.Lock()
        self._targets: OrderedDict[WriteStream, ShardedTarget] = OrderedDict()
        self._runtimes: dict[str, ShardedTopic] = {}
        self.clock = broker.clock
        self.settings = broker.settings
        self.keys = broker.keys
        self.payloads = broker.payloads
        self.flow: Any = None

    # --- topics: any broker knows them ----------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """The topic of this name, or TopicUnknown."""
        return self._broker.topic(name)

    def alter_topic(self, name: str, changes: dict[str, Any]) -> Topic:
        """Change settings of a topic. Raises BadRequest, TopicUnknown."""
        return self._broker.alter_topic(name, changes)

    def runtime(self, name: str) -> ShardedTopic:
        """The topic as if it were served here. Raises TopicUnknown."""
        topic = self._broker.topic(name)
        with self._lock:
            runtime = self._runtimes.get(name)
            if runtime is None or runtime.topic.spread != topic.spread:
                runtime = self._runtimes[name] = ShardedTopic(topic)
            return runtime

    def view(self, name: str) -> ShardedTopic:
        """The topic that is meant, also by the name of a subscription. Raises as `runtime`."""
        return self.runtime(parse_subscription(name)[0])

    def _learn(self, name: str) -> Topic:
        """Tell the transport what this broker knows of where the shards are."""
        topic = self._broker.topic(name)
        known = self._broker.cluster()
        here = next((one["url"] for one in known["nodes"] if one["node"] == known["node"]), "")
        self._transport.learn_shards(topic, lambda shard: self._broker.home(shard) or here)
        return topic

    def consumers(self, name: str) -> list[dict[str, Any]]:
        """As Broker.consumers."""
        return list(self.call("stats", {"topic": name})["consumers"])

    # --- streams --------------------------------------------------------------------------------

    def open_stream(self, stream: WriteStream) -> ShardedTarget:
        """A stream of batches; its opener closes it."""
        self._learn(stream.topic)
        return ShardedTarget(stream, self._transport.open_write, self._alarm)

    def open_write(
        self, stream: WriteStream, _sender: Sender = NOBODY, _account: Account | None = None
    ) -> ShardedTarget:
        """A stream of batches that others share, and nobody has to close. Whose it is the shards
        see for themselves, by the caller's key, and count it for its quotas."""
        self._learn(stream.topic)
        crowded = None
        with self._lock:
            target = self._targets.pop(stream, None)
            if target is None:
                target = ShardedTarget(stream, self._transport.open_write, self._alarm, self._apart)
            self._targets[stream] = target
            if len(self._targets) > TARGETS_MAX:
                _, crowded = self._targets.popitem(last=False)
        if crowded is not None:
            threading.Thread(target=crowded.close, name="dejaq-shards", daemon=True).start()
        return target

    def open_consume(self, options: ConsumeStream, sink: Sink) -> ShardedSession:
        """A consumer of all shards, without credit yet. Raises TopicUnknown, Unavailable."""
        topic = self._learn(options.topic)
        spread = topic.spread
        session = ShardedSession(self._transport, options, spread, sink, self.clock, self._alarm)
        session.gives_runs = topic.group_runs
        return session

    # --- calls ----------------------------------------------------------------------------------

    def call(
        self, name: str, body: dict[str, Any] | None = None, _by: Requester = ANYBODY
    ) -> dict[str, Any]:
        """As Broker.call. The shards see by the caller's key what it may do; raises what they
        say."""
        return self.ask(name, body).result()

    def ask(
        self, name: str, body: dict[str, Any] | None = None, _by: Requester = ANYBODY
    ) -> Future[dict[str, Any]]:
        """As Broker.ask."""
        return self._transport.action(name, body or {}, repeats=ACTIONS[name].repeats)

    def read(
        self, op: str, ticket: dict[str, Any], _by: Requester = ANYBODY
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """As Broker.read."""
        table = self._transport.rows({**ticket, "op": op}).result()
        batches = table.combine_chunks().to_batches()
        if not batches:  # a table without rows has none, and a page is one batch
            empty = pa.RecordBatch.from_pylist([], table.schema.remove_metadata())
            batches = [empty.replace_schema_metadata(table.schema.metadata)]
        return table.schema, iter(batches)

    def close(self) -> None:
        """End what is passed on. Twice is fine."""
        self._alarm.stop()
        self._apart.shutdown(wait=False, cancel_futures=True)
        self._transport.close()


@dataclass(frozen=True, slots=True, eq=False)
class ShardedTopic:
    """A topic in shards, as far as callers of `Broker.runtime` look into it."""

    topic: Topic


class ShardedTarget:
    """A stream of batches to all shards, as a Writer is to a topic.

    A batch that could not be carried out because a shard moved is sent again, as long as a shard
    may be on its way; messages to send are, whatever broke, because the shards recognise them.

    Args:
        alarm: for pauses.
        apart: where batches are sent, for callers who must not wait. None = the caller's thread.
    """

    def __init__(
        self,
        stream: WriteStream,
        open_write: Callable[[WriteStream], WriteChannel],
        alarm: Alarm,
        apart: Executor | None = None,
    ) -> None:
        # Numbers of those who have no producer's name need not differ from each other.
        self._numbers = None if stream.producer else itertools.count(1)
        self._is_known = stream.op == "enqueue" and stream.acks != "none"
        if self._is_known and not stream.producer:
            stream = replace(stream, producer=f"onward-{uuid.uuid4().hex}")
        self._stream = stream
        self._open_write = open_write
        self._alarm = alarm
        self._apart = apart
        self._clock = SteadyClock()
        self._lock = threading.Lock()
        self._channels: dict[pa.Schema, WriteChannel] = {}
        self._under_way: set[int] = set()

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise BadRequest if batches of this schema can't be what the stream is for."""
        check_schema(self._stream.op, schema)

    def submit(self, number: int, batch: pa.RecordBatch, reply: ReplyTo) -> None:
        """Take one batch. `reply` is called once, unless the stream has acks=none."""
        sent_as = number if self._numbers is None else next(self._numbers) % (1 << 32)
        until_us = self._clock.now_us() + FOLLOW_MS_MAX * 1_000
        sending = _Sending(number, sent_as, batch, reply, until_us)
        if self._apart is None:
            self._send(sending)
            return
        try:
            self._apart.submit(self._send, sending)
        except RuntimeError:  # closed meanwhile
            gone = Unavailable("the broker is stopping", 1_000)
            reply(Reply(number, batch.num_rows, error=gone))

    def _send(self, sending: _Sending) -> None:
        channel: WriteChannel | None = None
        try:
            channel = self._channel(sending)
            answer = channel.send(sending.sent_as, sending.batch)
        except DejaQError as error:
            answer = Future()
            answer.set_exception(error)
        answer.add_done_callback(partial(self._answered, channel, sending))

    def _channel(self, sending: _Sending) -> WriteChannel:
        with self._lock:
            if sending.sent_as in self._under_way:
                raise Refused(f"batch {sending.number} is on its way already")
            channel = self._channels.get(sending.batch.schema)
            if channel is None:
                channel = self._open_write(self._stream)
                self._channels[sending.batch.schema] = channel
            self._under_way.add(sending.sent_as)
            return channel

    def _answered(
        self, channel: WriteChannel | None, sending: _Sending, found: Future[Reply]
    ) -> None:
        error = found.exception() or found.result().error
        broken = None
        with self._lock:
            if channel is not None:
                self._under_way.discard(sending.sent_as)
            if isinstance(error, Unavailable):
                schema = sending.batch.schema
                if self._channels.get(schema) is channel:
                    broken = self._channels.pop(schema, None)
        if broken is not None:
            threading.Thread(target=broken.close, name="dejaq-shards", daemon=True).start()
        again = isinstance(error, Elsewhere) or (self._is_known and isinstance(error, Unavailable))
        if again and self._clock.now_us() < sending.until_us:
            self._alarm.after(AGAIN_MS, partial(self._send_apart, sending))
            return
        if self._stream.acks != "none":
            sending.reply(_reply_to(sending, found))
        if self._stream.transaction and self._apart is not None:
            self._leave()

    def _leave(self) -> None:
        """Close what nobody would: few batches follow in the same transaction, and then none."""
        with self._lock:
            left = {} if self._under_way else self._channels
            self._channels = self._channels if self._under_way else {}
        for channel in left.values():
            threading.Thread(target=channel.close, name="dejaq-shards", daemon=True).start()

    def _send_apart(self, sending: _Sending) -> None:
        """On a thread that may wait."""
        send = partial(self._send, sending)
        threading.Thread(target=send, name="dejaq-shards", daemon=True).start()

    def close(self) -> None:
        """Wait for replies of what was sent, then close."""
        with self._lock:
            channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            channel.close()


@dataclass(frozen=True, slots=True)
class _Sending:
    """A batch on its way.

    Attributes:
        number, sent_as: the caller's number of it, and ours.
        until_us: how long it is sent again.
    """

    number: int
    sent_as: int
    batch: pa.RecordBatch
    reply: ReplyTo
    until_us: int


def _reply_to(sending: _Sending, found: Future[Reply]) -> Reply:
    """The reply under the caller's own number."""
    error, rows = found.exception(), sending.batch.num_rows
    if error is None:
        return replace(found.result(), number=sending.number, rows=rows)
    if not isinstance(error, DejaQError):
        error = Unavailable(f"the stream to a shard broke: {error!r}")
    return Reply(sending.number, rows, error=error)
