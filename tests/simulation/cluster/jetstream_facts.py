"""Facts in a simulated JetStream: one stream that keeps the last message of each subject.

JetStreamCoordinator is the product's, and so is what a NatsConnection makes of requests and
answers; in place of its sockets is a way to the server. tests/conformance/
test_simulated_jetstream.py compares the answers with those of a real one.

Holds: what is stored was proposed by a leader, and is stored in that order. What a leader has
proposed and most servers did not agree on before it ceased to lead is dropped, unanswered.
"""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from dejaqueue.connections.nats.answers import (
    NO_MESSAGE,
    NO_STREAM,
    WRONG_LAST,
    WRONG_LAST_PROPOSED,
    Reply,
)
from dejaqueue.connections.nats.connection import TIMEOUT_S, NatsConnection
from dejaqueue.connections.nats.url import NatsUrl, read_url
from dejaqueue.coordinator.interface import Coordinator, Fact
from dejaqueue.coordinator.jetstream import (
    _EXPECTED,
    _GONE,
    _MARK,
    MARKER_S,
    REVISION,
    JetStreamCoordinator,
)
from dejaqueue.errors import Unavailable
from dejaqueue.testing.simulation.world import World
from tests.simulation.cluster.ways import FarWay, Lost

TTL_LATE_US_MAX = 2_000_000
Give = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Message:
    """What is stored under a subject."""

    subject: str
    sequence: int
    headers: dict[str, str]
    content: bytes


@dataclass
class _Proposed:
    subject: str
    headers: dict[str, str]
    content: bytes
    give: Give
    at_us: int


@dataclass
class KvServer:
    """The leader of one stream, whichever server that is.

    Attributes:
        last: number of the newest message.
        messages: by subject.
        config: of the stream; None = it was not made yet.
        agree_us_max: so long it takes at most until most servers agree on a change.
        leads_from_us: nobody leads before.
        listeners: by the subject to which they want messages; called with each.
    """

    world: World
    last: int = 0
    messages: dict[str, Message] = field(default_factory=dict)
    config: dict[str, Any] | None = None
    agree_us_max: int = 0
    leads_from_us: int = 0
    listeners: dict[str, Callable[[Message], None]] = field(default_factory=dict)
    _proposed: deque[_Proposed] = field(default_factory=deque)
    _term: int = 0

    def elect(self, duration_us: int) -> None:
        """Nobody leads for so long; what was only proposed is dropped."""
        self._term += 1
        self._proposed.clear()
        self.leads_from_us = self.world.now_us + duration_us

    def restore(self, last: int, messages: dict[str, Message]) -> None:
        """Go back to what was kept. All servers start again: nobody listens to them any more."""
        self.elect(0)
        self.last, self.messages = last, dict(messages)
        self.listeners.clear()
        for message in messages.values():
            self._plan_end(message)

    def call(self, subject: str, headers: dict[str, str], content: bytes, give: Give) -> None:
        """Answer a request, now, later or never."""
        if self.world.now_us < self.leads_from_us:
            return
        name = subject.removeprefix("$JS.API.")
        if name == subject:
            self._propose(subject, headers, content, give)
        else:
            give(self._api(name, json.loads(content) if content else {}))

    # --- changes ------------------------------------------------------------------------------

    def _propose(self, subject: str, headers: dict[str, str], content: bytes, give: Give) -> None:
        if self.config is None:
            return  # nobody listens to the subject
        if (expected := headers.get(_EXPECTED)) is not None:
            if any(one.subject == subject for one in self._proposed):
                give(_refusal(400, WRONG_LAST_PROPOSED, "wrong last sequence"))
                return
            stored = self.messages.get(subject)
            has = stored.sequence if stored is not None else 0
            if int(expected) != has:
                give(_refusal(400, WRONG_LAST, f"wrong last sequence: {has}"))
                return
        world = self.world
        agree_us = world.between(0, self.agree_us_max) if self.agree_us_max else 0
        at_us = max(world.now_us + agree_us, self._proposed[-1].at_us if self._proposed else 0)
        self._proposed.append(_Proposed(subject, headers, content, give, at_us))
        if at_us <= world.now_us:
            self._agree()
        else:
            term = self._term
            world.after(at_us - world.now_us, lambda: self._agree() if term == self._term else None)

    def _agree(self) -> None:
        while self._proposed and self._proposed[0].at_us <= self.world.now_us:
            one = self._proposed.popleft()
            kept = {name: value for name, value in one.headers.items() if name != _EXPECTED}
            message = self._store(one.subject, kept, one.content)
            one.give({"stream": self._name, "seq": message.sequence})

    @property
    def _name(self) -> str:
        return str(self.config["name"]) if self.config else ""

    def _store(self, subject: str, headers: dict[str, str], content: bytes) -> Message:
        self.last += 1
        message = Message(subject, self.last, headers, content)
        self.messages[subject] = message
        self._plan_end(message)
        for tell in list(self.listeners.values()):
            tell(message)
        return message

    def _plan_end(self, message: Message) -> None:
        ttl = message.headers.get("Nats-TTL", "")
        if not ttl or any(name in message.headers for name in _GONE):
            return  # no seed lasts as long as a marker
        late_us = self.world.between(0, TTL_LATE_US_MAX)
        seconds = int(ttl.removesuffix("s"))
        self.world.after(seconds * 1_000_000 + late_us, lambda: self._end(message))

    def _end(self, message: Message) -> None:
        if self.messages.get(message.subject) is message:
            marker = {"Nats-Marker-Reason": "MaxAge", "Nats-TTL": f"{MARKER_S // 3_600}h0m0s"}
            self._store(message.subject, marker, b"")

    # --- the API ------------------------------------------------------------------------------

    def _api(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        what, _, stream = name.rpartition(".")
        if what == "STREAM.CREATE":
            self.config = self.config or asked
            return {"config": self.config}
        if self.config is None or stream != self._name:
            return _refusal(404, NO_STREAM, "stream not found")
        if what == "STREAM.INFO":
            return self._info(asked)
        if what == "STREAM.MSG.GET":
            return self._read(str(asked["last_by_subj"]))
        assert what == "CONSUMER.CREATE", name
        return {"name": "listener"}

    def _info(self, asked: dict[str, Any]) -> dict[str, Any]:
        state: dict[str, Any] = {"messages": len(self.messages), "last_seq": self.last}
        if "subjects_filter" in asked:
            page = sorted(self.messages)[int(asked.get("offset", 0)) :]
            if page:
                state["subjects"] = dict.fromkeys(page, 1)
        return {"config": self.config, "state": state}

    def _read(self, subject: str) -> dict[str, Any]:
        message = self.messages.get(subject)
        if message is None:
            return _refusal(404, NO_MESSAGE, "no message found")
        told: dict[str, Any] = {"subject": subject, "seq": message.sequence}
        if message.headers:
            lines = "".join(f"{name}: {value}\r\n" for name, value in message.headers.items())
            told["hdrs"] = base64.b64encode(f"NATS/1.0\r\n{lines}\r\n".encode()).decode()
        if message.content:
            told["data"] = base64.b64encode(message.content).decode()
        return {"message": told}


def _refusal(code: int, number: int, text: str) -> dict[str, Any]:
    return {"error": {"code": code, "err_code": number, "description": text}}


class JetStreamFacts:
    """Facts in a simulated JetStream. See coordinators.Facts.

    Attributes:
        server: what it keeps.
    """

    travels = True

    def __init__(self, world: World) -> None:
        self.server = KvServer(world)
        self._ways: list[FarWay] = []

    def reach(self, world: World) -> tuple[Coordinator, FarWay, Callable[[], None]]:
        """See Facts.reach."""
        way = FarWay(world)
        connection = KvConnection(read_url("nats://one:4222"), self.server, way)
        self._ways.append(way)

        def die() -> None:
            if way in self._ways:
                self._ways.remove(way)
            connection.close()

        return JetStreamCoordinator(connection), way, die

    def find(self, prefix: str) -> list[Fact]:
        """See Facts.find."""
        facts = []
        for message in self.server.messages.values():
            key = message.subject.removeprefix("$KV.dejaq_facts.").replace("=", ".")
            if key.startswith(prefix) and not any(name in message.headers for name in _GONE):
                revision = int(message.headers.get(REVISION, message.sequence))
                facts.append(Fact(key, message.content, revision))
        return sorted((one for one in facts if one.key != _MARK), key=lambda one: one.key)

    def copy(self) -> Any:
        """See Facts.copy."""
        return self.server.last, dict(self.server.messages)

    def restore(self, copy: Any) -> None:
        """See Facts.restore."""
        self.server.restore(*copy)
        for way in self._ways:
            if not way.is_cut:
                way.is_cut = True
                way.mend()


class KvConnection(NatsConnection):
    """A broker's connection to whichever server answers."""

    def __init__(self, url: NatsUrl, server: KvServer, way: FarWay) -> None:
        self.url = url
        self._there, self._way, self._closed = server, way, False
        self._inboxes: set[str] = set()
        self._arrives_us = 0

    @property
    def is_connected(self) -> bool:
        """See NatsConnection.is_connected."""
        return not self._way.is_cut and not self._closed

    @property
    def server_version(self) -> str:
        """See NatsConnection.server_version."""
        return "2.12.0"

    @property
    def payload_bytes_max(self) -> int:
        """See NatsConnection.payload_bytes_max."""
        return 8 << 20

    def publish_all(
        self,
        subject: str,
        messages: Sequence[tuple[dict[str, str], bytes]],
        timeout_s: float = TIMEOUT_S,
    ) -> list[Reply | None]:
        """See NatsConnection.publish_all."""
        if not self.is_connected:
            raise Unavailable(f"{self.url!r}: no connection to any server")
        answers: list[Reply | None] = [None] * len(messages)

        def begin(give: Callable[[Callable[[], None]], None]) -> None:
            left = len(messages)

            def take(place: int, answer: dict[str, Any]) -> None:
                nonlocal left
                answers[place] = Reply(subject, json.dumps(answer).encode())
                left -= 1
                if not left:
                    give(lambda: None)

            for place, (headers, content) in enumerate(messages):
                self._there.call(subject, headers, content, partial(take, place))

        changes = not subject.startswith("$JS.API.")
        try:
            self._way.ask_later(begin, changes=changes, patience_us=int(timeout_s * 1_000_000))
        except Lost:
            return [None] * len(messages)
        return answers

    def listen(self, take: Callable[[Any], Awaitable[None]]) -> tuple[str, Callable[[], None]]:
        """See NatsConnection.listen."""
        if not self.is_connected:
            raise Unavailable(f"{self.url!r}: no connection to any server")
        way, there = self._way, self._there
        inbox = f"_INBOX.{way.world.random.getrandbits(64):x}"

        def hear(message: Message) -> None:
            if not way.is_cut:  # what comes meanwhile is lost with the connection
                now_us = way.world.now_us
                travel_us = way.travel_us() if way.late_us_max else 0
                self._arrives_us = max(self._arrives_us + 1, now_us + travel_us)
                way.world.after(self._arrives_us - now_us, lambda: _take(take, message))

        def end() -> None:
            there.listeners.pop(inbox, None)
            if end_watch in way.on_end:
                way.on_end.remove(end_watch)

        def end_watch(silently: bool) -> None:
            there.listeners.pop(inbox, None)  # the server forgets a listener it takes for gone
            if not silently:
                way.is_cut = True
                way.mend()

        there.listeners[inbox] = hear
        way.on_end.append(end_watch)
        return inbox, end

    def on_back(self, call: Callable[[], None]) -> None:
        """See NatsConnection.on_back."""
        self._way.on_mend.append(call)

    def close(self) -> None:
        """See NatsConnection.close."""
        self._closed = True
        self._way.end_watches(silently=True)


def _take(take: Callable[[Any], Awaitable[None]], message: Message) -> None:
    """As the library calls who listens; that waits for nothing."""
    stored = SimpleNamespace(
        subject=message.subject,
        headers=message.headers or None,
        reply=f"$JS.ACK.stream.listener.1.{message.sequence}.1.0.0",
        metadata=SimpleNamespace(sequence=SimpleNamespace(stream=message.sequence)),
    )
    work = take(stored).__await__()
    try:
        next(work)
    except StopIteration:
        return
    raise AssertionError("who listens waited")
