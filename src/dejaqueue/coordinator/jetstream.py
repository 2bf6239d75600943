"""Facts in a key-value bucket of NATS JetStream: a message per fact, its ttl kept by the server.

Room: coordinator. Needs the extra `nats`, and a server of 2.11 or later.
Holds: a change is one message with the sequence that its subject must have now. A renewal is one
too, which carries the revision that the fact keeps; it is no change. What was deleted or has
vanished leaves a marker with a sequence of its own, so revisions grow.
Limits: a ttl is rounded up to whole seconds; the fact vanishes up to two seconds after it. A value
with its headers has to fit into the server's `max_payload`. Reads are answered by the stream's
leader. One that was cut off may believe for a few seconds to be the leader still: `get` has it
store a mark before, which takes most of the servers, and `list` may leave out what is new.
See: interface.py; connections/nats/connection.py; docs/guides/coordinators.md.
"""

from __future__ import annotations

import base64
import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dejaqueue.connections.nats.answers import (
    NAME_IN_USE,
    NO_MESSAGE,
    WRONG_LAST,
    WRONG_LAST_PROPOSED,
    ApiRefusal,
    Meaning,
    Reply,
    read_answer,
)
from dejaqueue.connections.nats.connection import Body, NatsConnection
from dejaqueue.connections.nats.settling import settled
from dejaqueue.connections.nats.url import read_url
from dejaqueue.coordinator.bells import Bells, check_fact, check_key, check_prefix
from dejaqueue.coordinator.counted import Channel, CountedChanges, Told
from dejaqueue.coordinator.interface import Conflict, Coordinator, Fact, Watch
from dejaqueue.errors import BadRequest, Refused, ResourceExhausted, Unavailable

ANSWER_S = 3.0
UNDECIDED_S, LOOK_S = 3.0, 0.005
"""How long a change waits for another one that the servers have not agreed on yet."""
HEADER_BYTES = 4_096
MARKER_S = 3_600
LISTENER_NS = 30_000_000_000
SUBJECTS_PAGE = 100_000
ASKED_AT_ONCE = 256

REVISION = "Dejaq-Revision"
_EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_GONE = ("KV-Operation", "Nats-Marker-Reason")
_MARK = "~mark"
"""No fact's key: stored to find out whether most servers are there."""


def open_url(url: str) -> JetStreamCoordinator:
    """The coordinator of a `nats://` URL. Raises BadRequest, Refused, Unavailable."""
    connection = NatsConnection(read_url(url))
    try:
        return JetStreamCoordinator(connection)
    except BaseException:
        connection.close()
        raise


@dataclass(frozen=True, slots=True)
class _Stored:
    """The last message of a subject.

    Attributes:
        sequence: that a change of it has to name.
        fact: None if what is stored is a marker.
    """

    sequence: int
    fact: Fact | None


_NOTHING = _Stored(0, None)


class _UndecidedError(Exception):
    """Another change is on its way."""


class JetStreamCoordinator(Coordinator):
    """Facts in the bucket `PREFIX_facts`."""

    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection
        self._stream = f"KV_{connection.url.prefix}_facts"
        self._subjects = f"$KV.{connection.url.prefix}_facts."
        self._make_stream()
        self.summary = f"nats-server {connection.server_version}"
        self._bells = Bells()
        self._changes = CountedChanges(self._bells, self._count, self._listen, self.poll_ms)
        connection.on_back(self._changes.ring_again)
        # Key -> (revision, sequence, value, ttl header) of what this one put with a ttl.
        self._own: dict[str, tuple[int, int, bytes, str]] = {}

    def get(self, key: str) -> Fact | None:
        """A fact, None if it is not there. Raises Unavailable."""
        check_key(key)
        # A leader that most servers have left answers, but can store nothing; and to be replaced
        # takes longer than an answer may.
        self._publish(_MARK, b"", {REVISION: "0"})
        return self._last([key])[0].fact

    def list(self, prefix: str) -> list[Fact]:
        """The facts whose keys begin so, sorted by key. Raises Unavailable."""
        check_prefix(prefix)
        keys = sorted(key for key in self._keys() if key.startswith(prefix))
        facts: list[Fact] = []
        for at in range(0, len(keys), ASKED_AT_ONCE):
            stored = self._last(keys[at : at + ASKED_AT_ONCE])
            facts.extend(one.fact for one in stored if one.fact is not None)
        return facts

    def put(
        self, key: str, value: bytes, revision: int | None = None, *, ttl_ms: int | None = None
    ) -> int:
        """Store a fact; return its new revision. Raises Conflict, Unavailable."""
        check_fact(key, value, revision, ttl_ms)
        most = self._connection.payload_bytes_max - HEADER_BYTES
        if len(value) > most:
            raise BadRequest("value", f"at most {most} bytes with max_payload here", len(value))
        headers = {} if ttl_ms is None else {"Nats-TTL": f"{-(-ttl_ms // 1_000)}s"}
        stored = self._change(key, revision, value, headers)
        if ttl_ms is not None:
            self._own[key] = (stored, stored, bytes(value), headers["Nats-TTL"])
        return stored

    def renew(self, key: str) -> bool:
        """Keep a fact that this coordinator put with a ttl; False if it is there no more."""
        if check_key(key) not in self._own:
            return False
        revision, sequence, value, ttl = self._own[key]
        while True:
            headers = {"Nats-TTL": ttl, REVISION: str(revision), _EXPECTED: str(sequence)}
            renewed = self._publish(key, value, headers)
            if renewed:
                self._own[key] = (revision, renewed, value, ttl)
                return True
            # The answer to an earlier renewal may have been lost.
            stored = self._last([key])[0]
            if stored.fact is None or stored.fact.revision != revision:
                return False
            sequence = stored.sequence

    def delete(self, key: str, revision: int | None = None) -> bool:
        """Delete a fact; False if it was not there. Raises Conflict, Unavailable."""
        check_key(key)
        while True:
            stored = self._compared(key, revision)
            if stored.fact is None:
                return False
            headers = {"KV-Operation": "DEL", "Nats-TTL": f"{MARKER_S}s"}
            if self._publish(key, b"", headers | {_EXPECTED: str(stored.sequence)}):
                return True

    def watch(self, prefix: str, bell: Callable[[], None]) -> Watch:
        """Ring the bell, on a thread of this coordinator, after changes below the prefix."""
        return self.watch_keys(prefix, lambda _: bell())

    def watch_keys(self, prefix: str, bell: Callable[[str | None], None]) -> Watch:
        """As `watch`, and the bell is given the key of the fact that changed; None = any."""
        watch = self._bells.add_keyed(prefix, bell)
        self._changes.start()
        return watch

    def close(self) -> None:
        """Stop watching; facts with a ttl are left to vanish."""
        self._bells.close()
        self._changes.stop()
        self._connection.close()

    def _change(self, key: str, revision: int | None, value: bytes, headers: dict[str, str]) -> int:
        if revision is None:
            return self._publish(key, value, headers)
        while True:
            stored = self._compared(key, revision)
            if number := self._publish(key, value, headers | {_EXPECTED: str(stored.sequence)}):
                return number
            # Somebody was faster; a renewal alone leaves the revision as it was.

    def _compared(self, key: str, revision: int | None) -> _Stored:
        """What is stored, if it has this revision. Raises Conflict."""
        stored = self._last([key])[0]
        has = stored.fact.revision if stored.fact is not None else 0
        if revision is not None and revision != has:
            raise Conflict(f"{key} has revision {has}, expected {revision}")
        return stored

    def _publish(self, key: str, value: bytes, headers: dict[str, str]) -> int:
        """Store a message; its sequence, 0 if the subject's last is another than expected.

        The leader compares with what it has proposed, too: such a change of somebody else is about
        to be the last, or vanishes. Until that is known, this one is neither made nor refused.
        """
        until_s = time.monotonic() + UNDECIDED_S
        while True:
            try:
                return self._publish_once(key, value, headers)
            except _UndecidedError:
                if time.monotonic() > until_s:
                    text = f"{self._connection.url!r}: another change of {key} is not agreed on"
                    raise Unavailable(text, 100) from None
            threading.Event().wait(LOOK_S)

    def _publish_once(self, key: str, value: bytes, headers: dict[str, str]) -> int:
        subject = self._subject(key)
        (reply,) = self._connection.ask_all(subject, [(headers, bytes(value))], ANSWER_S)
        if reply is None:
            raise Unavailable(f"{self._connection.url!r}: no answer to a change of {key}")
        try:
            return int(read_answer(f"{self._connection.url!r}: {key}", reply)["seq"])
        except ApiRefusal as refusal:
            if refusal.number == WRONG_LAST:
                return 0
            if refusal.number == WRONG_LAST_PROPOSED:
                raise _UndecidedError from refusal
            raise ResourceExhausted(f"a change of {key} was refused: {refusal}", 1_000) from refusal

    def _last(self, keys: Sequence[str]) -> Sequence[_Stored]:
        """What is stored under these keys, as the leader has it."""
        subjects = [self._subject(key) for key in keys]
        asked: Sequence[Body] = [
            ({}, json.dumps({"last_by_subj": subject}).encode()) for subject in subjects
        ]
        name = f"$JS.API.STREAM.MSG.GET.{self._stream}"
        replies = self._connection.ask_all(name, asked, ANSWER_S)
        return [self._stored(key, reply) for key, reply in zip(keys, replies, strict=True)]

    def _stored(self, key: str, reply: Reply | None) -> _Stored:
        if reply is None:
            raise Unavailable(f"{self._connection.url!r}: no answer about {key}")
        try:
            message = read_answer(f"{self._connection.url!r}: {key}", reply)["message"]
        except ApiRefusal as refusal:
            if refusal.number == NO_MESSAGE:
                return _NOTHING
            raise Unavailable(str(refusal)) from refusal
        sequence = int(message["seq"])
        headers = read_headers(base64.b64decode(message.get("hdrs", "")))
        if any(name in headers for name in _GONE):
            return _Stored(sequence, None)
        content = base64.b64decode(message.get("data", ""))
        return _Stored(sequence, Fact(key, content, int(headers.get(REVISION, sequence))))

    def _keys(self) -> Sequence[str]:
        """Every key that has a message, be it a marker."""
        keys: list[str] = []
        while True:
            asked = {"subjects_filter": f"{self._subjects}>", "offset": len(keys)}
            state = self._api(f"STREAM.INFO.{self._stream}", asked)
            page = list(state["state"].get("subjects") or {})
            keys.extend(self._key(subject) for subject in page)
            if len(page) < SUBJECTS_PAGE:
                return [key for key in keys if key != _MARK]

    def _count(self) -> int:
        return int(self._api(f"STREAM.INFO.{self._stream}")["state"]["last_seq"])

    def _listen(self) -> Channel:
        return _Channel(self._connection, self._stream, self._key)

    def _api(self, name: str, asked: object = None) -> dict[str, Any]:
        try:
            return self._connection.api(name, asked, ANSWER_S)
        except ApiRefusal as refusal:
            raise Unavailable(str(refusal)) from refusal

    def _make_stream(self) -> None:
        config = {
            "name": self._stream,
            "subjects": [f"{self._subjects}>"],
            "max_msgs_per_subject": 1,
            "num_replicas": self._connection.url.replicas,
            "storage": "file",
            "retention": "limits",
            "discard": "new",
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "allow_direct": False,  # any copy would answer, also one that is behind
            "allow_msg_ttl": True,
            "subject_delete_marker_ttl": MARKER_S * 1_000_000_000,
        }
        try:
            self._connection.api(f"STREAM.CREATE.{self._stream}", config, ANSWER_S)
        except ApiRefusal as refusal:
            if refusal.meaning is Meaning.NO_ROOM:
                raise Unavailable(f"{self._connection.url!r}: {refusal}") from refusal
            if refusal.number != NAME_IN_USE:
                raise Refused(f"{self._connection.url!r}: {refusal}") from refusal
        stream_info = settled(lambda: self._api(f"STREAM.INFO.{self._stream}"))
        assert stream_info is not None  # `_api` raises
        has = stream_info["config"]
        if not has.get("allow_msg_ttl") or has.get("max_msgs_per_subject") != 1:
            raise Refused(f"{self._connection.url!r}: the stream {self._stream} is another's")

    def _subject(self, key: str) -> str:
        # A dot would part the subject, and two of them are none; `=` is in no key.
        return self._subjects + key.replace(".", "=")

    def _key(self, subject: str) -> str:
        return subject[len(self._subjects) :].replace("=", ".")


def read_headers(block: bytes) -> dict[str, str]:
    """The headers of a stored message.

    >>> read_headers(b"NATS/1.0\\r\\nNats-TTL: 5s\\r\\n\\r\\n")
    {'Nats-TTL': '5s'}
    """
    lines = block.decode(errors="replace").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name.strip(): value.strip() for name, _, value in pairs}


class _Channel:
    """A listener of the stream: headers of each message from now on."""

    def __init__(self, connection: NatsConnection, stream: str, key: Callable[[str], str]) -> None:
        self._connection, self._stream, self._key = connection, stream, key
        self._heard: queue.SimpleQueue[Told] = queue.SimpleQueue()
        inbox, self._stop_listening = connection.listen(self._take)
        config = {
            "deliver_subject": inbox,
            "deliver_policy": "new",
            "ack_policy": "none",
            "headers_only": True,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": LISTENER_NS,
        }
        asked = {"stream_name": stream, "config": config}
        try:
            connection.api(f"CONSUMER.CREATE.{stream}", asked, ANSWER_S)
        except ApiRefusal as refusal:
            self.close()
            raise Unavailable(str(refusal)) from refusal
        except Unavailable:
            self.close()
            raise

    async def _take(self, message: Any) -> None:
        headers = message.headers or {}
        if not message.reply.startswith("$JS.ACK."):
            return
        sequence = message.metadata.sequence.stream
        self._heard.put(Told(sequence, self._key(message.subject), REVISION not in headers))

    def hear(self, seconds: float) -> Told | None:
        """The next message."""
        try:
            return self._heard.get(timeout=seconds)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Hear no more; the server forgets a listener that nobody listens for."""
        with suppress(Unavailable):  # the connection is closed, and so is this
            self._stop_listening()
