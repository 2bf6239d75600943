"""The producer of the asynchronous client: gathers messages into batches, many on their way.

Room: client. The source of _sync/producer.py (scripts/generate_sync_client.py): change this one.
Holds: a batch goes out when it has `batch_rows` messages or about 8 MiB of payloads, or `linger_ms`
after its first one; at most `window` batches are on their way; every future ends.
See: client/link.py for retries (rule 10); sending/gather.py for how a bad message is told apart.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any

import pyarrow as pa

from dejaqueue.client import tracing
from dejaqueue.client._aio import waiting
from dejaqueue.client.alarm import Alarm
from dejaqueue.client.link import WriteLink
from dejaqueue.client.results import SendResult
from dejaqueue.client.sending.content import NOTHING
from dejaqueue.client.sending.gather import VARIANTS, Gathered, RowSender
from dejaqueue.client.sending.inputs import BYTES_MAX, batches_of
from dejaqueue.client.sending.sent import AwaitableFuture, Sent, joined, row_of
from dejaqueue.clock import Clock
from dejaqueue.errors import Unavailable


class _Collecting:
    """The batch of one variant that is being collected."""

    def __init__(self, sender: RowSender) -> None:
        self.sender = sender
        self.open: Gathered | None = None


class AsyncProducer:
    """Sends to one topic in batches. Made by `AsyncClient.producer`.

    >>> async def remind(client):                                      # doctest: +SKIP
    ...     async with client.producer("reminders") as producer:
    ...         sent = await producer.send(b"tea is ready", delay=180)
    ...     return await sent
    """

    def __init__(
        self,
        link_of: Callable[[tuple[str, ...]], WriteLink],
        now_ms: Callable[[], int],
        clock: Clock,
        *,
        batch_rows: int,
        linger_ms: float,
        topic: str = "",
    ) -> None:
        self._topic = topic
        self._link_of = link_of
        self._now_ms = now_ms
        self._batch_rows = batch_rows
        self._linger_ms = linger_ms
        self._linger = Alarm(clock, "dejaq-linger")
        self._links: dict[tuple[str, ...], WriteLink] = {}
        self._collecting: dict[tuple[bool, bool], _Collecting] = {}
        self._mutex = threading.Lock()
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._links)} streams open"
        return f"<{type(self).__name__} to {self._topic}, {state}>"

    def _link(self, columns: tuple[str, ...]) -> WriteLink:
        with self._mutex:
            if self._closed:
                raise Unavailable("the producer is closed")
            if columns not in self._links:
                self._links[columns] = self._link_of(columns)
            return self._links[columns]

    async def send(
        self,
        payload: bytes | str | None = None,
        *,
        json: object = NOTHING,
        due: datetime | int | None = None,
        delay: timedelta | float | None = None,
        key: str | None = None,
        group: str = "",
        priority: int | None = None,
        tags: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        expires: datetime | int | None = None,
        ttl: timedelta | float | None = None,
    ) -> Sent:
        """Put a message into the batch that is being collected.

        Waits only while `window` batches are on their way. Arguments are those of
        `AsyncClient.send`.

        Returns:
            A future of its id: `await sent` or `sent.result()`.

        Raises:
            BadRequest: the message is wrong; errors of the broker are the future's.
        """
        if tracing.is_on() and type(headers) is not tracing.Carried:
            with tracing.Sending(self._topic) as span:
                return await self.send(
                    payload,
                    json=json,
                    due=due,
                    delay=delay,
                    key=key,
                    group=group,
                    priority=priority,
                    tags=tags,
                    headers=span.carried(headers),
                    expires=expires,
                    ttl=ttl,
                )
        needs_now = delay is not None or ttl is not None
        now_ms = await waiting.run(self._now_ms) if needs_now else 0
        texts = key, group, priority, tags, headers
        row, kind = row_of(payload, due, delay, *texts, now_ms, expires, ttl, json)
        full: Gathered | None = None
        collecting = self._collecting.get(kind) or self._collect(kind)
        with self._mutex:
            if self._closed:
                raise Unavailable("the producer is closed")
            gathered = collecting.open
            if gathered is None:
                gathered = collecting.open = Gathered()
                gathered.future = AwaitableFuture()
                if self._linger_ms > 0:
                    self._linger_later(collecting, gathered)
            index = len(gathered.rows)
            gathered.rows.append(row)
            gathered.byte_count += len(row[0])
            is_full = index + 1 >= self._batch_rows or gathered.byte_count >= BYTES_MAX
            if is_full or self._linger_ms <= 0:
                full, collecting.open = gathered, None
        if full is not None:
            await waiting.acquire(collecting.sender.link.window)
            self._out(collecting, full, waiting.MAY_BLOCK)
        return Sent(gathered, index)

    def _collect(self, kind: tuple[bool, bool]) -> _Collecting:
        variant = VARIANTS[kind]
        link = self._link(tuple(variant.schema.names))
        return self._collecting.setdefault(kind, _Collecting(RowSender(link, variant)))

    def _linger_later(self, collecting: _Collecting, gathered: Gathered) -> None:
        def linger_over() -> None:
            with self._mutex:
                if collecting.open is not gathered:
                    return
                collecting.open = None
            # On the linger's own thread, which may block.
            collecting.sender.link.window.acquire()
            self._out(collecting, gathered, True)

        self._linger.after(self._linger_ms, linger_over)

    def _out(self, collecting: _Collecting, gathered: Gathered, may_block: bool) -> None:
        """Send a collected batch, whose place in the window is taken."""
        assert gathered.future is not None
        window = collecting.sender.link.window
        gathered.future.add_done_callback(lambda _: window.release())
        collecting.sender.send(gathered, may_block)

    async def send_batch(self, messages: object) -> AwaitableFuture[SendResult]:
        """Send many messages; returns when they are on their way.

        The fast way: a RecordBatch whose columns have the wire's types is sent as it is.

        Args:
            messages: as for `AsyncClient.send_batch`.

        Returns:
            A future of ids and statuses.
        """
        if tracing.is_on():
            with tracing.Sending(self._topic) as span:
                return await self._send_batches(map(span.carry, batches_of(messages, self._now_ms)))
        return await self._send_batches(batches_of(messages, self._now_ms))

    async def _send_batches(self, batches: Iterable[pa.RecordBatch]) -> AwaitableFuture[SendResult]:
        answers = []
        remaining = iter(batches)
        # Making one may ask for the broker's time, which takes as long as there is no broker.
        while (batch := await waiting.run(next, remaining, None)) is not None:
            link = self._link(tuple(batch.schema.names))
            await waiting.acquire(link.window)
            answer = link.send_in_window(batch, wait=waiting.MAY_BLOCK)
            answer.add_done_callback(lambda _, window=link.window: window.release())  # type: ignore[misc]
            answers.append(answer)
        return joined(answers)

    async def flush(self) -> None:
        """Send what was collected, and wait until all that was sent is answered.

        Errors are those of the messages' futures, and are not raised here.
        """
        futures: list[Any] = []
        for collecting in list(self._collecting.values()):
            with self._mutex:
                gathered, collecting.open = collecting.open, None
            if gathered is not None:
                await waiting.acquire(collecting.sender.link.window)
                self._out(collecting, gathered, waiting.MAY_BLOCK)
                futures.append(gathered.future)
        for future in futures:
            await waiting.result(future)
        for link in list(self._links.values()):
            await waiting.run(link.wait)

    async def close(self) -> None:
        """Flush, then close. Twice is fine."""
        if not self._closed:
            await self.flush()
        with self._mutex:
            self._closed = True
        await waiting.run(self._linger.stop)
        for link in self._links.values():
            await waiting.run(link.close)

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
