"""The asynchronous client: what a program with an event loop uses.

Room: client. The source of _sync/client.py (scripts/generate_sync_client.py): change this one.
Holds: nothing here blocks the loop; a send that has returned is durable (rule 1).
See: connection.py for what is tried again; docs/guides/light-client.md.
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Unpack, overload

from dejaqueue_client._aio.browse import AsyncBrowsing
from dejaqueue_client._aio.changes import AsyncChanges
from dejaqueue_client._aio.connection import AsyncConnection, lines_of
from dejaqueue_client._aio.consumer import AsyncBatchConsumer, AsyncConsumer, AsyncMessage
from dejaqueue_client._aio.cron import AsyncCron
from dejaqueue_client._aio.keys import AsyncKeys
from dejaqueue_client._aio.leases import AsyncLeases
from dejaqueue_client._aio.letters import AsyncLetters
from dejaqueue_client._aio.transaction import AsyncTransaction
from dejaqueue_client.broker_urls import URL_DEFAULT
from dejaqueue_client.consume_options import PREFETCH, consume_options
from dejaqueue_client.content import NOTHING
from dejaqueue_client.errors import BadRequest, Unavailable
from dejaqueue_client.filters import topic_path
from dejaqueue_client.inputs import check_whole, due_ms_of, message_of, pieces_of
from dejaqueue_client.limits import INSTANT_MS_MAX
from dejaqueue_client.model import CHANGEABLE, Topic, no_setting
from dejaqueue_client.results import SendResult, sent_rows
from dejaqueue_client.stats import BrokerStats, TopicStats
from dejaqueue_client.subscriptions import check_subscription_name
from dejaqueue_client.tls import Tls
from dejaqueue_client.topic_names import check_topic_name
from dejaqueue_client.topic_settings import LiveSettings, SubscriptionSettings, TopicSettings
from dejaqueue_client.work import WorkOptions, check_concurrency, prefetch_of

EPHEMERAL_MS = 60_000
"""How long a subscription of `subscribe` stays without consumers."""


class AsyncClient(AsyncBrowsing, AsyncChanges, AsyncLetters, AsyncKeys):
    """A connection to a DejaQ broker, over HTTP.

    Args:
        url: `http://host:port`; `https://` for TLS. Of a cluster any broker will do; with several,
            `http://a:7465,b:7465`, a call goes to the next one where one is down.
        name: a name for the broker's logs and statistics of consumers.
        api_key: what `dejaq key create` printed; None = the broker needs none.
        tls: files for `https://`, in place of the usual certificates.
        retry_ms_max: how long a call that finds no broker is tried again, milliseconds.

    Example:
        >>> async def main():                                          # doctest: +SKIP
        ...     async with AsyncClient() as client:
        ...         await client.create_topic("reminders")
        ...         await client.send("reminders", b"tea is ready", delay=180)
        ...         async for message in client.consume("reminders"):
        ...             print(message.payload)
        ...             await message.ack()
    """

    def __init__(
        self,
        url: str = URL_DEFAULT,
        *,
        name: str = "",
        api_key: str | None = None,
        tls: Tls | None = None,
        retry_ms_max: int = 30_000,
    ) -> None:
        check_whole("retry_ms_max", retry_ms_max, 0, INSTANT_MS_MAX)
        self._connection = AsyncConnection(url, api_key, tls, retry_ms_max)
        self._name = name
        self._consumers: weakref.WeakSet[AsyncLeases] = weakref.WeakSet()

    def __repr__(self) -> str:
        state = "closed" if self._connection.is_closed else "open"
        return f"<{type(self).__name__} to {','.join(self._connection.urls)}, {state}>"

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Check now that a broker answers, and takes work. Raises Unavailable."""
        await self._connection.ask("GET", "/readyz")

    async def close(self) -> None:
        """Close consumers, then the connections. Twice is fine."""
        for consumer in list(self._consumers):
            await consumer.close()
        await self._connection.close()

    # --- topics --------------------------------------------------------------------------------

    async def create_topic(
        self, name: str, *, exist_ok: bool = True, **settings: Unpack[TopicSettings]
    ) -> Topic:
        """Create a topic.

        Args:
            name: 1 to 255 characters of `A-Z a-z 0-9 . _ -`.
            exist_ok: True = a topic of this name with these settings is what was wanted.
            settings: of `dejaqueue_client.Topic`, as `lease_ms=60_000`.

        Raises:
            BadRequest: a name or a value is wrong. TopicExists: it exists with other settings.
        """
        Topic.from_dict({"name": name, **settings})
        body = {"name": name, **settings, "exist_ok": exist_ok}
        # Sent again, the topic that it made is what was wanted, or the one that was there.
        answer = await self._connection.ask("POST", "/v1/topics", body, repeats=exist_ok)
        return Topic.from_answer(answer)

    async def alter_topic(self, name: str, **settings: Unpack[LiveSettings]) -> Topic:
        """Change settings of a topic while messages flow; those it can are `CHANGEABLE`.

        Raises:
            BadRequest: a name or a value is wrong. TopicUnknown: there is no such topic.
        """
        check_topic_name(name)
        for field in settings:
            if field not in CHANGEABLE:
                raise no_setting(field, CHANGEABLE, field)
        return Topic.from_answer(await self._connection.ask("PATCH", topic_path(name), settings))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and all its messages. Raises TopicUnknown."""
        await self._connection.ask("DELETE", topic_path(check_topic_name(name)), repeats=False)

    async def topics(self) -> list[Topic]:
        """All topics, by name."""
        answer = await self._connection.ask("GET", "/v1/topics")
        return [Topic.from_answer(values) for values in answer["topics"]]

    async def topic(self, name: str) -> Topic:
        """The settings of a topic. Raises TopicUnknown."""
        path = topic_path(check_topic_name(name))
        return Topic.from_answer(await self._connection.ask("GET", path))

    async def pause_topic(self, name: str) -> Topic:
        """Hand out nothing of a topic until it is resumed; producers go on, leases stay valid."""
        return await self.alter_topic(name, paused=True)

    async def resume_topic(self, name: str) -> Topic:
        """Hand out the messages of a paused topic again, at once."""
        return await self.alter_topic(name, paused=False)

    async def create_subscription(
        self, topic: str, subscription: str, **settings: Unpack[SubscriptionSettings]
    ) -> dict[str, Any]:
        """Give a topic a subscription, or change settings of one that it has.

        Each message of the topic is for each of its subscriptions once, in an order of its own
        (rule 19). Consume it with `consume(topic, subscription=…)`; its numbers are those of
        `stats("topic@subscription")`.

        Args:
            topic: whose messages.
            subscription: 1 to 64 characters of `A-Z a-z 0-9 . _ -`.
            settings: `order` (`due`, `priority`, `groups` or `arrival`; by default the topic's) and
                `start` (`new`; `live`: with all that the topic has; `beginning`: with all that it
                retains, too; or a time: with what is from then on in its order), which stay;
                `tags_any`, `tags_all`, `tags_none`: only messages with such tags are for it; and
                those settings of a topic that it may have of its own, as `lease_ms=60_000`.

        Returns:
            All its settings.

        Raises:
            BadRequest: a name or a value is wrong, or a setting is one that stays. TopicUnknown.
        """
        path = topic_path(check_topic_name(topic))
        check_subscription_name(subscription)
        values: dict[str, Any] = {**settings}
        if isinstance(values.get("start"), datetime):
            values["start"] = due_ms_of(values["start"], "start")
        body = {"subscriptions": {subscription: values}}
        answer = await self._connection.ask("PATCH", path, body)
        return dict(answer["subscriptions"][subscription])

    async def subscribe(
        self, topic: str, subscription: str = "", **settings: Unpack[SubscriptionSettings]
    ) -> str:
        """Give a topic a subscription that ends by itself when nobody consumes it any more.

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
        name = subscription or f"ephemeral-{uuid.uuid4().hex[:16]}"
        if settings.get("ephemeral_ms") == 0:
            raise BadRequest("ephemeral_ms", "how long it outlives its consumers", 0)
        own: SubscriptionSettings = {"ephemeral_ms": EPHEMERAL_MS, **settings}
        await self.create_subscription(topic, name, **own)
        return name

    async def delete_subscription(self, topic: str, subscription: str) -> None:
        """End a subscription: what only it still had is gone. Raises BadRequest, TopicUnknown."""
        path = topic_path(check_topic_name(topic))
        check_subscription_name(subscription)
        body = {"subscriptions": {subscription: None}}
        await self._connection.ask("PATCH", path, body, repeats=False)

    async def subscriptions(self, topic: str) -> dict[str, dict[str, Any]]:
        """The named subscriptions of a topic, with their settings. Raises TopicUnknown."""
        return (await self.topic(topic)).subscriptions

    async def assignments(self, topic: str) -> dict[str, Any]:
        """Which consumer has which partition of a topic with `assignment="exclusive"`.

        Returns:
            `assignment`; `partitions`, a list of `partition`, `consumer` (which has it) and `next`
            (which gets it when what that one holds is settled); `standby`, those without one.

        Raises:
            TopicUnknown: there is no such topic.
        """
        path = f"{topic_path(check_topic_name(topic))}/assignments"
        return dict(await self._connection.ask("GET", path))

    async def cluster(self, topic: str | None = None, *, servers: bool = False) -> dict[str, Any]:
        """Which brokers there are, and which of them serves each topic, or this one.

        Args:
            topic: this one alone; None = all.
            servers: tell of the servers beneath, too.

        Returns:
            `node`, the broker that was asked; `nodes`; `topics`, each with the `node` that serves
            it. All are empty at a broker that is alone.

        Raises:
            TopicUnknown: there is no such topic.
        """
        asked: dict[str, Any] = {} if topic is None else {"topic": topic}
        asked |= {"servers": True} if servers else {}
        return dict(await self._connection.ask("GET", "/v1/cluster", parameters=asked))

    async def backup(self, url: str, *, full: bool = False) -> dict[str, Any]:
        """Begin a backup of all topics, which the broker writes by itself.

        Args:
            url: where to: a path of the broker's machine, from its root, or an object store.
            full: store everything, whatever earlier backups have.

        Returns:
            As `backup_progress`.

        Raises:
            BadRequest: the URL is none. Refused: one is being taken; a broker of a cluster.
        """
        body = {"url": url, "full": full}
        return dict(await self._connection.ask("POST", "/v1/backups", body, repeats=False))

    async def backup_progress(self) -> dict[str, Any]:
        """How the backup goes that was begun last.

        Returns:
            `state`: `none`, `running`, `done` or `failed`; with `done` its `id`, `cut_ms`, `bytes`,
            `new_bytes` and more, with `failed` the `error`.
        """
        return dict(await self._connection.ask("GET", "/v1/backups/progress"))

    async def standby(self) -> dict[str, Any]:
        """Which part of two sites this broker has.

        Returns:
            `state`: `active`, `following` or `promoting`; of a standby also its id as `standby`,
            the `url` of the archive, `behind_ms`, `as_of_ms`, and `trouble` if there is some.
        """
        return dict(await self._connection.ask("GET", "/v1/standby"))

    async def promote(self) -> dict[str, Any]:
        """Have a standby take the place of the broker that it follows, which is refused from then
        on.

        Returns:
            When it serves: `as_of_ms`, up to when it has all that the other one acknowledged, and
            `took_ms`.

        Raises:
            NotActive: another standby was promoted before. Refused: this broker is no standby.
        """
        return dict(await self._connection.ask("POST", "/v1/standby/promotion"))

    def cron(self, topic: str) -> AsyncCron:
        """The entries of a cron topic: what fires when."""
        return AsyncCron(self._connection, check_topic_name(topic))

    @overload
    async def stats(self, topic: str) -> TopicStats: ...

    @overload
    async def stats(self, topic: None = None) -> BrokerStats: ...

    @overload
    async def stats(self, topic: str | None) -> TopicStats | BrokerStats: ...

    async def stats(self, topic: str | None = None) -> TopicStats | BrokerStats:
        """Counts of the broker, or of one topic. Raises TopicUnknown.

        Returns:
            `TopicStats` of a topic; `BrokerStats` of the broker, with those of all its topics.
        """
        if topic is None:
            return BrokerStats.from_answer(await self._connection.ask("GET", "/v1/stats"))
        path = f"{topic_path(topic)}/stats"
        return TopicStats.from_answer(await self._connection.ask("GET", path))

    # --- sending -------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
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
    ) -> int:
        """Send one message; when this returns, it is durable (rule 1).

        A request that has to be sent again is the same one to the broker: it is carried out once.

        Args:
            topic: where to.
            payload: bytes; a str is encoded as UTF-8.
            json: instead of `payload`: a value that JSON can say, sent as compact JSON in UTF-8.
            due: not before this: a datetime with a time zone, or UTC milliseconds. None = now.
            delay: instead of `due`: from when the broker has it, a timedelta or seconds.
            key: your own id of it, unique among live messages of the topic (rule 11).
            group: tenant or ordering unit.
            priority: 0 is most urgent; None = 32768.
            tags: at most 16 words.
            headers: at most 4 KiB, carried untouched.
            expires: if it is not done by then it is dead, and goes to the dead-letter topic.
            ttl: instead of `expires`: from its due time on, a timedelta or seconds.

        Returns:
            Its id.

        Raises:
            DuplicateKey: a live message has this key.
            BadRequest: a value is wrong; the text names field, limit and value.
            TopicUnknown: there is no such topic.
            ResourceExhausted: the topic is full, try later (rule 14).
            Unavailable: no broker in time; the outcome is unknown.
        """
        given = {
            "payload": payload,
            "json": json,
            "due": due,
            "delay": delay,
            "key": key,
            "group": group,
            "priority": priority,
            "tags": tags,
            "headers": headers,
            "expires": expires,
            "ttl": ttl,
        }
        message, _ = message_of(given)
        path = f"{topic_path(check_topic_name(topic))}/messages"
        answer = await self._connection.ask("POST", path, message, name=uuid.uuid4().hex)
        return int(answer["id"])

    async def send_batch(self, topic: str, messages: object) -> SendResult:
        """Send many messages; when this returns, they are durable (rule 1).

        Args:
            topic: where to.
            messages: dicts with the arguments of `send`, and `partition`; bytes or str: payloads.

        Returns:
            Ids and statuses, one per message. Messages refused for a duplicate key are in it, not
            raised; `raise_for_status()` raises them.

        Raises:
            BadRequest: a value is wrong. Pieces of 8,192 messages are sent one after another:
                those before the wrong one may have been sent.
            ResourceExhausted, TopicUnknown, Unavailable: as for `send`.
        """
        path = f"{topic_path(check_topic_name(topic))}/messages"
        whole = SendResult([], [])
        for piece in pieces_of(messages):
            name = uuid.uuid4().hex
            answer = await self._connection.ask("POST", path, lines_of(piece), name=name)
            result = sent_rows(answer["messages"])
            whole = SendResult(whole.ids + result.ids, whole.statuses + result.statuses)
        return whole

    def transaction(self, *, timeout: timedelta | float = 60) -> AsyncTransaction:
        """Sends and acks that count together, or not at all (rule 12).

        Args:
            timeout: it is aborted this long after its first send or ack, unless it was committed
                before: a timedelta or seconds, up to 15 minutes.

        Example:
            >>> async def move(client, message):                        # doctest: +SKIP
            ...     async with client.transaction() as transaction:
            ...         await transaction.send("answers", message.payload.upper())
            ...         await transaction.ack(message)
        """
        return AsyncTransaction(self._connection, timeout)

    async def transactions(self, topic: str) -> list[dict[str, Any]]:
        """Undecided transactions that have something staged in a topic, oldest first.

        Returns:
            For each and each partition: transaction, partition, age_ms, left_ms (until it is
            aborted), staged (messages), acked.
        """
        path = f"{topic_path(check_topic_name(topic))}/transactions"
        return list((await self._connection.ask("GET", path))["transactions"])

    # --- receiving -----------------------------------------------------------------------------

    def consume(
        self,
        topic: str,
        *,
        subscription: str = "",
        prefetch: int = PREFETCH,
        lease_ms: int = 0,
        auto_extend: bool = True,
        auto_ack: bool = False,
        until_settled: bool = False,
        name: str = "",
        idle_ms: int | None = None,
        max_messages: int | None = None,
        tags_any: Sequence[str] = (),
        tags_all: Sequence[str] = (),
        tags_none: Sequence[str] = (),
    ) -> AsyncConsumer:
        """Messages one at a time, each when it is due, never before (rule 2).

        Args:
            topic: whose messages.
            subscription: as which of its subscriptions (rule 19); "" = the unnamed one.
            prefetch: messages of one request, at most: those are held here until their turn.
            until_settled: `prefetch` counts a message until it is settled, and not only until it is
                handed over: what is at work counts. For long work that others could begin.
            lease_ms: how long a message is this consumer's; 0 = as the topic says now.
            auto_extend: leases are extended for as long as the consumer is open.
            auto_ack: messages are done when they are sent here: at most once, and what is on its
                way or held when this program ends is gone. Keep `prefetch` small.
            name: for the broker's logs and statistics; consumers of one name are one to the broker.
            idle_ms: end when nothing came for this long; None = wait for ever.
            max_messages: end after this many.
            tags_any: only messages with at least one of these tags …
            tags_all: … and with each of these …
            tags_none: … and with none of these. Others stay for other consumers.
        """
        given = {
            "subscription": subscription,
            "prefetch": prefetch,
            "lease_ms": lease_ms,
            "auto_extend": auto_extend,
            "auto_ack": auto_ack,
            "until_settled": until_settled,
            "name": name,
            "idle_ms": idle_ms,
            "max_messages": max_messages,
            "tags_any": tags_any,
            "tags_all": tags_all,
            "tags_none": tags_none,
        }
        return AsyncConsumer(self._leases(topic, 1, given), 1)

    def consume_batches(
        self,
        topic: str,
        *,
        subscription: str = "",
        batch_rows: int = 1_000,
        lease_ms: int = 0,
        auto_extend: bool = True,
        auto_ack: bool = False,
        name: str = "",
        idle_ms: int | None = None,
        max_messages: int | None = None,
        tags_any: Sequence[str] = (),
        tags_all: Sequence[str] = (),
        tags_none: Sequence[str] = (),
    ) -> AsyncBatchConsumer:
        """Messages in batches of at most `batch_rows`: what one request brought.

        Arguments are those of `consume`. A batch is acked as one: that is the fast way.
        """
        given = {
            "subscription": subscription,
            "prefetch": batch_rows,
            "lease_ms": lease_ms,
            "auto_extend": auto_extend,
            "auto_ack": auto_ack,
            "until_settled": False,
            "name": name,
            "idle_ms": idle_ms,
            "max_messages": max_messages,
            "tags_any": tags_any,
            "tags_all": tags_all,
            "tags_none": tags_none,
        }
        return AsyncBatchConsumer(self._leases(topic, batch_rows, given), batch_rows)

    def _leases(self, topic: str, rows_max: int, given: dict[str, Any]) -> AsyncLeases:
        if self._connection.is_closed:
            raise Unavailable("the client is closed")
        options = consume_options(topic, rows_max, given, self._name)
        leases = AsyncLeases(self._connection, options)
        self._consumers.add(leases)
        return leases

    async def run(
        self,
        topic: str,
        work: Callable[[AsyncMessage], Awaitable[object]],
        *,
        concurrency: int = 1,
        **options: Unpack[WorkOptions],
    ) -> None:
        """Work on the messages of a topic: ack when `work` returns, nack when it raises.

        Ends after `drain`, `idle_ms` or `max_messages`; see `AsyncConsumer.run`.

        Args:
            topic: whose messages.
            work: called with each message at its time.
            concurrency: how many messages are at work at the same time, at most.
            options: as for `consume`; `prefetch` is 4 for each by default, 16 at least.
        """
        options.setdefault("prefetch", prefetch_of(check_concurrency(concurrency)))
        await self.consume(topic, **options).run(work, concurrency=concurrency)

    def drain(self) -> None:
        """Drain all consumers of this client: each `run` and each iteration ends when what is at
        work is done. Returns at once; from any thread, and from a signal's handler."""
        for consumer in list(self._consumers):
            consumer.drain()
