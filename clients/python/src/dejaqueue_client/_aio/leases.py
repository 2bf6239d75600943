"""The leases of one consumer: taken by requests that wait, extended, settled, given back.

Room: client. The source of _sync/leases.py (scripts/generate_sync_client.py): change this one.
Holds: what is held is extended when its lease is half over, for as long as the consumer is open;
acks that nobody waits for are sent together, and an error of them is raised by the next call.
See: held.py for what does not wait; consumer.py for the faces.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from dejaqueue_client._aio import waiting
from dejaqueue_client._aio.connection import AsyncConnection
from dejaqueue_client.consume_options import ConsumeOptions
from dejaqueue_client.errors import BadRequest, DejaQError, TopicUnknown, Unavailable
from dejaqueue_client.filters import topic_path
from dejaqueue_client.held import RETURNED, Fate, Held, Leased
from dejaqueue_client.inputs import pieces
from dejaqueue_client.limits import LEASE_ROWS_MAX
from dejaqueue_client.model import RowStatus
from dejaqueue_client.results import statuses_in
from dejaqueue_client.topic_names import parse_subscription

log = logging.getLogger("dejaqueue_client")

PENDING_MAX = 2_000
"""Acks that wait; with more the caller sends them itself, so that memory is bounded."""


class AsyncLeases:
    """What one consumer holds, and its upkeep.

    Attributes:
        is_ending: nothing more is handed over.
        is_over: the iteration has ended; what was handed over can still be settled.
    """

    def __init__(self, connection: AsyncConnection, options: ConsumeOptions) -> None:
        self.options = options
        self.held = Held(is_acked=options.auto_ack)
        self.is_ending = self.is_over = False
        self._connection = connection
        self._path = topic_path(options.source)
        self._left = options.max_messages
        self._is_open = self._is_closed = False
        self._sending = waiting.Mutex()
        self._work = waiting.Bell()
        self._room = waiting.Bell()
        self._drained = waiting.Bell()
        self._upkeep: waiting.Ongoing | None = None

    @property
    def is_open(self) -> bool:
        """True from the first message, or `open`, on."""
        return self._is_open

    async def open(self) -> None:
        """Ask how long leases are, and begin the upkeep. Raises TopicUnknown, Unavailable."""
        if self._is_open:
            return
        if self._is_closed:
            raise Unavailable("the consumer is closed")
        topic, subscription = parse_subscription(self.options.source)
        settings = await self._connection.ask("GET", topic_path(topic))
        if subscription:
            own = settings.get("subscriptions", {}).get(subscription)
            if own is None:
                raise TopicUnknown(self.options.source)
            settings |= own
        self.held.lease_ms = self.options.lease_ms or int(settings["lease_ms"])
        self._is_open = True
        self._upkeep = waiting.start(self._keep_up)
        waiting.close_at_exit(self)

    # --- taking --------------------------------------------------------------------------------

    async def take(self, rows_max: int) -> list[Leased]:
        """Messages to hand over, as soon as there are some; none = the end."""
        if not self.is_ending:
            await self.open()
        idle_ms, idle_from_s, has_looked = self.options.idle_ms, time.monotonic(), False
        while True:
            self.held.raise_error()
            if self.is_ending or self._left == 0:
                break
            most = rows_max if self._left is None else min(rows_max, self._left)
            taken = self.held.take(most, time.monotonic())
            if taken:
                return self._hand_over(taken)
            wait_ms = waiting.POLL_MS
            if idle_ms is not None:
                left_ms = idle_ms - int((time.monotonic() - idle_from_s) * 1_000)
                if left_ms <= 0 and has_looked:
                    break
                wait_ms = max(0, min(wait_ms, left_ms))
            room = self._room_left()
            if room <= 0:
                await self._room.wait(wait_ms / 1_000)
                continue
            rows = await waiting.unless(self._drained, self._lease, room, wait_ms)
            has_looked = True
            if rows:
                self.held.add(rows, time.monotonic())
                self._work.ring()  # when its leases are half over is another time now
        await self.finish()
        self.held.raise_error()
        return []

    def _hand_over(self, taken: list[Leased]) -> list[Leased]:
        if self._left is not None:
            self._left -= len(taken)
        if self.options.auto_ack:
            self.held.forget(taken)
        return taken

    def _room_left(self) -> int:
        """How many messages may be asked for."""
        room = self.options.prefetch
        if self.options.until_settled:
            room -= self.held.open_count()
        if self._left is not None:
            room = min(room, self._left)
        return min(room, LEASE_ROWS_MAX)

    async def _lease(self, rows_max: int, wait_ms: int) -> list[dict[str, Any]]:
        body: dict[str, Any] = {
            "max": rows_max,
            "wait_ms": wait_ms,
            "lease_ms": self.held.lease_ms,
            "consumer": self.options.name,
            **self.options.tags,
        }
        if self.options.auto_ack:
            body["auto_ack"] = True
        answer = await self._connection.ask(
            "POST", f"{self._path}/lease", body, wait_seconds=wait_ms / 1_000
        )
        rows: list[dict[str, Any]] = answer["messages"]
        return rows

    # --- settling ------------------------------------------------------------------------------

    async def settle(self, fate: Fate, leased: Sequence[Leased]) -> list[RowStatus]:
        """Say what becomes of messages; the status of each, when that is durable."""
        self.held.raise_error()
        if self.options.auto_ack:
            if fate.op != "ack":
                limit = "a message that is leased; with auto_ack it is done"
                raise BadRequest(fate.op, limit, None)
            return [RowStatus.OK] * len(leased)
        if fate.op != "extend":
            self.held.forget(leased)
        asked_s = time.monotonic()
        statuses = await self._send(fate, leased)
        if fate.op == "extend":
            lease_ms = dict(fate.more)["lease_ms"]
            for one, status in zip(leased, statuses, strict=True):
                if status is RowStatus.OK:
                    one.extend(lease_ms, asked_s)
        self._room.ring()
        self._work.ring()
        return statuses

    async def settle_soon(self, fate: Fate, leased: Leased) -> None:
        """Say what becomes of a message, and wait for no answer."""
        self.held.raise_error()
        if self.options.auto_ack:
            await self.settle(fate, [leased])
            return
        waits = self.held.settle_soon(fate, leased)
        self._room.ring()
        if waits >= PENDING_MAX or self._is_closed:
            await self.flush()
        else:
            self._work.ring()

    async def flush(self) -> None:
        """Send acks that wait. An error is kept for the next call."""
        async with self._sending:
            for fate, leased in self.held.gathered().items():
                try:
                    await self._send(fate, leased)
                except DejaQError as error:
                    self.held.fail(error)

    async def _send(self, fate: Fate, leased: Sequence[Leased]) -> list[RowStatus]:
        statuses: list[RowStatus] = []
        for part in pieces(leased):
            body = {"messages": [one.named() for one in part], **dict(fate.more)}
            answer = await self._connection.ask("POST", f"{self._path}/{fate.op}", body)
            statuses += statuses_in(answer["messages"])
        return statuses

    # --- upkeep --------------------------------------------------------------------------------

    async def _keep_up(self) -> None:
        """Send acks, and extend leases, until the consumer is closed."""
        while not self._is_closed:
            await self._work.wait(self._seconds_left())
            await self.flush()
            if self._is_closed or not self.options.auto_extend:
                continue
            leased = self.held.due_for_extension(time.monotonic())
            if not leased:
                continue
            asked_s = time.monotonic()
            fate = Fate("extend", (("lease_ms", self.held.lease_ms),))
            try:
                self.held.extended(leased, await self._send(fate, leased), asked_s)
            except Unavailable as error:
                log.warning("%s: leases were not extended: %s", self.options.source, error)
            except DejaQError as error:
                self.held.fail(error)
                self.held.forget(leased)
        await self._end()

    def _seconds_left(self) -> float | None:
        """How long until something is to be done that nobody rings for; None = for ever."""
        if not self.options.auto_extend:
            return None
        half_s = self.held.next_extension_s()
        return None if half_s is None else max(0.0, half_s - time.monotonic())

    async def _end(self) -> None:
        """Send what waits, give back the rest."""
        await self.flush()
        back = self.held.put_back(also_open=True)
        if back and not self.options.auto_ack:
            with suppress(DejaQError):  # their leases end by themselves
                await self._send(RETURNED, back)

    # --- the end -------------------------------------------------------------------------------

    def drain(self) -> None:
        """Take nothing new. From any thread, and from a signal's handler."""
        self.is_ending = True
        self._drained.ring_anywhere()
        self._room.ring_anywhere()

    async def finish(self) -> None:
        """The iteration is over: acks are sent, what was not handed over goes back."""
        self.is_ending = self.is_over = True
        await self.flush()
        back = self.held.put_back(also_open=False)
        if back and not self.options.auto_ack:
            with suppress(DejaQError):
                await self._send(RETURNED, back)
        if not self.held.open_count():
            await self.close()

    def abandon(self) -> None:
        """Nobody has the consumer any more: its upkeep ends it."""
        if self._is_open and not self._is_closed:
            self._is_closed = True
            self._work.ring_anywhere()

    async def close(self) -> None:
        """Send acks that wait, give back all that is not settled. Twice is fine."""
        self._is_closed = self.is_ending = self.is_over = True
        self._drained.ring()
        self._work.ring()
        if self._upkeep is not None:
            await waiting.join(self._upkeep)
