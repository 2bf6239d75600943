"""RabbitMQ by pika: publisher confirms, persistent messages, acks one by one.

Room: bench. The variant is the type of its queues: `quorum` or `classic`.
Holds: a publish returns when the broker has confirmed it. Acks are sent and not answered: that is
the protocol.

It has no delays of its own: a message waits in a queue that nobody consumes, and is dead-lettered
to the real one when its time to live is over. Two patterns:

- `queue_per_delay`: a queue for each delay that there is, with that time to live. Each is in order
  of arrival and of due time at once.
- `one_queue`: one queue, a time to live with each message. Only what is at the head of a queue
  expires: a message waits behind longer ones that came before it (head-of-line blocking), so it
  comes late by as much as the longest delay.

Quorum queues dead-letter at least once here, so that nothing is lost on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika

from bench.peers.peer import PREFETCH, Consumer, Peer, Queue, Sender

ONE_QUEUE = "one_queue"
_PERSISTENT = 2
_SAFE_LETTERS = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}


def make_peer(url: str, variant: str) -> Peer:
    """Of a type of queues."""
    return RabbitMQ(url, variant)


class RabbitMQ(Peer):
    """A broker with queues of one type."""

    def __init__(self, url: str, queue_type: str) -> None:
        # What kombu calls `//` is the virtual host `/`.
        self._url, self._type = url.removesuffix("//") + "/%2F", queue_type

    def make(self, queue: Queue) -> None:
        """See Peer."""
        connection, channel = self._connect()
        common: dict[str, Any] = {"x-queue-type": self._type}
        channel.queue_declare(queue.name, durable=True, arguments=common)
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue.name}
        waiting = common | letters | (_SAFE_LETTERS if self._type == "quorum" else {})
        if queue.pattern == ONE_QUEUE:
            channel.queue_declare(f"{queue.name}.later", durable=True, arguments=waiting)
        else:
            for delay_ms in set(queue.delays_ms):
                lives = waiting | {"x-message-ttl": delay_ms}
                channel.queue_declare(f"{queue.name}.{delay_ms}", durable=True, arguments=lives)
        connection.close()

    def sender(self, queue: Queue) -> Sender:
        """See Peer."""
        return _Sender(*self._connect(), queue)

    def consumer(self, queue: Queue) -> Consumer:
        """See Peer."""
        return _Consumer(*self._connect(), queue)

    def _connect(self) -> tuple[Any, Any]:
        connection = pika.BlockingConnection(pika.URLParameters(self._url))
        return connection, connection.channel()


class _Sender(Sender):
    def __init__(self, connection: Any, channel: Any, queue: Queue) -> None:
        self._connection, self._channel, self._queue = connection, channel, queue
        self._properties = pika.BasicProperties(delivery_mode=_PERSISTENT)
        channel.confirm_delivery()

    def send(self, payload: bytes) -> None:
        self._publish(self._queue.name, payload, self._properties)

    def send_later(self, payload: bytes, due_ms: int, delay_ms: int) -> None:
        if self._queue.pattern == ONE_QUEUE:
            lives = pika.BasicProperties(delivery_mode=_PERSISTENT, expiration=str(delay_ms))
            self._publish(f"{self._queue.name}.later", payload, lives)
        else:
            self._publish(f"{self._queue.name}.{delay_ms}", payload, self._properties)

    def _publish(self, name: str, payload: bytes, properties: Any) -> None:
        # Mandatory: what reaches no queue would be confirmed all the same.
        self._channel.basic_publish("", name, payload, properties, mandatory=True)

    def close(self) -> None:
        self._connection.close()


class _Consumer(Consumer):
    def __init__(self, connection: Any, channel: Any, queue: Queue) -> None:
        self._connection, self._channel, self._queue = connection, channel, queue
        self._tag = 0
        channel.basic_qos(prefetch_count=PREFETCH)

    def messages(self, idle_seconds: float) -> Iterator[bytes]:
        found = self._channel.consume(self._queue.name, inactivity_timeout=idle_seconds)
        for method, _, payload in found:
            if method is None:
                return
            self._tag = method.delivery_tag
            yield payload

    def ack(self) -> None:
        self._channel.basic_ack(self._tag)

    def finish(self) -> None:
        # What came ahead goes back. The answer to this comes after all acks were taken.
        self._channel.cancel()

    def close(self) -> None:
        self._connection.close()
