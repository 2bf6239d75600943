"""Our own client with the words of a `Driver`: whatever others are told is told it first.

What a test of other clients shows it must have passed, or the test tries the stage and not them.
"""

from __future__ import annotations

import queue
import threading
from base64 import b64decode
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pyarrow as pa

from dejaqueue import Client, Message, Tls
from dejaqueue.client import Transaction
from dejaqueue.errors import DejaQError
from dejaqueue.model import RowStatus
from tests.clients.drivers import ClientError
from tests.patience import PATIENCE_SECONDS


class OwnDriver:
    """Our client, in this process."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._thread = ThreadPoolExecutor(1)
        self._begun: deque[Future[dict[str, Any]]] = deque()
        self._transaction: Transaction | None = None
        self._arrived: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._received: dict[str, Message] = {}
        self._consumer: Any = None
        self._consuming: threading.Thread | None = None

    def begin(self, do: str, **fields: Any) -> None:
        """See Driver."""
        self._begun.append(self._thread.submit(self._act, do, fields))

    def answer(self) -> dict[str, Any]:
        """See Driver."""
        try:
            return self._begun.popleft().result(PATIENCE_SECONDS)
        except DejaQError as error:
            told = {"number": error.number, "name": type(error).__name__, "text": str(error)}
            raise ClientError(told) from error

    def call(self, do: str, **fields: Any) -> dict[str, Any]:
        """See Driver."""
        self.begin(do, **fields)
        return self.answer()

    def receive(self, count: int, wait_ms: int = 20_000) -> list[dict[str, Any]]:
        """See Driver."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            try:
                message = self._arrived.get(timeout=wait_ms / 1_000 if not found else 0.05)
            except queue.Empty:
                break
            self._received[str(message.id)] = message
            found.append({"id": str(message.id), "payload": message.payload, "key": message.key})
        return found

    def end(self) -> None:
        """See Driver."""
        with suppress(DejaQError):
            self._act("close", {})
        self._thread.shutdown()

    @property
    def _known(self) -> Client:
        assert self._client is not None
        return self._client

    def _act(self, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        act = getattr(self, f"_{do}")
        answer: dict[str, Any] = act(**fields) or {}
        return answer

    def _connect(self, url: str, retry_ms: int, api_key: str = "", ca: str = "", **_: Any) -> None:
        tls = Tls(ca=ca) if ca else None
        self._client = Client(url, retry_ms_max=retry_ms, api_key=api_key or None, tls=tls)

    def _create_topic(self, topic: str, settings: dict[str, Any] | None = None) -> None:
        self._known.create_topic(topic, **(settings or {}))

    def _send(self, topic: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
        columns: dict[str, Any] = {"payload": [b64decode(row["payload"]) for row in rows]}
        columns["key"] = pa.array([row.get("key") for row in rows], pa.string())
        if any("due_ms" in row for row in rows):
            columns["due"] = [row["due_ms"] for row in rows]
        sent = self._known.send_batch(topic, pa.record_batch(columns))
        names = [RowStatus(int(status)).name for status in sent.statuses]
        return {"ids": [str(one) for one in sent.ids], "statuses": names}

    def _send_each(self, topic: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
        def one(row: dict[str, Any]) -> dict[str, Any]:
            payload, key = b64decode(row["payload"]), row.get("key")
            found = self._known.send(topic, payload, key=key)
            return {"ids": [str(found)], "statuses": ["OK"]}

        with ThreadPoolExecutor(len(rows)) as senders:
            return {"answers": list(senders.map(one, rows))}

    def _flood(self, topic: str, batches: int, wait_ms: int, **_: Any) -> dict[str, Any]:
        pause = threading.Event()

        def together() -> None:
            for first in range(0, batches * 10, 10):
                numbers = range(first, first + 10)
                columns = {
                    "payload": [b"%d" % n for n in numbers],
                    "key": [f"k{n}" for n in numbers],
                }
                self._known.send_batch(topic, pa.record_batch(columns))
                pause.wait(wait_ms / 1_000)

        def alone(first: int) -> None:
            for number in range(batches * 10 + first, batches * 20, 40):
                self._known.send(topic, b"%d" % number, key=f"k{number}")
                pause.wait(wait_ms / 1_000)

        with ThreadPoolExecutor(41) as senders:
            sending = [senders.submit(together)]
            sending += [senders.submit(alone, first) for first in range(40)]
            for one in sending:
                one.result()
        return {"sent": batches * 20}

    def _cancel(self, topic: str, ids: Any = (), keys: Any = ()) -> dict[str, Any]:
        named = {"keys": list(keys)} if keys else {"ids": [int(one) for one in ids]}
        found = self._known.cancel(topic, **named)
        return {"statuses": [RowStatus(int(status)).name for status in found.statuses]}

    def _consume(self, topic: str, lease_ms: int = 0, credit: int = 1_000) -> None:
        self._consumer = self._known.consume(topic, lease_ms=lease_ms, prefetch=credit)
        self._consuming = threading.Thread(target=self._take, daemon=True)
        self._consuming.start()

    def _take(self) -> None:
        with suppress(DejaQError):
            for message in self._consumer:
                self._arrived.put(message)

    def _ack(self, ids: list[str]) -> dict[str, Any]:
        return self._each(ids, lambda message: message.ack(wait=True))

    def _nack(self, ids: list[str], delay_ms: int = 0) -> dict[str, Any]:
        return self._each(ids, lambda message: message.nack(delay=delay_ms / 1_000))

    def _extend(self, ids: list[str], lease_ms: int) -> dict[str, Any]:
        return self._each(ids, lambda message: message.extend(lease_ms / 1_000))

    def _each(self, ids: list[str], settle: Callable[[Message], RowStatus]) -> dict[str, Any]:
        with ThreadPoolExecutor(8) as settlers:
            found = list(settlers.map(settle, [self._received[one] for one in ids]))
        return {"statuses": [status.name for status in found]}

    def _ack_async(self, ids: list[str]) -> None:
        for one in ids:
            self._received[one].ack(wait=False)

    def _flush(self) -> None:
        """Ours are durable when the consumer has been closed."""
        self._close_consumer()

    def _move(self, topic: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
        ids, dues = [int(row["id"]) for row in rows], [row["due_ms"] for row in rows]
        found = self._known.move(topic, ids=ids, due=dues)
        return {"statuses": [RowStatus(int(status)).name for status in found.statuses]}

    def _begin(self, topic: str, timeout_ms: int) -> None:  # the topic is that of the first batch
        self._transaction = self._known.transaction(timeout=timeout_ms / 1_000)

    def _tx_send(self, topic: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
        assert self._transaction is not None
        messages = [{"payload": b64decode(row["payload"]), "key": row["key"]} for row in rows]
        sent = self._transaction.send_batch(topic, messages)
        names = [RowStatus(int(status)).name for status in sent.statuses]
        return {"ids": [str(one) for one in sent.ids], "statuses": names}

    def _tx_ack(self, ids: list[str]) -> dict[str, Any]:
        assert self._transaction is not None
        found = self._transaction.ack([self._received[one] for one in ids])
        return {"statuses": [RowStatus(int(status)).name for status in found.statuses]}

    def _commit(self) -> None:
        assert self._transaction is not None
        self._transaction.commit()

    def _abort(self) -> None:
        assert self._transaction is not None
        self._transaction.abort()

    def _close_consumer(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        if self._consuming is not None:
            self._consuming.join(PATIENCE_SECONDS)
        self._consumer = self._consuming = None

    def _close(self) -> None:
        self._close_consumer()
        if self._client is not None:
            self._client.close()
        self._client = None
