"""Connections to the brokers of a cluster: each call goes to the broker that serves its topic.

Room: client. Begins at any of the addresses it was given, or that a name has, and follows what
brokers answer; a broker that is alone answers everything itself, and then this is one connection.
Holds: a call is only made again by itself if a broker said that it was not carried out (Elsewhere),
or if it may be made twice and whom it was made to gives no sign of life; where nobody answers, who
called decides (link.py, consuming/consume_core.py).
See: errors.Elsewhere; docs/guides/cluster.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from dejaqueue.client.broker_names import Names, unheard
from dejaqueue.client.credentials import Tls
from dejaqueue.client.flight_transport import FlightTransport, flight_location
from dejaqueue.client.shards.calls import ShardCalls
from dejaqueue.client.shards.writing import ShardedWriteChannel
from dejaqueue.client.transport import ConsumeChannel, Delivery, RowChannel, WriteChannel
from dejaqueue.clock import SteadyClock, SystemClock, Wake
from dejaqueue.errors import BadRequest, DejaQError, Elsewhere, Unavailable
from dejaqueue.model import Topic
from dejaqueue.topic_names import parse_subscription, shard_name, topic_of
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream
from dejaqueue.wire.frames import Pong, Reply

FOLLOW_MS_MAX = 15_000
"""How long a call follows a topic that is on its way to another broker."""
URLS_MAX = 64
SILENT_RETRY_MS = 200
"""Between two questions for a topic whose broker gives no sign of life."""
LOOK_UP_US = 1_000_000
"""A name is not looked up again sooner: a resolver is no place to ask in a circle."""

Answer = TypeVar("Answer")
Batch = TypeVar("Batch", contravariant=True)
Connect = Callable[[str], FlightTransport]
LookUp = Callable[[], list[str]]
"""The brokers that there are now, one at least; waits for them. Raises Unavailable."""


def urls_of(text: str) -> list[str]:
    """The addresses in `dejaq://a:7464,b:7464`. Raises BadRequest.

    >>> urls_of("dejaq://a:1,b")
    ['dejaq://a:1', 'dejaq://b']
    """
    scheme, mark, rest = text.partition("://")
    if not mark:
        raise BadRequest("url", "dejaq://host:port or dejaqs://host:port", text)
    urls = [f"{scheme}://{address.strip()}" for address in rest.split(",")]
    for url in urls:
        flight_location(url)
    return urls


def _topic_of(values: dict[str, Any]) -> str:
    """The topic that a call is about, "" = none."""
    named = values.get("topic") or values.get("name") or ""
    transaction = values.get("transaction")
    if not named and isinstance(transaction, str):
        named = transaction.partition("/")[0]  # as broker/transactions/transactions.py makes names
    return named if isinstance(named, str) else ""


class _Channel(Protocol[Batch]):
    def send(self, number: int, batch: Batch) -> Future[Reply]: ...
    def close(self) -> None: ...


class _RoutedWriteChannel(Generic[Batch]):
    """A write stream that tells where its topic went."""

    def __init__(
        self, inner: _Channel[Batch], learn: Callable[[BaseException | None], None]
    ) -> None:
        self._inner = inner
        self._learn = learn

    def send(self, number: int, batch: Batch) -> Future[Reply]:
        """Send a batch; its reply."""
        reply = self._inner.send(number, batch)
        reply.add_done_callback(self._look)
        return reply

    def _look(self, reply: Future[Reply]) -> None:
        self._learn(reply.exception() or reply.result().error)

    def close(self) -> None:
        """Wait for replies of what was sent, then close. Twice is fine."""
        self._inner.close()


class RoutedTransport:
    """Connections to all brokers that are needed.

    Args:
        urls: where to begin, at least one if they are not looked up.
        connect: opens a connection to one broker; must not wait for it.
        look_up: says where brokers are, before the first call and when one is lost.
    """

    shares_clock = False

    def __init__(self, urls: list[str], connect: Connect, look_up: LookUp | None = None) -> None:
        self._urls = list(urls)
        self._connect = connect
        self._look_up = look_up
        self._looking = threading.Lock()
        self._looked_us: int | None = None
        self._missed = ""
        self._found: list[str] = []
        """The brokers of the last look; others are known by what brokers answered."""
        self._gone: set[str] = set()
        """Brokers of looks before it. They may serve still, so they are kept until they do not."""
        self._first = urls[0] if urls else ""
        self._homes: dict[str, str] = {}
        self._spreads: dict[str, int] = {}
        """Topics that are served in shards, and in how many."""
        self._waiters: ThreadPoolExecutor | None = None
        self._open: dict[str, FlightTransport] = {}
        self._mutex = threading.Lock()
        self._closing = Wake()
        self._closed = False
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="dejaq-follow")
        if self._first:
            self._transport(self._first)

    # --- routes -------------------------------------------------------------------------------

    def _transport(self, url: str) -> FlightTransport:
        with self._mutex:
            if self._closed:
                raise Unavailable("the client is closed")
            transport = self._open.get(url)
            if transport is None:
                transport = self._open[url] = self._connect(url)
            return transport

    def _route(self, topic: str) -> tuple[str, FlightTransport]:
        url = self._homes.get(topic) or self._first or self._looked_up()
        return url, self._transport(url)

    def _looked_up(self) -> str:
        """Where to begin, of a client that has found nobody yet. Raises Unavailable."""
        self._look()
        return self._first

    def _look(self) -> None:
        """Ask where brokers are, unless that was done just now. Raises Unavailable."""
        if self._look_up is None:
            return
        clock = SteadyClock()
        with self._looking:  # who comes meanwhile has the same answer
            looked_us = self._looked_us
            if looked_us is not None and clock.now_us() < looked_us + LOOK_UP_US:
                if self._first:
                    return
                raise unheard(self._missed)
            try:
                found = self._look_up()
            except Unavailable as nobody:
                self._missed = str(nobody)
                raise
            finally:
                self._looked_us = clock.now_us()
            self._use(found)

    def _look_again(self) -> None:
        """The same where the brokers that are known do if there is no answer."""
        with suppress(Unavailable):
            self._look()

    def _use(self, found: list[str]) -> None:
        """Know these brokers, and those that brokers told of."""
        with self._mutex:
            self._gone = (self._gone | set(self._found)) - set(found)
            told = [url for url in self._urls if url not in self._found and url not in found]
            self._found, self._urls = found, found + told
            if self._first not in self._urls:
                self._first = found[0]

    def _learn(self, topic: str, url: str, error: BaseException | None) -> None:
        """What a call to `url` about a topic ended with."""
        if error is None or not isinstance(error, Unavailable):
            return
        if self._look_up is not None and not isinstance(error, Elsewhere):
            self._lost(url)
        with self._mutex:
            if isinstance(error, Elsewhere) and error.spread:
                self._spreads[topic_of(topic)] = error.spread
                return
            if isinstance(error, Elsewhere) and error.url:
                self._homes[topic] = error.url
                if error.url not in self._urls and len(self._urls) < URLS_MAX:
                    self._urls.append(error.url)
                return
            if self._homes.get(topic) == url:
                del self._homes[topic]
            if url == self._first and not isinstance(error, Elsewhere):
                place = self._urls.index(url)
                self._first = self._urls[(place + 1) % len(self._urls)]

    def _is_alone(self, url: str) -> bool:
        """Whether there is nobody to ask in place of this broker."""
        with self._mutex:
            return self._look_up is None and all(one == url for one in self._urls)

    def _forget(self, topic: str, url: str) -> None:
        """Ask whoever is there for a topic that this broker is said to serve."""
        with self._mutex:
            if self._homes.get(topic) == url:
                del self._homes[topic]

    def _lost(self, url: str) -> None:
        """A broker does not answer: look who is there, and let go of it if its name did so."""
        with self._mutex:
            transport = self._open.pop(url, None) if url in self._gone else None
            self._gone.discard(url)
        with suppress(RuntimeError):  # closed meanwhile
            if transport is not None:
                self._threads.submit(transport.close)
            self._threads.submit(self._look_again)

    def learn_shards(self, topic: Topic, home: Callable[[str], str]) -> None:
        """Take over what somebody knows: in how many shards a topic is, and where each is ("" =
        nobody knows)."""
        with self._mutex:
            self._spreads[topic.name] = topic.spread
        for name in topic.shards:
            if url := home(name):
                with self._mutex:
                    self._homes[name] = url

    # --- streams ------------------------------------------------------------------------------

    def open_write(self, stream: WriteStream, *, shared: bool = False) -> WriteChannel:
        """A stream of batches to the broker of its topic; `shared` with others to that broker.
        Raises Unavailable, BadRequest."""
        spread = self._spreads.get(stream.topic, 1)
        if spread > 1:
            return self._open_sharded(stream)
        return self._open_one(stream, shared=shared)

    def _open_sharded(self, stream: WriteStream) -> WriteChannel:
        """A stream to all shards of a topic."""
        named, _ = parse_subscription(stream.topic)
        answer = self.action("describe_topic", {"name": named}, repeats=True).result()
        # How far ahead a message may be due is for the brokers' clocks to say.
        topic = replace(Topic.from_answer(answer), name=stream.topic, max_delay_ms=0)
        if topic.spread == 1:
            return self._open_one(stream)
        return ShardedWriteChannel(stream, topic, self._open_one, SystemClock().now_ms)

    def _open_one(self, stream: WriteStream, *, shared: bool = False) -> WriteChannel:
        url, transport = self._route(stream.topic)
        learn = partial(self._learn, stream.topic, url)
        return _RoutedWriteChannel(transport.open_write(stream, shared=shared), learn)

    def open_lane(self, stream: WriteStream, *, has_fields: bool = False) -> RowChannel | None:
        """A channel for single messages to the broker of their topic; None = they go as batches.
        Raises Unavailable, BadRequest."""
        if self._spreads.get(stream.topic, 1) > 1:
            return None
        url, transport = self._route(stream.topic)
        channel = transport.open_lane(stream, has_fields=has_fields)
        if channel is None:
            return None
        return _RoutedWriteChannel(channel, partial(self._learn, stream.topic, url))

    def open_consume(
        self,
        stream: ConsumeStream,
        on_delivery: Callable[[Delivery], None],
        on_pong: Callable[[Pong], None],
        on_end: Callable[[DejaQError | None], None],
    ) -> ConsumeChannel:
        """Open a consumer at the broker of its topic. Raises Unavailable, BadRequest."""
        url, transport = self._route(stream.topic)

        def ended(error: DejaQError | None) -> None:
            self._learn(stream.topic, url, error)
            on_end(error)

        try:
            return transport.open_consume(stream, on_delivery, on_pong, ended)
        except DejaQError as error:
            self._learn(stream.topic, url, error)
            raise

    # --- calls --------------------------------------------------------------------------------

    def _call(
        self,
        topic: str,
        call: Callable[[FlightTransport, bool], Future[Answer]],
        *,
        repeats: bool,
    ) -> Future[Answer]:
        """One call to the broker of a topic, which is followed while it moves. If there is nobody
        where it was looked for, the others that are known are asked.

        Args:
            call: makes it at a broker; if told so, ends with Unavailable (`is_silent`) when that
                broker gives no sign of life.
            repeats: it may be made twice, so that then the others are asked, too.
        """
        answer: Future[Answer] = Future()
        clock, tried, silent = SteadyClock(), set[str](), dict[str, Unavailable]()
        until_us = clock.now_us() + FOLLOW_MS_MAX * 1_000

        def attempt() -> None:
            try:
                url, transport = self._route(topic)
                found = call(transport, repeats)
                found.add_done_callback(lambda found: done(url, found))
            except DejaQError as error:
                answer.set_exception(error)

        def done(url: str, found: Future[Answer]) -> None:
            nonlocal until_us
            error = found.exception()
            self._learn(topic, url, error)
            if error is None:
                answer.set_result(found.result())
            elif isinstance(error, Elsewhere) and not error.spread:
                if clock.now_us() >= until_us:
                    answer.set_exception(silent.get(error.url, error))
                elif error.url in silent:  # it has the topic until its lease ends
                    self._forget(topic, error.url)
                    later(error, again, max(error.retry_after_ms, SILENT_RETRY_MS))
                else:
                    pause_ms = 0 if error.url and error.url != url else error.retry_after_ms
                    later(error, again, pause_ms)
            elif isinstance(error, Unavailable) and url not in tried and goes_on(error):
                tried.add(url)
                if error.is_silent and self._is_alone(url):
                    answer.set_exception(error)
                    return
                if error.is_silent:
                    silent[url] = error
                    until_us = clock.now_us() + FOLLOW_MS_MAX * 1_000
                if self._look_up is None:
                    attempt()
                else:
                    later(error, others)
            else:
                answer.set_exception(error)

        def goes_on(error: Unavailable) -> bool:
            return error.is_unheard or (repeats and error.is_silent)

        def others() -> None:
            self._look_again()
            attempt()

        def later(otherwise: BaseException, do: Callable[..., None], *arguments: int) -> None:
            try:
                self._threads.submit(do, *arguments)
            except RuntimeError:  # closed meanwhile
                answer.set_exception(otherwise)

        def again(pause_ms: int) -> None:
            if pause_ms:
                clock.wait_until(clock.now_us() + pause_ms * 1_000, self._closing)
            attempt()

        if self._first:
            attempt()
        else:  # who calls does not wait for a resolver
            later(Unavailable("the client is closed"), attempt)
        return answer

    def action(
        self, name: str, body: dict[str, Any], *, repeats: bool = False
    ) -> Future[dict[str, Any]]:
        """One call and its JSON answer.

        Args:
            repeats: made twice it does what it does once, so it leaves a broker that gives no sign
                of life: for another one, or, if none is known, with Unavailable, which names it.
        """
        return self._or_each_shard(
            _topic_of(body),
            lambda: self._one_action(name, body, repeats=repeats),
            lambda calls: calls.act(name, body),
            repeats=repeats,
        )

    def _one_action(
        self, name: str, body: dict[str, Any], *, repeats: bool
    ) -> Future[dict[str, Any]]:
        def call(other: FlightTransport, leaves: bool) -> Future[dict[str, Any]]:
            return other.action(name, dict(body), repeats=leaves)

        return self._call(self._place_of(body), call, repeats=repeats)

    def _place_of(self, body: dict[str, Any]) -> str:
        """The topic that a call is about, or the shard: that with the home of a transaction."""
        topic = _topic_of(body)
        spread = self._spreads.get(topic, 1)
        if spread == 1 or "topic" in body or "transaction" not in body:
            return topic
        partition = str(body["transaction"]).split("/")[1]
        return shard_name(topic, int(partition) % spread, spread) if partition.isdigit() else topic

    def rows(self, ticket: dict[str, Any]) -> Future[pa.Table]:
        """Rows without leasing, by a JSON ticket."""
        return self._or_each_shard(
            _topic_of(ticket),
            lambda: self._one_rows(ticket),
            lambda calls: calls.peek(ticket),
            repeats=True,
        )

    def _one_rows(self, ticket: dict[str, Any]) -> Future[pa.Table]:
        def call(other: FlightTransport, leaves: bool) -> Future[pa.Table]:
            return other.rows(ticket, repeats=leaves)

        return self._call(_topic_of(ticket), call, repeats=True)

    def _or_each_shard(
        self,
        topic: str,
        whole: Callable[[], Future[Answer]],
        sharded: Callable[[ShardCalls], Answer],
        *,
        repeats: bool,
    ) -> Future[Answer]:
        """Ask about a topic as a whole; if it is served in shards, about each of them."""
        first = whole()
        answer: Future[Answer] = Future()

        def in_shards() -> None:
            try:
                answer.set_result(sharded(self._calls(topic, repeats=repeats)))
            except Exception as error:  # noqa: BLE001 - the caller gets it
                answer.set_exception(error)

        def done(found: Future[Answer]) -> None:
            error = found.exception()
            if error is None:
                answer.set_result(found.result())
            elif not isinstance(error, Elsewhere) or error.spread <= 1:
                answer.set_exception(error)
            else:
                try:
                    self._waiting_threads().submit(in_shards)
                except RuntimeError:  # closed meanwhile
                    answer.set_exception(error)

        first.add_done_callback(done)
        return answer

    def _calls(self, topic: str, *, repeats: bool = False) -> ShardCalls:
        act = partial(self._one_action, repeats=repeats)
        return ShardCalls(topic, self._spreads[topic], act, self._one_rows)

    def _waiting_threads(self) -> ThreadPoolExecutor:
        """Threads that may wait for answers of shards; others follow calls on their way."""
        with self._mutex:
            if self._waiters is None:
                self._waiters = ThreadPoolExecutor(8, thread_name_prefix="dejaq-shards")
            return self._waiters

    def scan(self, ticket: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Messages of a partition, batch by batch. Raises BadRequest, Unavailable."""
        topic = _topic_of(ticket)
        if topic in self._spreads:
            ticket = self._of_shard(topic, ticket)
            topic = _topic_of(ticket)
        clock = SteadyClock()
        until_us = clock.now_us() + FOLLOW_MS_MAX * 1_000
        while True:
            url, transport = self._route(topic)
            given = False
            try:
                for batch in transport.scan(ticket):
                    given = True
                    yield batch
            except Elsewhere as error:
                self._learn(topic, url, error)
                if error.spread > 1 and not given:
                    yield from self.scan(ticket)
                    return
                if given or clock.now_us() >= until_us:
                    raise
                pause_us = 0 if error.url and error.url != url else error.retry_after_ms * 1_000
                clock.wait_until(clock.now_us() + pause_us, self._closing)
            except Unavailable as error:
                self._learn(topic, url, error)
                raise
            else:
                return

    def _of_shard(self, topic: str, ticket: dict[str, Any]) -> dict[str, Any]:
        """The same ticket for the shard that has its partition."""
        spread = self._spreads[topic]
        shard = self._calls(topic).shard_of_partition(ticket.get("partition"))
        return ticket if spread < 2 else ticket | {"topic": shard_name(topic, shard, spread)}

    def close(self) -> None:
        """Close all channels and connections. Twice is fine."""
        with self._mutex:
            self._closed = True
            transports = list(self._open.values())
        self._closing.ring()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._waiters is not None:
            self._waiters.shutdown(wait=False, cancel_futures=True)
        for transport in transports:
            transport.close()


def connect(url: str, api_key: str | None = None, tls: Tls | None = None) -> RoutedTransport:
    """A transport to the broker, or the cluster, of a URL: with one or several addresses, or with
    names to look up (broker_names.py).

    Raises:
        BadRequest: one of these is wrong, or a file cannot be read. Refused: SRV records need a
            package that is not there.
    """
    names = Names.of(url)
    if names is None:
        return RoutedTransport(
            urls_of(url), lambda one: FlightTransport(one, api_key, tls, follows=True)
        )
    # What is wrong is said now, and not when a broker has been found.
    FlightTransport(names.plain_url, api_key, tls).close()
    return RoutedTransport(
        [],
        lambda one: FlightTransport(one, api_key, names.tls(one, tls), follows=True),
        names.look_up,
    )
