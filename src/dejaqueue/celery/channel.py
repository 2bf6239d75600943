"""A channel of kombu: queues are topics, what is pushed arrives by callbacks, acks are DejaQ's.

Room: celery. What routes by exchanges is kombu's virtual channel; what moves messages is a Link.
Holds: at most `prefetch_count` messages of each consumer are not settled; a message of a closed
channel that was not settled is given back at once.
See: link.py; routes.py; transport.py, which hands over what arrives.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from itertools import count
from queue import Empty
from typing import Any

from amqp.exceptions import RecoverableConnectionError
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments

from dejaqueue.celery.choice import SharedLink
from dejaqueue.celery.content import message_of, payload_of
from dejaqueue.celery.link import Arrivals, Link, log
from dejaqueue.celery.names import due_ms_of, key_of, keys_of, priority_of, topic_of, ttl_of
from dejaqueue.celery.routes import Route, Routes
from dejaqueue.errors import DejaQError, Forbidden, TopicUnknown

GET_SECONDS = 1.0
"""How long one `get` waits for a message that is there."""


class Held:
    """A message that was handed over and is not settled: whose it is."""

    __slots__ = ("number", "tag")

    def __init__(self, number: int, tag: int) -> None:
        self.number = number
        self.tag = tag


class UnsettledTable(virtual.QoS):  # type: ignore[misc]
    """The messages of a channel that are not settled, by delivery tag."""

    def __init__(self, channel: Channel, prefetch_count: int = 0) -> None:
        self.channel = channel
        self.prefetch_count = prefetch_count
        self.held: dict[str, Held] = {}

    def can_consume(self) -> bool:
        """The broker keeps to the prefetch: what came may be handed over."""
        return True

    def append(self, message: Any, delivery_tag: str) -> None:
        """What was handed over is known from when it came."""

    def ack(self, delivery_tag: str) -> None:
        """It is done."""
        self._settle(delivery_tag, "ack")

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give it back, or have it be a dead letter."""
        self._settle(delivery_tag, "requeue" if requeue else "reject", wait=True)

    def _settle(self, delivery_tag: str, verb: str, *, wait: bool = False) -> None:
        held = self.held.pop(delivery_tag, None)
        if held is not None and self.channel.is_mine:
            self.channel.link.settle(held.number, held.tag, verb, wait=wait)

    def restore_unacked(self) -> list[Any]:
        """Give back all."""
        for delivery_tag in list(self.held):
            self._settle(delivery_tag, "requeue")
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Give back all."""
        self.restore_unacked()


class Consuming:
    """A consumer of a channel."""

    def __init__(self, queue: str, no_ack: bool, callback: Callable[[Any], object]) -> None:
        self.queue = queue
        self.no_ack = no_ack
        self.callback = callback
        self.number = 0


class Channel(virtual.Channel):  # type: ignore[misc]
    """A channel of kombu."""

    QoS = UnsettledTable
    supports_fanout = True
    max_priority = 255

    def __init__(self, connection: Any, **options: Any) -> None:
        super().__init__(connection, **options)
        self._consuming: dict[str, Consuming] = {}
        self._numbers: set[int] = set()
        self._lasting: dict[str, bool] = {}
        self._life_ms: dict[str, int] = {}
        self._tags = count(1)
        self.closed: bool = False

    @property
    def _shared(self) -> SharedLink:
        if self.connection is None:
            raise RecoverableConnectionError("the channel is closed")
        shared: SharedLink = self.connection.shared
        return shared

    @property
    def link(self) -> Link:
        """To the broker."""
        return self._shared.link

    @property
    def routes(self) -> Routes:
        """The broker's bindings."""
        return self._shared.routes

    @property
    def is_mine(self) -> bool:
        """False in a process that was forked from that of the channel, and once it is closed."""
        shared = None if self.connection is None else self.connection.shared
        return shared is not None and bool(shared.is_mine)

    # --- queues --------------------------------------------------------------------------------

    def _new_queue(
        self,
        queue: str,
        durable: bool = True,
        auto_delete: bool = False,
        exclusive: bool = False,
        arguments: dict[str, Any] | None = None,
        **_options: Any,
    ) -> None:
        arguments = arguments or {}
        lasting = not (auto_delete or exclusive or "x-expires" in arguments)
        self._lasting[queue] = lasting
        if "x-message-ttl" in arguments:
            self._life_ms[queue] = int(arguments["x-message-ttl"])
        settings = dict(self.connection.topic_settings)
        if arguments.get("x-max-priority"):
            settings["kind"] = "priority"
        self.link.declare(topic_of(queue), settings)
        self.routes.add(Route("", queue, queue, lasting))

    def prepare_queue_arguments(self, arguments: Any, **options: Any) -> dict[str, Any]:
        """The arguments of a queue, those with a name of kombu's under AMQP's."""
        prepared: dict[str, Any] = to_rabbitmq_queue_arguments(arguments or {}, **options)
        return prepared

    def _has_queue(self, queue: str, **_options: Any) -> bool:
        try:
            self.link.size(topic_of(queue))
        except TopicUnknown:
            return False
        return True

    def _size(self, queue: str) -> int:
        try:
            return self.link.size(topic_of(queue))
        except TopicUnknown:
            return 0

    def _purge(self, queue: str) -> int:
        try:
            return self.link.purge(topic_of(queue))
        except TopicUnknown:
            return 0

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **_options: Any
    ) -> None:
        """Delete a queue with its messages and bindings."""
        if if_empty and self._size(queue):
            return
        self.routes.remove(queue)
        self.link.delete(topic_of(queue))
        self.state.queue_bindings_delete(queue)

    def _queue_bind(self, exchange: str, routing_key: str, _pattern: Any, queue: str) -> None:
        lasting = self._lasting.get(queue, True)
        self.routes.add(Route(exchange, routing_key or "", queue, lasting))

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **options: Any,
    ) -> None:
        """Take one binding away."""
        super().queue_unbind(queue, exchange, routing_key, arguments, **options)
        for route in self.routes.of(exchange or "", 0):
            if (route.queue, route.routing_key) == (queue, routing_key):
                self.routes.unbind(route)

    # --- where a message goes ------------------------------------------------------------------

    def get_table(self, exchange: str) -> list[Any]:
        """The bindings of an exchange, made here or elsewhere."""
        age = {"age_ms": 0} if self.typeof(exchange).type == "fanout" else {}
        return self._table(exchange, **age)

    def _table(self, exchange: str, **age: int) -> list[Any]:
        prepare = self.typeof(exchange).prepare_bind
        return [
            prepare(route.queue, exchange, route.routing_key, None)
            for route in self.routes.of(exchange, **age)
        ]

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> Any:
        if not exchange:
            return [routing_key or default]
        kind = self.typeof(exchange)
        queues = kind.lookup(self.get_table(exchange), exchange, routing_key, default)
        if not queues and kind.type == "direct":
            # The queue of a reply is a moment old, and known to whoever waits for it.
            queues = kind.lookup(self._table(exchange, age_ms=0), exchange, routing_key, default)
        if not queues and self.deadletter_queue:
            self._new_queue(self.deadletter_queue)
            return [self.deadletter_queue]
        return queues

    def _put_fanout(
        self, exchange: str, message: dict[str, Any], routing_key: str, **options: Any
    ) -> None:
        self._cancel_revoked(message)
        for _, _, queue in self.get_table(exchange):
            self._put(queue, message, **options)

    def _inplace_augment_message(
        self, message: dict[str, Any], exchange: str, routing_key: str
    ) -> None:
        """The body stays as it is: a payload may be any bytes."""
        message["properties"]["delivery_info"].update(exchange=exchange, routing_key=routing_key)

    def _put(self, queue: str, message: dict[str, Any], **_options: Any) -> None:
        topic, payload = topic_of(queue), payload_of(message)
        headers, properties = message.get("headers") or {}, message["properties"]
        fields = {
            "due": due_ms_of(headers),
            "key": key_of(headers),
            "priority": priority_of(properties),
            "ttl": ttl_of(properties, self._life_ms.get(queue)),
        }
        fields = {name: value for name, value in fields.items() if value is not None}
        if not self.routes.is_lasting(queue):
            self.link.post(topic, payload, fields)
            return
        try:
            self.link.send(topic, payload, fields)
        except TopicUnknown:
            # Deleted since it was declared: what is sent to it makes it again, as with Redis.
            self._new_queue(queue)
            self.link.send(topic, payload, fields)

    def _cancel_revoked(self, message: dict[str, Any]) -> None:
        """Carry out `revoke` at the broker: workers hear of it, too, but may all be down."""
        if message.get("content-type") != "application/json":
            return
        command = json.loads(message["body"])
        if not isinstance(command, dict) or command.get("method") != "revoke":
            return
        named = (command.get("arguments") or {}).get("task_id") or []
        ids = [named] if isinstance(named, str) else list(named)
        keys = [key for task_id in ids for key in keys_of(task_id)]
        for queue in self.routes.lasting_queues() if keys else ():
            try:
                self.link.cancel(topic_of(queue), keys)
            except (TopicUnknown, Forbidden) as error:
                log.debug("queue %s: nothing is revoked at the broker: %s", queue, error)

    # --- consuming -----------------------------------------------------------------------------

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,
        callback: Callable[[Any], object],
        consumer_tag: str,
        **_options: Any,
    ) -> None:
        """Have the messages of a queue pushed."""
        consuming = self._consuming[consumer_tag] = Consuming(queue, no_ack, callback)
        self._consumers.add(consumer_tag)
        self._open(consuming)
        self.routes.keep(queue)

    def _open(self, consuming: Consuming) -> None:
        """Open a consumer, or open it again with another prefetch."""
        before = consuming.number
        mutex = threading.Lock()
        number = 0
        early: list[Arrivals | DejaQError] = []

        def take(arrivals: Arrivals | DejaQError) -> None:
            with mutex:  # messages may come before it is known whose they are
                if number:
                    self._arrived(consuming, number, arrivals)
                else:
                    early.append(arrivals)

        opened = self.link.consume(topic_of(consuming.queue), self.qos.prefetch_count, take)
        self._numbers.add(opened)
        with mutex:
            number = consuming.number = opened
            for arrivals in early:
                self._arrived(consuming, number, arrivals)
        if before:
            self.link.drain(before)

    def _arrived(self, consuming: Consuming, number: int, arrivals: Arrivals | DejaQError) -> None:
        """Something came to a consumer of the link."""
        connection = self.connection
        if connection is not None:
            connection.arrived(self, consuming, number, arrivals)

    def hand_over(self, consuming: Consuming, number: int, arrival: tuple[int, bytes, int]) -> None:
        """Call back with a message that came."""
        if self.closed or consuming not in self._consuming.values():
            self.link.settle(number, arrival[0], "requeue")
            return
        message = self._received(consuming.no_ack, number, arrival)
        if message is not None:
            consuming.callback(message)

    def _received(self, no_ack: bool, number: int, arrival: tuple[int, bytes, int]) -> Any:
        tag, payload, attempt = arrival
        delivery_tag = str(next(self._tags))
        try:
            raw = message_of(payload, delivery_tag, attempt)
        except (ValueError, KeyError, TypeError) as error:
            log.warning("a message of %d bytes is rejected: %s", len(payload), error)
            self.link.settle(number, tag, "reject")
            return None
        if no_ack:
            self.link.settle(number, tag, "ack")
        else:
            self.qos.held[delivery_tag] = Held(number, tag)
        return self.Message(raw, channel=self)

    def basic_cancel(self, consumer_tag: str) -> None:
        """Take nothing new; what was handed over can still be settled."""
        consuming = self._consuming.pop(consumer_tag, None)
        self._consumers.discard(consumer_tag)
        if consuming is not None and self.is_mine:
            self.routes.release(consuming.queue)
            self.link.drain(consuming.number)

    def basic_qos(
        self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False
    ) -> None:
        """How many messages of each consumer may be unsettled; 0 = 1,000."""
        before, self.qos.prefetch_count = self.qos.prefetch_count, prefetch_count
        if before != prefetch_count:
            for consuming in self._consuming.values():
                self._open(consuming)

    def basic_get(self, queue: str, no_ack: bool = False, **_options: Any) -> Any:
        """The next message, if there is one that is due."""
        if not self._size(queue):
            return None
        came: list[Any] = []
        bell = threading.Event()

        def take(arrivals: Arrivals | DejaQError) -> None:
            came.append(arrivals)
            bell.set()

        number = self.link.consume(topic_of(queue), 1, take)
        self._numbers.add(number)
        if not bell.wait(GET_SECONDS):
            self.link.end(number)
            return None
        self.link.drain(number)
        if isinstance(came[0], DejaQError):
            raise came[0]
        return self._received(no_ack, number, came[0][0])

    def drain_events(self, timeout: float | None = None, callback: Any = None) -> None:
        """What arrives is the transport's to hand over."""
        raise Empty

    def close(self) -> None:
        """End all consumers; what was not settled is given back at once."""
        if self.closed:
            return
        self.closed = True
        if self.is_mine:
            for consuming in self._consuming.values():
                self.routes.release(consuming.queue)
            for number in self._numbers:
                try:
                    self.link.end(number)
                except DejaQError as error:
                    log.debug("a consumer was not ended: %s", error)
        self._consuming.clear()
        self._consumers.clear()
        self._numbers.clear()
        if self.connection is not None:
            self.connection.close_channel(self)
        self.exchange_types = None
