"""Reading records from streams: from any copy as long as it is whole, from another where it is not.

Room: journal.
Holds: each record is stored with a checksum of its own; what is missing or altered in one copy is
looked for at the leader and in the others before it is left out. A copy that is behind looks like
one with a gap at its end; only the leader says where the end is.
See: nats.py; nats_watch.py finds which server is sick.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import xxhash

from dejaqueue.connections.nats import ApiRefusal, NatsConnection, Reply
from dejaqueue.connections.nats_url import NatsUrl
from dejaqueue.errors import Unavailable
from dejaqueue.journal.records.nats_streams import stream_state

log = logging.getLogger("dejaqueue.journal")

SUM = "Dejaq-Sum"
SEQUENCE = "Nats-Sequence"
WINDOW_BYTES = 8 << 20
"""Bytes that a server sends unasked at most."""
WINDOW_RECORDS = 1000
END_OF_WINDOW = 204


def checksum(content: bytes) -> str:
    """What a record is stored with."""
    return str(xxhash.xxh3_64_hexdigest(content))


def is_whole(reply: Reply) -> bool:
    """True if a record is what was stored; one without a checksum is taken as it is."""
    expected = reply.headers.get(SUM)
    return expected is None or expected == checksum(reply.content)


class Servers:
    """A connection to each server that is known, made when it is first needed.

    A server answers direct reads from its own copy, as long as it has one.
    """

    def __init__(self, url: NatsUrl, connection: NatsConnection) -> None:
        self._url, self._main = url, connection
        self._connections: dict[str, NatsConnection] = {}
        self._guard = threading.Lock()

    def __iter__(self) -> Iterator[NatsConnection]:
        for address in self._main.addresses:
            found = self._connection(address)
            if found is not None:
                yield found

    def _connection(self, address: str) -> NatsConnection | None:
        with self._guard:
            found = self._connections.get(address)
            if found is not None and found.is_connected:
                return found
            if found is not None:
                found.close()
                del self._connections[address]
            try:
                self._connections[address] = NatsConnection(self._url, [address])
            except Unavailable:
                return None
            return self._connections[address]

    def close(self) -> None:
        """Close all; twice is fine."""
        with self._guard:
            for connection in self._connections.values():
                connection.close()
            self._connections.clear()


class Reader:
    """Reads one stream of records.

    Args:
        suspect: called with the stream's name when a copy lacked what another had.
    """

    def __init__(
        self,
        connection: NatsConnection,
        servers: Servers,
        stream: str,
        suspect: Callable[[str], None],
    ) -> None:
        self._main, self._servers, self._stream = connection, servers, stream
        self._suspect = suspect

    def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield (number, record) from `first` to before `end`; see RecordLog.read."""
        source, known_last = self._main, 0
        while first < end:
            try:
                for number, content in self._unbroken(source, first, end):
                    yield number, content
                    first = number + 1
            except Unavailable:
                if source is self._main:
                    raise
                source = self._main  # it went away meanwhile
                continue
            if first >= end:
                return
            found = self._elsewhere(source, first, known_last)
            if found is None:
                return
            number, kept, known_last, better = found
            if kept is not None:
                yield number, kept
            first, source = max(first, number + 1), better

    def _unbroken(
        self, source: NatsConnection, first: int, end: int
    ) -> Iterator[tuple[int, bytes]]:
        """Records from `first` on that one copy gives, up to its first gap or altered record."""
        while first < end:
            before = first
            for reply in direct(source, self._stream, {"seq": first}, end - first):
                if int(reply.headers.get(SEQUENCE, 0)) != first or not is_whole(reply):
                    return
                yield first, reply.content
                first += 1
                if first >= end:
                    return
            if first == before:
                return

    def _elsewhere(
        self, source: NatsConnection, number: int, known_last: int
    ) -> tuple[int, bytes | None, int, NatsConnection] | None:
        """Look for a record that `source` lacks.

        Returns:
            (number, the record, last number, whom to read on from); the record is None if nobody
            has it, and then the number is the last of those that nobody has. None = the end.
        """
        if number > known_last:
            state = self._state()
            begin, known_last = int(state["first_seq"]), int(state["last_seq"])
            if number > known_last:
                return None
            reply = self._from_leader(number)
            if reply is not None and is_whole(reply):
                return number, reply.content, known_last, source
            if number < begin and self._dropped_everywhere(number):
                return begin - 1, None, known_last, source
        altered: bytes | None = None
        for connection in self._servers:
            try:
                replies = list(direct(connection, self._stream, {"seq": number}, 1))
            except Unavailable:
                continue
            for reply in replies:
                if int(reply.headers.get(SEQUENCE, 0)) != number:
                    continue
                if is_whole(reply):
                    self._tell(number)
                    return number, reply.content, known_last, connection
                altered = reply.content
        self._tell(number)
        return number, altered, known_last, source

    def _dropped_everywhere(self, number: int) -> bool:
        """True if no server that answers has a record that the leader says was dropped."""
        for connection in self._servers:
            try:
                if list(direct(connection, self._stream, {"seq": number}, 1)):
                    return False
            except Unavailable:
                continue
        return True

    def _state(self) -> dict[str, Any]:
        found = stream_state(self._main, self._stream)
        if found is None:
            raise Unavailable(f"{self._stream}: the stream is gone")
        state: dict[str, Any] = found["state"]
        return state

    def _from_leader(self, number: int) -> Reply | None:
        return from_leader(self._main, self._stream, {"seq": number})

    def _tell(self, number: int) -> None:
        log.warning("%s: record %d is missing or altered in a copy", self._stream, number)
        self._suspect(self._stream)


def from_leader(connection: NatsConnection, stream: str, asked: dict[str, Any]) -> Reply | None:
    """A record as the leader has it, None if it has it not. Raises Unavailable."""
    try:
        message = connection.look_up(f"STREAM.MSG.GET.{stream}", asked)["message"]
    except ApiRefusal as error:
        if error.code == 404:
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
