"""Browsing with the asynchronous client: peek, counts, histogram; move and cancel by filter.

Room: client. The source of _sync/browse.py (scripts/generate_sync_client.py): change this one.
See: client/browsing.py for what does not wait; docs/guides/browsing.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Unpack

import pyarrow as pa

from dejaqueue.client import browsing, erasure, message_history
from dejaqueue.client._aio import waiting
from dejaqueue.client.browsing import DueHistogram, SeekResult, Where
from dejaqueue.client.core import ClientCore
from dejaqueue.client.erasure import ErasureReport
from dejaqueue.client.looking import Looks
from dejaqueue.client.message_history import MessageHistory
from dejaqueue.client.message_view import MessageView, view_of
from dejaqueue.client.topic_settings import SubscriptionSettings


class AsyncBrowsing:
    """The part of a client that looks at many messages at once, and changes them."""

    _core: ClientCore

    async def _repeat(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """A call that may be made twice."""
        return await waiting.repeat(self._core, name, body)

    async def peek(
        self,
        topic: str,
        *,
        limit: int = 100,
        ids: Sequence[int] | None = None,
        keys: Sequence[str] | None = None,
        **where: Unpack[Where],
    ) -> pa.Table:
        """Messages as they are, without leasing them.

        By due time in timelines; by id in priority and fair topics, and for states that do not
        wait for a time. A page costs the same wherever it lies; others may come and go meanwhile.

        Args:
            topic: whose messages.
            limit: rows at most; more than 10,000 are fetched page by page.
            ids, keys: only these.
            where: which ones: `due_from`, `due_to`, `state`, `group`, `tags_any`, `tags_all`,
                `tags_none`, `priority_from`, `priority_to` (client/browsing.py, Where). Without
                a `state`, those that wait or are leased.

        Returns:
            A table of schema PEEK: id, due, attempts, key, group, priority, tags, headers,
            payload, state, consumer (of a leased one: who has it, where it is known). Where large
            payloads cannot be read now, these are null, and a column `unread` says why.
        """
        ticket = browsing.check_peek(topic, limit, ids, keys, {**where})
        return await waiting.run(browsing.peek, Looks(self._core), ticket, limit)

    async def get(
        self,
        topic: str,
        *,
        id: int | None = None,  # noqa: A002 - the field's name
        key: str | None = None,
    ) -> MessageView | None:
        """One message as it is, without leasing it.

        Args:
            topic: whose message.
            id, key: one of the two.

        Returns:
            Its state, due time, attempts, payload and the rest; None = there is no live message
            of this id or key: it never was, or it is done, cancelled or dead.

        Raises:
            TopicUnknown: there is no such topic.
        """
        ticket = browsing.check_get(topic, id, key)
        table = await waiting.run(browsing.peek, Looks(self._core), ticket, 1)
        rows = table.to_pylist()
        return view_of(rows[0]) if rows else None

    async def history(self, topic: str, id: int) -> MessageHistory:  # noqa: A002 - the field's name
        """What happened to a message, and when; of one that is done, too.

        It is recorded where the topic's setting `history` is on; where it is off nothing is known
        of the message, which is no error.

        Args:
            topic: whose message.
            id: of the message.

        Raises:
            TopicUnknown: there is no such topic.
        """
        body = message_history.check_history(topic, id)
        return await waiting.run(message_history.ask, Looks(self._core), body)

    async def counts(self, topic: str, *, by: str = "state", limit: int = 100) -> dict[str, int]:
        """How many live messages there are of each state, group or tag, most first.

        Args:
            topic: whose messages.
            by: `state`, `group` or `tag`. A message with two tags counts for both; messages
                without a group or tag are left out.
            limit: groups or tags at most.
        """
        return await waiting.run(browsing.counts, Looks(self._core), topic, by, limit)

    async def histogram(
        self,
        topic: str,
        *,
        bucket: timedelta | float,
        exact: bool = True,
        **where: Unpack[Where],
    ) -> DueHistogram:
        """How many messages are due in each stretch of time: what load is to come.

        Args:
            topic: whose messages.
            bucket: how long a stretch is, seconds or a timedelta; 10,000 of them at most.
            exact: False = from the order index alone, in no time; says how far it may be off.
            where: `due_from` and `due_to` (both needed), and more as for `peek`.
        """
        body = browsing.check_histogram(topic, bucket, {**where}, exact=exact)
        return await waiting.run(browsing.histogram, Looks(self._core), body)

    async def move_where(
        self,
        topic: str,
        *,
        due: datetime | int | None = None,
        by: timedelta | float | None = None,
        window: tuple[datetime | int, datetime | int] | None = None,
        set_priority: int | None = None,
        set_group: str | None = None,
        dry_run: bool = False,
        **where: Unpack[Where],
    ) -> int:
        """Move all messages that a filter selects and that are not leased (rule 9).

        Each is moved once. Messages that are sent meanwhile may be left alone.

        Args:
            topic: whose messages.
            due: their new due time.
            by: instead of `due`: how much later, seconds or a timedelta; negative = earlier.
            window: instead of `due`: evenly from the first time on and before the second one, about
                in the order that they have.
            set_priority, set_group: their new priority and group.
            dry_run: change nothing, count only.
            where: which ones, as for `peek`.

        Returns:
            How many it were.

        Raises:
            Unavailable: the connection broke in the middle: some are moved, some are not. A move
                to a fixed time, or into a window, may be asked for again; one by a shift would move
                some twice.
        """
        body = browsing.check_change(topic, due, by, set_priority, set_group, {**where}, window)
        transport = self._core.transport
        return await waiting.run(_change, transport, "move_where", body, dry_run)

    async def cancel_where(
        self, topic: str, *, dry_run: bool = False, **where: Unpack[Where]
    ) -> int:
        """Cancel all messages that a filter selects and that are not leased (rule 9).

        Args:
            topic: whose messages.
            dry_run: cancel nothing, count only.
            where: which ones, as for `peek`; none = everything.

        Returns:
            How many it were.

        Raises:
            Unavailable: the connection broke in the middle; ask again.
        """
        body = browsing.check_where(topic, {**where})
        transport = self._core.transport
        return await waiting.run(_change, transport, "cancel_where", body, dry_run)

    async def purge(self, topic: str) -> int:
        """Cancel everything that is not leased; return how many. The topic stays."""
        return await self.cancel_where(topic)

    async def erase(
        self,
        topic: str,
        *,
        keys: Sequence[str] | None = None,
        ids: Sequence[int] | None = None,
        letters: bool = True,
        **where: Unpack[Where],
    ) -> ErasureReport:
        """End messages, and have every byte of them deleted; of those that are done, too.

        Returns when no file of the broker has them: journals, snapshots, history, the payload
        store (rule 23). A few seconds, and longer where much else is live beside them. Who has one
        of them leased loses the lease.

        Args:
            topic: whose messages.
            keys: of these keys; dead letters go by the key of their message.
            ids: instead of keys: with these ids; dead letters go by the id of their message.
            letters: those of this topic in its dead-letter topics, too.
            where: instead of keys: which ones, as for `peek`, but without `state`. What is done
                is judged by what it was when it was sent.

        Returns:
            How much it was, and which backups still have it.

        Raises:
            Refused: the journals are in a bucket. Unavailable: no broker in time; ask again.
        """
        body = erasure.check_erase(topic, keys, ids, {**where})
        return await waiting.run(erasure.erase, Looks(self._core), body, letters)

    async def seek(
        self,
        topic: str,
        subscription: str = "",
        *,
        to: Literal["beginning", "end"] | datetime | int,
        **where: Unpack[Where],
    ) -> SeekResult:
        """Have a subscription get messages again, or pass over what waits (rule 21).

        What is in its order from that place on, is retained, and is done there, comes back, with
        the same ids; what waits for before that place is done. What is leased stays so. With a
        filter this is about the messages that it selects; all others stay as they are.

        Args:
            topic: whose messages; with `retention_ms`, or nothing comes back.
            subscription: which one; "" = the unnamed one.
            to: `beginning`, `end`, or a time: a datetime with a time zone, or UTC milliseconds. In
                order of `arrival` it is when messages came in, else when they are due.
            where: about which messages, as for `peek`, but without `state`; none = all.

        Returns:
            How many came back, and how many were passed over.

        Raises:
            Unavailable: the connection broke in the middle; ask again.
        """
        body = browsing.check_seek(topic, subscription, to, {**where})
        return await waiting.run(browsing.seek, self._core.transport, body)

    async def subscribe(
        self,
        topic: str,
        subscription: str = "",
        **settings: Unpack[SubscriptionSettings],
    ) -> str:
        """Give a topic a subscription that ends by itself when nobody consumes it any more.

        For who listens for a while, and wants each message beside all others. It stays for as long
        as somebody consumes it, or has messages of it in hand, and for a time after that; then it
        ends, with what only it still had. Who comes later than that gets TopicUnknown.

        Args:
            topic: whose messages.
            subscription: its name; "" = one that nobody else has.
            settings: as for `create_subscription`; `ephemeral_ms`, how long it stays without
                consumers, also before the first one comes, is a minute if it is not given.

        Returns:
            Its name, for `consume(topic, subscription=…)`.

        Raises:
            BadRequest: a name or a value is wrong. TopicUnknown.
        """
        name = subscription or browsing.ephemeral_name()
        body = browsing.check_subscribe(topic, name, {**settings})
        await waiting.run(browsing.subscribe, Looks(self._core), body)
        return name


def _change(transport: browsing.Caller, name: str, body: dict[str, object], dry_run: bool) -> int:
    return browsing.change(transport, name, body, dry_run=dry_run)
