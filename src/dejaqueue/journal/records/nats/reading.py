"""Reading records from streams: from any copy as long as it is whole, from another where it is not.

Room: journal.
Holds: each record is stored with a checksum of its own; what is missing or altered in one copy is
looked for at the leader and in every other copy before it is left out. A copy that is behind looks
like one with a gap at its end; only the leader says where the end is.
See: store.py; watch.py finds which server is sick.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import xxhash

from dejaqueue.connections.nats.answers import ApiRefusal, Meaning, Reply
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.errors import Unavailable
from dejaqueue.journal.records.nats.streams import stream_state

log = logging.getLogger("dejaqueue.journal")

SUM = "Dejaq-Sum"
SEQUENCE = "Nats-Sequence"
WINDOW_BYTES = 8 << 20
"""Bytes that a server sends unasked at most."""
WINDOW_RECORDS = 1000
ASK_AGAIN = 4
"""Direct reads are answered by any server that has a copy: another one, it may be."""
END_OF_WINDOW = 204


def checksum(content: bytes) -> str:
    """What a record is stored with."""
    return str(xxhash.xxh3_64_hexdigest(content))


def is_whole(reply: Reply) -> bool:
    """True if a record is what was stored; one without a checksum is taken as it is."""
    expected = reply.headers.get(SUM)
    return expected is None or expected == checksum(reply.content)


class Reader:
    """Reads one stream of records.

    Args:
        suspect: called with the stream and the number of a record that some copy did not give.
        copies: gives a record of a stream as each server has it, one after the other.
    """

    def __init__(
        self,
        connection: NatsConnection,
        stream: str,
        suspect: Callable[[str, int], None],
        copies: Callable[[str, int], Iterator[Reply]],
    ) -> None:
        self._connection, self._stream = connection, stream
        self._suspect, self._copies = suspect, copies

    def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield (number, record) from `first` to before `end`; see RecordLog.read."""
        known_last = 0
        while first < end:
            for number, content in self._unbroken(first, end):
                yield number, content
                first = number + 1
            if first >= end:
                return
            if first > known_last:
                state = self._state()
                begin, known_last = int(state["first_seq"]), int(state["last_seq"])
                if first > known_last:
                    return
                if first < begin and not self._is_anywhere(first):
                    first = begin
                    continue
            kept = self._look_for(first)
            if kept is not None:
                yield first, kept
            first += 1

    def _unbroken(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Records from `first` on that some copy gives, up to a gap or an altered record."""
        while first < end:
            before = first
            for reply in direct(self._connection, self._stream, {"seq": first}, end - first):
                if int(reply.headers.get(SEQUENCE, 0)) != first or not is_whole(reply):
                    return
                yield first, reply.content
                first += 1
                if first >= end:
                    return
            if first == before:
                return

    def _look_for(self, number: int) -> bytes | None:
        """A record that some copy lacks or has altered, as the others have it.

        Returns:
            Altered, if no server has it whole; None if none has it.
        """
        self._suspect(self._stream, number)
        altered: bytes | None = None
        for reply in self._everywhere(number):
            if is_whole(reply):
                return reply.content
            altered = reply.content
        log.error("%s: no server has record %d as it was stored", self._stream, number)
        return altered

    def _everywhere(self, number: int) -> Iterator[Reply]:
        asked = {"seq": number}
        # The leader first: a copy that is only behind lacks a record too.
        reply = from_leader(self._connection, self._stream, asked)
        if reply is not None:
            yield reply
        for _ in range(ASK_AGAIN):
            yield from direct(self._connection, self._stream, asked, 1)
        yield from self._copies(self._stream, number)

    def _is_anywhere(self, number: int) -> bool:
        """True if a server has a record that the leader says was dropped."""
        asked = {"seq": number}
        return any(
            reply
            for _ in range(ASK_AGAIN)
            for reply in direct(self._connection, self._stream, asked, 1)
        )

    def _state(self) -> dict[str, Any]:
        found = stream_state(self._connection, self._stream)
        if found is None:
            raise Unavailable(f"{self._stream}: the stream is gone")
        state: dict[str, Any] = found["state"]
        return state


def from_leader(connection: NatsConnection, stream: str, asked: dict[str, Any]) -> Reply | None:
    """A record as the leader has it, None if it has it not. Raises Unavailable."""
    try:
        message = connection.look_up(f"STREAM.MSG.GET.{stream}", asked)["message"]
    except ApiRefusal as error:
        if error.meaning is Meaning.ABSENT:
            return None
        raise Unavailable(str(error)) from error
    headers = {SEQUENCE: str(message["seq"])}
    for line in base64.b64decode(message.get("hdrs", "")).decode().split("\r\n")[1:]:
        name, _, value = line.partition(":")
        headers[name] = value.strip()
    return Reply(message["subject"], base64.b64decode(message.get("data", "")), headers)


def direct(
    connection: NatsConnection, stream: str, asked: dict[str, Any], count: int
) -> Iterator[Reply]:
    """One window of records as the copy of some server has them; fewer than `count` if it says so.

    Args:
        asked: {"seq": n}; with {"next_by_subj": subject} only those of a subject.

    Raises:
        Unavailable.
    """
    subject = f"$JS.API.DIRECT.GET.{stream}"
    if count == 1:
        reply = connection.request(subject, json.dumps(asked).encode())
        if not reply.status:
            yield reply
        return
    window = asked | {"batch": min(count, WINDOW_RECORDS), "max_bytes": WINDOW_BYTES}
    for reply in connection.replies(subject, json.dumps(window).encode()):
        if reply.status == 503:
            raise Unavailable(f"{stream}: no server answers for it")
        if reply.status:
            return
        yield reply
