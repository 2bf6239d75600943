"""A connection to NATS servers for threads: the library runs on an asyncio thread of its own.

Room: connections. Needs the extra `nats`.
Holds: a message is sent once. When the connection breaks, everything that waits for an answer ends
at once with Unavailable; a new connection is made, to another server if need be, and nothing
of before is sent on it. Messages of one `publish_all` go out in their order.
See: url.py; journal/records/nats/store.py.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import queue
import secrets
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from dejaqueue.clock import SteadyClock, Wake
from dejaqueue.connections.nats.answers import Reply, is_not_now, read_answer
from dejaqueue.connections.nats.url import NatsUrl
from dejaqueue.errors import Refused, Unavailable

log = logging.getLogger("dejaqueue.connections")

TIMEOUT_S = 5.0
"""No answer for so long: the outcome is unknown."""
LOOK_UP_S = (0.5, 1.5, 3.0)
"""So long is waited for the answer to a question, at the first, second and last time."""
LOOK_S = 0.2
"""So often is looked whether a connection that nobody called lost is there."""
CONNECT_S = 2.0
"""One server has so long to answer to a new connection."""
PAUSE_S, PAUSE_S_MAX = 0.05, 0.2
"""Between two rounds through all servers: at first, and when they have been away for long."""
AGAIN_S, AGAIN_S_MAX = 0.1, 3.0
"""So often, and for so long at most, is asked again what was answered with "not now"."""
BACK_S = 0.5
"""So long does a call wait for a connection that is just being made anew."""
PING_S = 2
"""A server that answers no ping of two in a row is left for another."""

Body = tuple[dict[str, str], bytes]
"""Headers and content of a message."""
_Result = TypeVar("_Result")


class Message(NamedTuple):
    """A message to be sent."""

    subject: str
    content: bytes
    headers: dict[str, str] = {}  # noqa: RUF012  nobody changes it


class NatsConnection:
    """One connection; any thread may use it."""

    def __init__(self, url: NatsUrl, servers: Sequence[str] = (), *, as_system: bool = False):
        """Connect.

        Args:
            servers: only to these of host:port, and stay with them; empty = all of the url's, and
                those that they tell of.
            as_system: as the user of the system account.

        Raises:
            Unavailable: no server answered. Refused: the extra is missing.
        """
        self.url = url
        self._new_client = _client_class()
        self._servers = tuple(servers or url.servers)
        self._pinned, self._told = bool(servers), ()
        self._login = (url.user, url.password)
        if as_system:
            self._login = (url.system_user, url.system_password)
        self._loop = asyncio.new_event_loop()
        self._closing = self._closed = False
        self._waiting: dict[str, Callable[[Reply | None], None]] = {}
        self._tokens = itertools.count(1)
        self._back: list[Callable[[], None]] = []
        self._listeners: dict[str, Callable[[Any], Awaitable[None]]] = {}
        self._heard: dict[str, Any] = {}
        self._client: Any = None
        self._keeper: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run_loop, name="nats", daemon=True)
        self._thread.start()
        try:
            self.run(self._connect(), CONNECT_S * (1 + len(self._servers)))
        except BaseException:
            self.close()
            raise

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    # --- connecting ----------------------------------------------------------------------------

    async def _connect(self) -> None:
        failure = await self._connect_any()
        if failure is not None:
            raise Unavailable(f"{self.url!r}: cannot connect: {_shown(failure)}") from failure
        self._keeper = self._loop.create_task(self._keep())

    async def _keep(self) -> None:
        """Connect again whenever the connection is lost. A pinned one stays lost."""
        pause_s = PAUSE_S
        while not self._closing:
            await self._until_lost()
            await _discard(self._client)
            if self._pinned or self._closing:
                return
            if await self._connect_any() is None:
                pause_s = PAUSE_S
                for call in list(self._back):
                    call()
            else:
                await asyncio.sleep(pause_s)  # tidy: allow sleep, because no server answered
                pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _until_lost(self) -> None:
        """Return when the connection is lost.

        The library does not tell where the last of what it had to send could not be written; so
        it is also looked at.
        """
        while not self._lost.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._lost.wait(), LOOK_S)
            if self._client.is_closed and not self._lost.is_set():
                self._lost.set()
                await self._on_lost()

    async def _connect_any(self) -> Exception | None:
        """Try each server once; None = one answered.

        The library's own reconnecting is not used: it would send what it still has to the next
        server, and a message is to be sent once.
        """
        failure: Exception = Unavailable("closed")
        for server in self.addresses:
            if self._closing:
                break
            client = self._new_client()
            try:
                await self._connect_one(client, server)
            except Exception as error:  # noqa: BLE001  whatever it is, the next may do
                failure = error
                await _discard(client)
                continue
            except asyncio.CancelledError:  # nobody has time to close it in good order
                with suppress(Exception):
                    client._transport._io_writer.transport.abort()
                raise
            self._client = client
            return None
        return failure

    async def _connect_one(self, client: Any, server: str) -> None:
        user, password = self._login
        lost = asyncio.Event()

        async def on_lost() -> None:
            lost.set()
            await self._on_lost()

        await client.connect(
            servers=[f"nats://{server}"],
            user=user or None,
            password=password or None,
            name="dejaq",
            error_cb=self._on_error,
            disconnected_cb=on_lost,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=CONNECT_S,
            ping_interval=PING_S,
            max_outstanding_pings=2,
            **({} if self.url.tls is None else {"tls": self.url.tls}),
        )
        self._inbox = f"{client.new_inbox()}."
        await client.subscribe(
            f"{self._inbox}*", cb=self._on_reply, pending_msgs_limit=0, pending_bytes_limit=0
        )
        for subject, take in list(self._listeners.items()):
            await self._hear(client, subject, take)
        told = client._server_info.get("connect_urls") or ()
        self._told = tuple(told) or self._told
        self._lost = lost

    # --- what the library tells ----------------------------------------------------------------

    async def _on_error(self, error: Exception) -> None:
        log.debug("%r: %s", self.url, _shown(error))

    async def _on_lost(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for give in waiting.values():
            give(None)

    async def _on_reply(self, message: Any) -> None:
        give = self._waiting.get(message.subject[len(self._inbox) :])
        if give is not None:
            headers = message.headers or {}
            give(Reply(message.subject, message.data, headers, message.reply or ""))

    # --- calls from threads --------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, _Result], timeout_s: float = TIMEOUT_S) -> _Result:
        """Run a coroutine on the connection's thread and wait for it. Raises Unavailable."""
        if self._closed:
            work.close()
            raise Unavailable(f"{self.url!r}: the connection is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s + 1)
        except (FutureTimeout, CancelledError) as error:
            future.cancel()
            raise Unavailable(f"{self.url!r}: no answer within {timeout_s:g} s") from error
        except OSError as error:
            raise Unavailable(f"{self.url!r}: {_shown(error)}") from error

    def publish_all(
        self,
        subject: str,
        messages: Sequence[Body],
        timeout_s: float = TIMEOUT_S,
    ) -> list[Reply | None]:
        """Send messages (headers, content) one behind the other; the reply to each.

        None is for a reply that did not come in time, or before the connection broke.

        Raises:
            Unavailable: there is no connection; nothing was sent.
        """
        every = [Message(subject, content, headers) for headers, content in messages]
        return self.publish_each(every, timeout_s)

    def publish_each(
        self, messages: Sequence[Message], timeout_s: float = TIMEOUT_S
    ) -> list[Reply | None]:
        """As `publish_all`, each message to a subject of its own."""
        return self.run(self._publish_each(messages, timeout_s), timeout_s)

    async def _publish_each(
        self, messages: Sequence[Message], timeout_s: float
    ) -> list[Reply | None]:
        await self._wait_for_connection()
        replies: list[asyncio.Future[Reply | None]] = []
        tokens = []
        try:
            for subject, content, headers in messages:
                reply: asyncio.Future[Reply | None] = self._loop.create_future()
                tokens.append(self._expect(_resolver(reply)))
                replies.append(reply)
                await self._send(subject, content, tokens[-1], headers)
            await asyncio.wait(replies, timeout=timeout_s)
        finally:
            for token in tokens:
                self._waiting.pop(token, None)
        return [reply.result() if reply.done() else None for reply in replies]

    async def _wait_for_connection(self) -> None:
        """A moment, for one that was just lost. Raises Unavailable: nothing was sent."""
        for _ in range(round(BACK_S / PAUSE_S)):
            if self.is_connected or self._pinned or self._closing:
                break
            await asyncio.sleep(PAUSE_S)  # tidy: allow sleep, because no server answered
        if not self.is_connected:
            raise Unavailable(f"{self.url!r}: no connection to any server")

    async def _send_when_connected(self, subject: str, content: bytes, token: str) -> None:
        await self._wait_for_connection()
        await self._send(subject, content, token)

    async def _send(
        self, subject: str, content: bytes, token: str, headers: dict[str, str] | None = None
    ) -> None:
        try:
            await self._client.publish(
                subject, content, reply=f"{self._inbox}{token}", headers=headers or None
            )
        except Exception:  # noqa: BLE001  the reply will not come, which is what counts
            give = self._waiting.pop(token, None)
            if give is not None:
                give(None)

    def _expect(self, give: Callable[[Reply | None], None]) -> str:
        token = str(next(self._tokens))
        self._waiting[token] = give
        return token

    def request(self, subject: str, content: bytes = b"", timeout_s: float = TIMEOUT_S) -> Reply:
        """Ask and wait for the one reply.

        Raises:
            Unavailable: none came, or nobody listens there.
        """
        (reply,) = self.publish_all(subject, [({}, content)], timeout_s)
        if reply is None:
            raise Unavailable(f"{self.url!r}: {subject}: no answer")
        if reply.status == 503:
            raise Unavailable(f"{self.url!r}: {subject}: nobody there to answer")
        return reply

    def ask_all(
        self, subject: str, messages: Sequence[Body], timeout_s: float = TIMEOUT_S
    ) -> list[Reply | None]:
        """Send messages that do not hang together; again for a while what is answered "not now".

        Returns:
            As `publish_all`.

        Raises:
            Unavailable: there is no connection.
        """
        clock = SteadyClock()
        until_us = clock.now_us() + int(min(timeout_s, AGAIN_S_MAX) * 1e6)
        replies: list[Reply | None] = [None] * len(messages)
        left = list(range(len(messages)))
        while True:
            came = self.publish_all(subject, [messages[one] for one in left], timeout_s)
            for one, reply in zip(left, came, strict=True):
                replies[one] = reply
            left = [one for one in left if is_not_now(replies[one])]
            if not left or clock.now_us() >= until_us:
                return replies
            clock.wait_until(clock.now_us() + int(AGAIN_S * 1e6), Wake())

    def api(self, name: str, asked: object = None, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
        """Ask JetStream's API `$JS.API.name`, such as "STREAM.INFO.orders".

        Raises:
            ApiRefusal: it answered with an error. Unavailable: no answer, or still "not now".
        """
        content = b"" if asked is None else json.dumps(asked).encode()
        (reply,) = self.ask_all(f"$JS.API.{name}", [({}, content)], timeout_s)
        if reply is None:
            raise Unavailable(f"{self.url!r}: {name}: no answer")
        return read_answer(f"{self.url!r}: {name}", reply)

    def look_up(self, name: str, asked: object = None) -> dict[str, Any]:
        """Ask what changes nothing; again where no answer comes, as just before a leader is chosen.

        Raises:
            ApiRefusal, Unavailable: as `api`.
        """
        for patience_s in LOOK_UP_S[:-1]:
            with suppress(Unavailable):
                return self.api(name, asked, patience_s)
        return self.api(name, asked, LOOK_UP_S[-1])

    def replies(
        self, subject: str, content: bytes = b"", timeout_s: float = TIMEOUT_S
    ) -> Iterator[Reply]:
        """Ask and yield every reply; who calls knows the last and stops.

        Raises:
            Unavailable: none came for `timeout_s`.
        """
        came: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        token = self._expect(came.put)
        try:
            self.run(self._send_when_connected(subject, content, token), timeout_s)
            while True:
                try:
                    reply = came.get(timeout=timeout_s)
                except queue.Empty:
                    reply = None
                if reply is None:
                    raise Unavailable(f"{self.url!r}: {subject}: no answer")
                yield reply
        finally:
            self._waiting.pop(token, None)

    def on_back(self, call: Callable[[], None]) -> None:
        """Call, on the connection's thread, whenever the connection is there again."""
        self._back.append(call)

    def listen(self, take: Callable[[Any], Awaitable[None]]) -> tuple[str, Callable[[], None]]:
        """Hear every message to a subject that is made here, also after the connection was lost.

        Args:
            take: called with each message of the library's, on the connection's thread.

        Returns:
            The subject, and what ends it.

        Raises:
            Unavailable.
        """
        subject = f"_INBOX.{secrets.token_hex(11)}"

        def end() -> None:
            self._listeners.pop(subject, None)
            sub = self._heard.pop(subject, None)
            if sub is not None and self.is_connected:
                self.run(_unsubscribe(sub), 1)

        self._listeners[subject] = take
        try:
            self.run(self._hear(self._client, subject, take))
        except Unavailable:
            end()
            raise
        return subject, end

    def ask(self, subject: str, content: bytes, answer_to: str) -> None:
        """Send a request whose answers go to a subject of `listen`. Raises Unavailable."""
        if not self.is_connected:
            raise Unavailable(f"{self.url!r}: no connection to any server")
        self.run(self._publish(subject, content, answer_to))

    async def _publish(self, subject: str, content: bytes, answer_to: str) -> None:
        try:
            await self._client.publish(subject, content, reply=answer_to)
        except Exception as error:
            raise Unavailable(f"{self.url!r}: {_shown(error)}") from error

    async def _hear(
        self, client: Any, subject: str, take: Callable[[Any], Awaitable[None]]
    ) -> None:
        try:
            self._heard[subject] = await client.subscribe(subject, cb=take)
        except Exception as error:
            raise Unavailable(f"{self.url!r}: cannot listen: {_shown(error)}") from error

    # --- about the server ----------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """True while there is a server."""
        return self._client is not None and bool(self._client.is_connected)

    @property
    def server_name(self) -> str:
        """Name of the server that it is connected to."""
        return str(self._client._server_info.get("server_name", ""))

    @property
    def server_version(self) -> str:
        """Version of the server that it is connected to."""
        return str(self._client._server_info.get("version", ""))

    @property
    def payload_bytes_max(self) -> int:
        """Bytes that a message may have at most, its headers counted."""
        return int(self._client.max_payload)

    @property
    def addresses(self) -> tuple[str, ...]:
        """host:port of the servers that were named or told of."""
        told = () if self._pinned else self._told
        return tuple(dict.fromkeys([*self._servers, *told]))

    def close(self) -> None:
        """Close; twice is fine."""
        if self._closed:
            return
        try:
            self.run(self._close(), 2 * CONNECT_S)
        except Unavailable:
            pass
        finally:
            self._closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)

    async def _close(self) -> None:
        self._closing = True
        await self._on_lost()
        if self._client is not None:
            self._lost.set()
            await _discard(self._client)
        if self._keeper is not None:
            known = self._client
            await self._keeper
            if self._client is not known:  # it was just being made anew
                await _discard(self._client)
        left = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
        for one in left:
            one.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def _client_class() -> Callable[[], Any]:
    try:
        from nats.aio.client import Client
    except ImportError as error:
        raise Refused("nats:// needs the extra: pip install 'dejaqueue[nats]'") from error
    return Client


async def _discard(client: Any) -> None:
    """Close a client whatever state it is in, its socket too."""
    try:
        await client.close()
        if client._transport is not None:
            client._transport.close()
            await client._transport.wait_closed()
    except Exception as error:  # noqa: BLE001  it is thrown away
        log.debug("closing a connection: %s", _shown(error))


async def _unsubscribe(sub: Any) -> None:
    with suppress(Exception):  # the connection, and the subscription with it, is already gone
        await sub.unsubscribe()


def _resolver(reply: asyncio.Future[Reply | None]) -> Callable[[Reply | None], None]:
    def give(came: Reply | None) -> None:
        if not reply.done():
            reply.set_result(came)

    return give


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
