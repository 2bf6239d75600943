"""What the transport asks of DejaQ, and the client in this process that answers it.

Room: celery. Plain values only, so that the client may as well be in another process (proxy.py).
Holds: `send` with `wait` returns when the message is durable; `post` never waits, and may lose.
See: channel.py, which calls this; choice.py for which of the two it is.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count, groupby
from operator import itemgetter
from typing import Any, Protocol, TypeAlias

from dejaqueue.errors import BadRequest, DejaQError, DuplicateKey, TopicExists, TopicUnknown
from dejaqueue.model import RowStatus

log = logging.getLogger("dejaqueue.celery")

PREFETCH_MAX = 1_000
"""What a consumer without a limit holds."""
ROWS_MAX = 1_000_000
"""Rows that a look at a topic tells at most."""
POSTED_MAX = 10_000
"""Messages that wait to be posted; beyond that the oldest are dropped."""

Arrivals: TypeAlias = list[tuple[int, bytes, int]]
"""Tag, payload and attempt of each message that came."""
Take: TypeAlias = Callable[[Arrivals | DejaQError], None]
"""Called, on any thread, with what came; with the error once no more will come."""
Row: TypeAlias = tuple[str, int, bool, bytes]
"""Key, due time (UTC milliseconds), whether that has come, and payload."""
Post: TypeAlias = tuple[str, dict[str, Any]]


class Link(Protocol):
    """What the transport asks of DejaQ."""

    def connect(self) -> None:
        """Check that a broker answers."""

    def declare(self, topic: str, settings: dict[str, Any]) -> None:
        """Make a topic; one that is there is taken as it is."""

    def delete(self, topic: str) -> None:
        """Delete a topic, if it is there."""

    def size(self, topic: str) -> int:
        """Messages that wait and are due. Raises TopicUnknown."""
        ...

    def purge(self, topic: str) -> int:
        """Cancel all that no consumer has; how many there were."""
        ...

    def send(self, topic: str, payload: bytes, fields: dict[str, Any]) -> None:
        """Send one message with fields of `Client.send`. A key that is taken is left away: what
        counts is the message."""

    def put(self, topic: str, key: str, payload: bytes, due_ms: int | None, life_ms: int) -> None:
        """Send one message whose key names it, in a topic that keeps or replaces; it is due then,
        or after its life."""

    def post(self, topic: str, payload: bytes, fields: dict[str, Any]) -> None:
        """Send one message that may be lost, with fields of `Client.send`."""

    def rows(self, topic: str) -> list[Row]:
        """All that wait in a topic. Raises TopicUnknown."""
        ...

    def get(self, topic: str, key: str) -> bytes | None:
        """The payload of the live message with a key."""
        ...

    def get_many(self, topic: str, keys: Sequence[str]) -> list[bytes | None]:
        """The same of many keys, by one call for each 10,000."""
        ...

    def renew(self, topic: str, keys: Sequence[str], life_ms: int) -> list[bool]:
        """Have messages due this long from now; which of them are there."""
        ...

    def cancel(self, topic: str, keys: Sequence[str], if_due: int | None = None) -> int:
        """Cancel messages; how many there were."""
        ...

    def consume(self, topic: str, prefetch: int, take: Take) -> int:
        """Have messages pushed: `prefetch` unsettled at most. Returns the consumer's number."""
        ...

    def settle(self, number: int, tag: int, verb: str, *, wait: bool = False) -> None:
        """`ack`, `requeue` or `reject` a message of a consumer."""

    def drain(self, number: int) -> None:
        """Have no more pushed; what came can still be settled."""

    def end(self, number: int) -> None:
        """End a consumer: what was not settled is given back at once."""

    def close(self) -> None:
        """End all. Twice is fine."""


class LocalLink:
    """The link of a client in this process.

    Args:
        url: of the broker or the cluster.
        options: of `dejaqueue.Client`: `api_key`, `tls` (a dict of `dejaqueue.Tls`), `name`,
            `retry_ms_max`.
    """

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        # Imported late: a process that forks workers first is not to load gRPC (choice.py).
        from dejaqueue.client import Client, Tls

        options = dict(options)
        tls = options.pop("tls", None)
        self._client = Client(url, tls=Tls(**tls) if tls else None, **options)
        self._consumers: dict[int, _Taking] = {}
        self._numbers = count(1)
        self._posts: deque[Post] = deque(maxlen=POSTED_MAX)
        self._posted = threading.Event()
        self._poster: threading.Thread | None = None
        self._mutex = threading.Lock()
        self._closed = False

    def connect(self) -> None:
        """Check that a broker answers."""
        self._client.connect()

    # --- topics --------------------------------------------------------------------------------

    def declare(self, topic: str, settings: dict[str, Any]) -> None:
        """Make a topic; one that is there is taken as it is."""
        try:
            self._client.create_topic(topic, **settings)
        except TopicExists:
            log.debug("topic %s has other settings than Celery asks for: it keeps them", topic)

    def delete(self, topic: str) -> None:
        """Delete a topic, if it is there."""
        try:
            self._client.delete_topic(topic)
        except TopicUnknown:
            log.debug("topic %s was deleted already", topic)

    def size(self, topic: str) -> int:
        """Messages that wait and are due. Raises TopicUnknown."""
        return self._client.counts(topic).get("ready", 0)

    def purge(self, topic: str) -> int:
        """Cancel all that no consumer has; how many there were."""
        return self._client.purge(topic)

    # --- messages ------------------------------------------------------------------------------

    def send(self, topic: str, payload: bytes, fields: dict[str, Any]) -> None:
        """Send one message with fields of `Client.send`. A key that is taken is left away: what
        counts is the message."""
        try:
            self._client.send(topic, payload, **fields)
        except DuplicateKey:
            self._client.send(topic, payload, **{**fields, "key": None})

    def put(self, topic: str, key: str, payload: bytes, due_ms: int | None, life_ms: int) -> None:
        """Send one message whose key names it, in a topic that keeps or replaces; it is due then,
        or after its life."""
        delay = None if due_ms is not None else life_ms / 1_000
        self._client.send(topic, payload, due=due_ms, delay=delay, key=key)

    def post(self, topic: str, payload: bytes, fields: dict[str, Any]) -> None:
        """Send one message that may be lost, with fields of `Client.send`."""
        self._posts.append((topic, {**fields, "payload": payload}))
        with self._mutex:
            if self._poster is None:
                self._poster = threading.Thread(
                    target=self._post_all, name="dejaq-posts", daemon=True
                )
                self._poster.start()
        self._posted.set()

    def _post_all(self) -> None:
        while True:
            self._posted.wait()
            self._posted.clear()
            posts: list[Post] = []
            while self._posts:
                posts.append(self._posts.popleft())
            for topic, group in groupby(sorted(posts, key=itemgetter(0)), itemgetter(0)):
                try:
                    self._client.send_batch(topic, [row for _, row in group], acks="leader")
                except DejaQError as error:
                    log.debug("topic %s: what was posted is lost: %s", topic, error)
            if self._closed:
                return

    def rows(self, topic: str) -> list[Row]:
        """All that wait in a topic."""
        over = self._client.peek(topic, limit=ROWS_MAX, state="ready").column("id").to_pylist()
        table = self._client.peek(topic, limit=ROWS_MAX)
        columns = [table.column(name).to_pylist() for name in ("id", "key", "due", "payload")]
        due_ids = set(over)
        return [
            (key, due_ms, message_id in due_ids, payload)
            for message_id, key, due_ms, payload in zip(*columns, strict=True)
        ]

    def get(self, topic: str, key: str) -> bytes | None:
        """The payload of the live message with a key."""
        found = self._client.get(topic, key=key)
        return None if found is None else found.payload

    def get_many(self, topic: str, keys: Sequence[str]) -> list[bytes | None]:
        """The same of many keys, by one call for each 10,000."""
        wanted = list(dict.fromkeys(keys))
        table = self._client.peek(topic, keys=wanted, limit=max(len(wanted), 1))
        columns = (table.column(name).to_pylist() for name in ("key", "payload"))
        payloads: dict[str, bytes] = dict(zip(*columns, strict=True))
        return [payloads.get(key) for key in keys]

    def renew(self, topic: str, keys: Sequence[str], life_ms: int) -> list[bool]:
        """Have messages due this long from now; which of them are there."""
        moved = self._client.move(topic, keys=list(keys), delay=life_ms / 1_000)
        return [status == RowStatus.OK for status in moved.statuses.tolist()]

    def cancel(self, topic: str, keys: Sequence[str], if_due: int | None = None) -> int:
        """Cancel messages; how many there were."""
        return self._client.cancel(topic, keys=list(keys), if_due=if_due).ok_count

    # --- consumers -----------------------------------------------------------------------------

    def consume(self, topic: str, prefetch: int, take: Take) -> int:
        """Have messages pushed: `prefetch` unsettled at most. Returns the consumer's number."""
        prefetch = min(prefetch or PREFETCH_MAX, PREFETCH_MAX)
        consumer = self._client.consume_batches(
            topic, batch_rows=prefetch, prefetch=prefetch, until_settled=True
        )
        consumer.open()
        number = next(self._numbers)
        self._consumers[number] = _Taking(topic, consumer, take)
        return number

    def settle(self, number: int, tag: int, verb: str, *, wait: bool = False) -> None:
        """`ack`, `requeue` or `reject` a message of a consumer."""
        taking = self._consumers.get(number)
        if taking is not None:
            taking.settle(tag, verb, wait=wait)

    def drain(self, number: int) -> None:
        """Have no more pushed; what came can still be settled."""
        taking = self._consumers.get(number)
        if taking is not None:
            taking.consumer.drain()

    def end(self, number: int) -> None:
        """End a consumer: what was not settled is given back at once."""
        taking = self._consumers.pop(number, None)
        if taking is not None:
            taking.end()

    def close(self) -> None:
        """End all. Twice is fine."""
        for number in list(self._consumers):
            self.end(number)
        self._closed = True
        self._posted.set()
        if self._poster is not None:
            self._poster.join()
        self._client.close()


class _Taking:
    """A consumer, the thread that takes from it, and the messages that are not settled."""

    def __init__(self, topic: str, consumer: Any, take: Take) -> None:
        self.topic = topic
        self.consumer = consumer
        self._take = take
        self._held: dict[int, Any] = {}
        self._tags = count(1)
        self._ended = False
        self._mutex = threading.Lock()
        threading.Thread(target=self._run, name=f"dejaq-celery-{topic}", daemon=True).start()

    def _run(self) -> None:
        try:
            for batch in self.consumer:
                arrivals: Arrivals = []
                with self._mutex:  # what comes while it ends is given back, too
                    ended = self._ended
                    for message in batch.messages():
                        tag = next(self._tags)
                        self._held[tag] = message
                        arrivals.append((tag, message.payload, message.attempt))
                if ended:
                    self._give_back()
                else:
                    self._take(arrivals)
        except DejaQError as error:
            if not self._ended:
                self._take(error)

    def settle(self, tag: int, verb: str, *, wait: bool = False) -> None:
        """Settle one message, if it was not settled."""
        message = self._held.pop(tag, None)
        if message is None:
            return
        for _ in range(2):  # an error of an earlier one may come first: it is told once
            try:
                if verb == "ack":
                    message.ack(wait=wait)
                elif verb == "requeue":
                    message.nack(delay=0, wait=wait)
                elif verb == "reject":
                    message.nack(dead=True, reason="rejected by the worker", wait=wait)
                else:
                    raise BadRequest("verb", "ack, requeue or reject", verb)
                return
            except BadRequest:
                raise
            except DejaQError as error:
                log.warning("topic %s: an ack failed: %s", self.topic, error)

    def _give_back(self) -> None:
        for tag in list(self._held):
            self.settle(tag, "requeue")

    def end(self) -> None:
        """Give back what was not settled, and end."""
        with self._mutex:
            self._ended = True
        self._give_back()
        try:
            self.consumer.close()
        except DejaQError as error:
            log.warning("topic %s: an ack failed: %s", self.topic, error)
