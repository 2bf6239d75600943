"""The asynchronous client: what a program with an event loop uses.

Room: client. The source of _sync/client.py (scripts/generate_sync_client.py): change this one.
Holds: nothing here blocks the loop; a send that has returned is durable (rule 1).
See: client/core.py for what does not wait; docs/wire.md for what travels.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Unpack, overload

from dejaqueue.client import tracing
from dejaqueue.client._aio import waiting
from dejaqueue.client._aio.browse import AsyncBrowsing
from dejaqueue.client._aio.changes import AsyncChanges
from dejaqueue.client._aio.consumer import (
    AsyncBatchConsumer,
    AsyncConsumer,
    AsyncMessage,
    check_consumer,
)
from dejaqueue.client._aio.cron import AsyncCron
from dejaqueue.client._aio.keys import AsyncKeys
from dejaqueue.client._aio.letters import AsyncLetters
from dejaqueue.client._aio.producer import AsyncProducer
from dejaqueue.client._aio.transaction import AsyncTransaction
from dejaqueue.client._aio.uploads import AsyncUploads
from dejaqueue.client.browsing import begun_at, tags_of
from dejaqueue.client.connection_watch import OnConnection
from dejaqueue.client.consuming.consume_settings import ConsumeSettings
from dejaqueue.client.consuming.work import WorkOptions, check_concurrency, prefetch_of
from dejaqueue.client.core import ClientCore
from dejaqueue.client.credentials import Tls
from dejaqueue.client.results import SendResult
from dejaqueue.client.sending.content import NOTHING
from dejaqueue.client.sending.inputs import delay_ms_of
from dejaqueue.client.sending.sent import row_of
from dejaqueue.client.stats import BrokerStats, TopicStats
from dejaqueue.client.streamed import Source, is_source
from dejaqueue.client.topic_settings import LiveSettings, SubscriptionSettings, TopicSettings
from dejaqueue.client.transacting import TransactionCore
from dejaqueue.client.transport import Transport
from dejaqueue.clock import Clock
from dejaqueue.errors import BadRequest
from dejaqueue.limits import PRODUCER_WINDOW_BATCHES
from dejaqueue.model import CHANGEABLE, Topic, no_setting
from dejaqueue.subscriptions import check_subscription_name
from dejaqueue.topic_names import check_served_name, check_topic_name, subscription_name
from dejaqueue.wire.descriptors import ConsumeStream, WriteStream

URL_DEFAULT = "dejaq://localhost:7464"


class AsyncClient(AsyncBrowsing, AsyncChanges, AsyncLetters, AsyncKeys, AsyncUploads):
    """A connection to a DejaQ broker.

    Args:
        url: `dejaq://host:port`; `dejaqs://` for TLS. Of a cluster any broker will do; with
            several, `dejaq://a:7464,b:7464`, the client also starts where one is down;
            `dejaq+dns://name:7464` finds all by a name, `dejaq+srv://name` by SRV records.
        name: a name for the broker's logs.
        api_key: what `dejaq key create` printed; None = the broker needs none.
        tls: files for `dejaqs://`, beside or instead of the system's.
        retry_ms_max: how long a call that finds no broker is tried again, milliseconds.
        transport: another way to a broker than Flight; `url` is not used then.
        clock: the clock to measure the broker's against; for tests.
        on_connection: called with a ConnectionChange when the connection is lost, and when it is
            found again; on a thread of its own, one change after the other.

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
        transport: Transport | None = None,
        clock: Clock | None = None,
        on_connection: OnConnection | None = None,
    ) -> None:
        if transport is None:
            # Imported late: who brings a transport of its own does not load gRPC.
            from dejaqueue.client.routed_transport import connect

            transport, where = connect(url, api_key, tls), url
        else:
            where = type(transport).__name__
        self._core = ClientCore(
            transport, name, retry_ms_max, clock, where=where, on_connection=on_connection
        )

    def __repr__(self) -> str:
        return self._core.shown(type(self).__name__)

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
        """Check now that a broker answers. Raises Unavailable."""
        await self._action("clock", {})

    async def close(self) -> None:
        """Close consumers, wait for what is on its way, close the connection. Twice is fine."""
        await waiting.run(self._core.close)

    async def _action(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        return await waiting.result(self._core.transport.action(name, body))

    # --- topics --------------------------------------------------------------------------------

    async def create_topic(
        self, name: str, *, exist_ok: bool = True, **settings: Unpack[TopicSettings]
    ) -> Topic:
        """Create a topic.

        Args:
            name: 1 to 255 characters of `A-Z a-z 0-9 . _ -`.
            exist_ok: True = a topic of this name with these settings is what was wanted.
            settings: of `dejaqueue.Topic`, as `lease_ms=60_000`.

        Raises:
            BadRequest: a name or a value is wrong. TopicExists: it exists with other settings.
            Unavailable: no broker in time; at once with `exist_ok=False`: it may be made then.
        """
        Topic.from_dict({"name": name, **settings})
        body = {"name": name, **settings, "exist_ok": exist_ok}
        ask = self._repeat if exist_ok else self._action  # made again, it would find its own topic
        return Topic.from_answer(await ask("create_topic", body))

    async def alter_topic(self, name: str, **settings: Unpack[LiveSettings]) -> Topic:
        """Change settings of a topic while messages flow; those it can are `CHANGEABLE`.

        Raises:
            BadRequest: a name or a value is wrong. TopicUnknown: there is no such topic.
        """
        check_topic_name(name)
        for field in settings:
            if field not in CHANGEABLE:
                raise no_setting(field, CHANGEABLE, field)
        return Topic.from_answer(await self._repeat("alter_topic", {"name": name, **settings}))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and all its messages. Raises TopicUnknown."""
        await self._action("delete_topic", {"name": check_topic_name(name)})

    async def topics(self) -> list[Topic]:
        """All topics, by name."""
        found = (await self._repeat("list_topics", {}))["topics"]
        return [Topic.from_answer(values) for values in found]

    async def topic(self, name: str) -> Topic:
        """The settings of a topic. Raises TopicUnknown."""
        asked = {"name": check_topic_name(name)}
        return Topic.from_answer(await self._repeat("describe_topic", asked))

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
                `ephemeral_ms`: it ends when nobody has consumed it for so long (`subscribe`);
                `tags_any`, `tags_all`, `tags_none`: only messages with such tags are for it; and
                those settings of a topic that it may have of its own, as `lease_ms=60_000`.

        Returns:
            All its settings.

        Raises:
            BadRequest: a name or a value is wrong, or a setting is one that stays. TopicUnknown.
        """
        check_topic_name(topic)
        check_subscription_name(subscription)
        body = {"name": topic, "subscriptions": {subscription: begun_at({**settings})}}
        return dict((await self._repeat("alter_topic", body))["subscriptions"][subscription])

    async def delete_subscription(self, topic: str, subscription: str) -> None:
        """End a subscription: what only it still had is gone. Raises BadRequest, TopicUnknown."""
        check_topic_name(topic)
        check_subscription_name(subscription)
        await self._action("alter_topic", {"name": topic, "subscriptions": {subscription: None}})

    async def subscriptions(self, topic: str) -> dict[str, dict[str, Any]]:
        """The named subscriptions of a topic, with their settings. Raises TopicUnknown."""
        return (await self.topic(topic)).subscriptions

    async def assignments(self, topic: str) -> dict[str, Any]:
        """Which consumer has which partition of a topic with `assignment="exclusive"`.

        Args:
            topic: or `topic@subscription`, whose consumers are its own.

        Returns:
            `assignment`; `partitions`, a list of `partition`, `consumer` (which has it) and `next`
            (which gets it when what that one holds is settled); `standby`, those without one.

        Raises:
            TopicUnknown: there is no such topic, or no such subscription.
        """
        return await self._repeat("assignments", {"name": check_served_name(topic)})

    async def cluster(self, topic: str | None = None, *, servers: bool = False) -> dict[str, Any]:
        """Which brokers there are, and which of them serves each topic, or this one.

        Args:
            topic: this one alone; None = all.
            servers: tell of the servers beneath, too, as `servers`, each with `server`, `state`
                (`whole`, `sick` or `silent`), `leads`, `copies`, `lag` and `why`; and of a topic's
                copies on them, as `copies`. Empty where they are not JetStream's.

        Returns:
            `node`, the broker that was asked; `nodes`, each with `node`, `url`, `http_url`,
            `version` and `clock` (`ahead_ms_min`, `ahead_ms_max`: how far it is ahead of that of
            the broker that was asked; `apart`: it is off, and takes no topics; `comparing`: it has
            just come, and takes none before it has compared its clock); `topics`, each with
            `topic`, `node` ("" = nobody at the moment) and `epoch`, how often it has changed hands.
            All are empty at a broker that is alone.

        Raises:
            TopicUnknown: there is no such topic.
        """
        asked: dict[str, Any] = {} if topic is None else {"topic": topic}
        return await self._repeat("cluster", asked | ({"servers": True} if servers else {}))

    async def backup(self, url: str, *, full: bool = False) -> dict[str, Any]:
        """Begin a backup of all topics, which the broker writes by itself; in a cluster all of its
        brokers.

        Args:
            url: where to: a path of the broker's machine, from its root, or an object store.
            full: store everything, whatever earlier backups have.

        Returns:
            As `backup_progress`.

        Raises:
            BadRequest: the URL is none. Refused: one is being taken.
        """
        return await self._action("backup", {"url": url, "full": full})

    async def backup_progress(self) -> dict[str, Any]:
        """How the backup goes that was begun last.

        Returns:
            `state`: `none`, `running`, `done` or `failed`; with `done` its `id`, `cut_ms`, `bytes`,
            `new_bytes` and more, with `failed` the `error`.
        """
        return await self._repeat("backup_progress", {})

    async def standby(self) -> dict[str, Any]:
        """Whether this broker is `active` or `following`, as `state`; of a standby also `behind_ms`
        and `as_of_ms`: how far it is; `trouble`, if there is some; `standby`, its id, and `url`."""
        return await self._repeat("standby", {})

    async def promote(self) -> dict[str, Any]:
        """Have a standby take the place of the broker that it follows, which is refused from then
        on; when it serves, `as_of_ms` and `took_ms`. Raises NotActive: another standby was quicker.
        Refused: this broker is none. Unavailable: the same call goes on."""
        return await self._action("promote", {})

    def cron(self, topic: str) -> AsyncCron:
        """The entries of a cron topic: what fires when."""
        return AsyncCron(self._core, check_topic_name(topic))

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
        answer = await self._repeat("stats", {} if topic is None else {"topic": topic})
        return BrokerStats.from_answer(answer) if topic is None else TopicStats.from_answer(answer)

    # --- sending -------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        payload: bytes | str | Source | None = None,
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

        Calls that run at the same time travel together: from many at once, send is fast.

        Args:
            topic: where to.
            payload: bytes; a str is encoded as UTF-8. A file or an iterator of bytes is streamed,
                as `upload` does.
            json: instead of `payload`: a value that JSON can say, sent as compact JSON in UTF-8.
            due: not before this: a datetime with a time zone, or UTC milliseconds. None = now.
            delay: instead of `due`: from now, a timedelta or seconds.
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
        if is_source(payload):
            payload = await self.upload(topic, payload, once=True)
        if tracing.is_on() and type(headers) is not tracing.Carried:
            with tracing.Sending(topic) as span:
                message_id = await self.send(
                    topic,
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
                return span.sent(message_id)
        needs_now = delay is not None or ttl is not None
        now_ms = await waiting.run(self._core.now_ms) if needs_now else 0
        texts = key, group, priority, tags, headers
        row, kind = row_of(payload, due, delay, *texts, now_ms, expires, ttl, json)
        return await waiting.send_row(self._core.gather(topic, kind), row)

    async def send_batch(self, topic: str, messages: object, *, acks: str = "all") -> SendResult:
        """Send many messages; when this returns, they are durable (rule 1).

        Args:
            topic: where to.
            messages: a list of dicts with the arguments of `send`; a pyarrow RecordBatch or
                Table; anything with `__arrow_c_stream__` (polars, pandas from 2.2). Columns are
                payload, due, key, group, priority, tags, headers, expires, partition; all but
                payload may be left out. `due` may be timestamps with a time zone.
            acks: `all` = answered when durable; `leader` = when accepted; `none` = no answer.

        Returns:
            Ids and statuses, one per row. Rows refused for a duplicate key are in it, not raised;
            `raise_for_status()` raises them.

        Raises:
            BadRequest: a column or value is wrong. Pieces of 8,192 rows are sent one after
                another: those before the wrong one may have been sent.
            ResourceExhausted, TopicUnknown, Unavailable: as for `send`.
        """
        if tracing.is_on():
            with tracing.Sending(topic) as span:
                result = await waiting.run(self._core.send_batch, topic, messages, acks, span.carry)
                return span.sent(result)
        return await waiting.run(self._core.send_batch, topic, messages, acks)

    def producer(
        self,
        topic: str,
        *,
        batch_rows: int = 4_000,
        linger_ms: float = 5,
        window: int = 32,
        acks: str = "all",
    ) -> AsyncProducer:
        """A producer, which gathers messages into batches and gives futures.

        Args:
            topic: where to.
            batch_rows: a batch goes out when it has this many messages, or 8 MiB of payloads …
            linger_ms: … or this long after its first one; 0 = each message alone.
            window: batches on their way at most, up to 128 (rule 10).
            acks: as for `send_batch`.
        """
        WriteStream(topic, "enqueue", acks).check()
        for field, value, most in (
            ("batch_rows", batch_rows, 1 << 16),
            ("window", window, PRODUCER_WINDOW_BATCHES),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise BadRequest(field, f"a whole number from 1 to {most}", value)
        return AsyncProducer(
            partial(self._core.producer_link, topic, acks, window),
            self._core.now_ms,
            self._core.clock,
            batch_rows=batch_rows,
            linger_ms=linger_ms,
            topic=topic,
        )

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
        return AsyncTransaction(TransactionCore(self._core, delay_ms_of(timeout, "timeout")))

    async def transactions(self, topic: str) -> list[dict[str, Any]]:
        """Undecided transactions that have something staged in a topic, oldest first.

        Returns:
            For each and each partition: transaction, partition, age_ms, left_ms (until it is
            aborted), staged (messages), acked.
        """
        body = {"topic": check_topic_name(topic)}
        return list((await self._repeat("transactions", body))["transactions"])

    # --- receiving -----------------------------------------------------------------------------

    def consume(
        self,
        topic: str,
        *,
        subscription: str = "",
        prefetch: int = 1_000,
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
        """Messages one at a time, each at its due time, never before (rule 2).

        Args:
            topic: whose messages.
            subscription: as which of its subscriptions (rule 19); "" = the unnamed one.
            prefetch: messages on their way or held ahead, at most.
            until_settled: `prefetch` counts a message until it is settled, and not only until it is
                handed over: what is at work counts. For long work that others could begin.
            lease_ms: how long a message is this consumer's; 0 = as the topic says.
            auto_extend: leases are extended for as long as the consumer is open.
            auto_ack: messages are done when they are sent here: at most once, and what is on its
                way or held when this program ends is gone. Keep `prefetch` small.
            name: for the broker's logs and statistics.
            idle_ms: end when nothing came for this long; None = wait for ever.
            max_messages: end after this many.
            tags_any: only messages with at least one of these tags …
            tags_all: … and with each of these …
            tags_none: … and with none of these. Others stay for other consumers.
        """
        rows_max = min(prefetch, 1_000)
        check_consumer(prefetch, rows_max, idle_ms, max_messages)
        stream = ConsumeStream(
            subscription_name(topic, subscription),
            name or self._core.name,
            lease_ms,
            rows_max,
            auto_ack=auto_ack,
            tags_any=tags_of("tags_any", tags_any),
            tags_all=tags_of("tags_all", tags_all),
            tags_none=tags_of("tags_none", tags_none),
        )
        settings = ConsumeSettings(
            prefetch, auto_extend, self._core.retry_ms_max, max_messages, until_settled
        )
        core = self._core.consumer(stream, settings)
        return AsyncConsumer(core, rows_max, idle_ms, max_messages)

    def consume_batches(
        self,
        topic: str,
        *,
        subscription: str = "",
        batch_rows: int = 1_000,
        prefetch: int = 10_000,
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
    ) -> AsyncBatchConsumer:
        """Messages in batches of at most `batch_rows`, each when all of it is due.

        Arguments are those of `consume`. A batch is acked as one: that is the fast way.
        """
        check_consumer(prefetch, batch_rows, idle_ms, max_messages)
        stream = ConsumeStream(
            subscription_name(topic, subscription),
            name or self._core.name,
            lease_ms,
            batch_rows,
            auto_ack=auto_ack,
            tags_any=tags_of("tags_any", tags_any),
            tags_all=tags_of("tags_all", tags_all),
            tags_none=tags_of("tags_none", tags_none),
        )
        settings = ConsumeSettings(
            prefetch, auto_extend, self._core.retry_ms_max, max_messages, until_settled
        )
        core = self._core.consumer(stream, settings)
        return AsyncBatchConsumer(core, batch_rows, idle_ms, max_messages)

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
        self._core.drain()
