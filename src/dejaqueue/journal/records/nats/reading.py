"""Reading records from streams: from any copy as long as it is whole, from another where it is not.

Room: journal.
Holds: each record is stored with its number in its own log and a checksum of both; what is missing
or altered in one copy is looked for at the leader and in every other copy before it is left out. A
copy that is behind looks like one with a gap at its end; only `last_of` says where the end is.
See: store.py; watch.py finds which server is sick.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import xxhash

from dejaqueue.connections.nats.answers import ApiRefusal, Meaning, Reply
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.errors import Unavailable

log = logging.getLogger("dejaqueue.journal")

SUM = "Dejaq-Sum"
NUMBER = "Dejaq-Number"
"""Of a record in its log; SEQUENCE is that of the message in the stream, which has other logs."""
SEQUENCE = "Nats-Sequence"
WINDOW_BYTES = 8 << 20
"""Bytes that a server sends unasked at most."""
WINDOW_RECORDS = 1000
ASK_AGAIN = 4
"""Direct reads are answered by any server that has a copy: another one, it may be."""
END_OF_WINDOW = 204


def checksum(content: bytes, number: int = 0) -> str:
    """What a record is stored with."""
    return str(xxhash.xxh3_64_hexdigest(content, seed=number))


def is_whole(reply: Reply) -> bool:
    """True if a record is what was stored; one without a checksum is taken as it is."""
    expected = reply.headers.get(SUM)
    return expected is None or expected == checksum(reply.content, number_of(reply)[0])


def number_of(reply: Reply) -> tuple[int, int]:
    """(number in its log, sequence in the stream) of a record."""
    return int(reply.headers.get(NUMBER, 0)), int(reply.headers.get(SEQUENCE, 0))


class Marks:
    """Which sequence records of a log have, as far as it was seen. For one thread at a time."""

    def __init__(self) -> None:
        self._numbers, self._sequences = array("q"), array("q")

    def note(self, number: int, sequence: int) -> None:
        """Know one."""
        place = bisect_left(self._numbers, number)
        if place == len(self._numbers) or self._numbers[place] != number:
            self._numbers.insert(place, number)
            self._sequences.insert(place, sequence)

    def exact(self, number: int) -> int:
        """The sequence of a record, 0 = it is not known."""
        place = bisect_left(self._numbers, number)
        is_there = place < len(self._numbers) and self._numbers[place] == number
        return self._sequences[place] if is_there else 0

    def at_least(self, number: int) -> int:
        """A sequence that the record has, or a lower one with none of its log in between that is
        known: from 1."""
        place = bisect_left(self._numbers, number)
        if place < len(self._numbers) and self._numbers[place] == number:
            return self._sequences[place]
        return self._sequences[place - 1] + 1 if place else 1

    def forget_before(self, number: int) -> None:
        """Those below are not needed any more."""
        place = bisect_left(self._numbers, number)
        del self._numbers[:place]
        del self._sequences[:place]


class Reader:
    """Reads the records of one log in a stream.

    Args:
        last_of: (number, sequence) of the last record of a subject.
        suspect: called with the stream and the sequence of a record that some copy did not give.
        copies: gives the record of a subject at a sequence, or the next one, as each server has it,
            one after the other.
    """

    def __init__(
        self,
        connection: NatsConnection,
        stream: str,
        subject: str,
        last_of: Callable[[str], tuple[int, int]],
        suspect: Callable[[str, int], None],
        copies: Callable[[str, int, str], Iterator[Reply]],
    ) -> None:
        self._connection, self._stream, self._subject = connection, stream, subject
        self._last_of, self._suspect, self._copies = last_of, suspect, copies
        self._marks = Marks()
        self._guard = threading.Lock()

    def note(self, first: int, sequences: Sequence[int]) -> None:
        """Know where records are that were appended now."""
        with self._guard:
            for number, sequence in enumerate(sequences, first):
                self._marks.note(number, sequence)

    def forget_before(self, number: int) -> None:
        """Records below a number were dropped."""
        with self._guard:
            self._marks.forget_before(number)

    def sequence_of(self, number: int) -> int:
        """The sequence of a record in the stream, 0 = no copy has it. Raises Unavailable."""
        with self._guard:
            known = self._marks.exact(number)
        if not known:
            for _ in self.read(number, number + 1):
                with self._guard:
                    known = self._marks.exact(number)
        return known

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
                known_last = self._last_of(self._subject)[0]
                if first > known_last:
                    return
                begin = self._begin(known_last)
                if first < begin and not self._is_anywhere(first):
                    first = begin
                    continue
            kept = self._look_for(first)
            if kept is not None:
                yield first, kept
            first += 1

    def _unbroken(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Records from `first` on that some copy gives, up to a gap or an altered record."""
        with self._guard:
            since, is_known = self._marks.at_least(first), self._marks.exact(first) > 0
        while first < end:
            before = since
            # What is before it comes, too, where it is not known which sequence it has.
            count = end - first if is_known else WINDOW_RECORDS
            for reply in direct(self._connection, self._stream, self._asked(since), count):
                number, sequence = number_of(reply)
                if number > first:
                    return
                with self._guard:
                    self._marks.note(number, sequence)
                if number == first and not is_whole(reply):
                    return
                since = sequence + 1
                if number < first:
                    continue
                yield first, reply.content
                first += 1
                if first >= end:
                    return
            if since == before:
                return

    def _asked(self, since: int) -> dict[str, Any]:
        return {"seq": since, "next_by_subj": self._subject}

    def since(self, number: int) -> int:
        """A sequence in the stream from which on the record is, as far as it is known."""
        with self._guard:
            return self._marks.at_least(number)

    def _look_for(self, number: int) -> bytes | None:
        """A record that some copy lacks or has altered, as the others have it.

        Returns:
            Altered, if no server has it whole; None if none has it.
        """
        altered: Reply | None = None
        for reply in self._everywhere(number):
            found, sequence = number_of(reply)
            if found != number:
                continue
            if is_whole(reply):
                self.note(number, [sequence])
                self._suspect(self._stream, sequence)
                return reply.content
            altered = reply
        log.error("%s: no server has record %d as it was stored", self._subject, number)
        if altered is None:
            return None
        self._suspect(self._stream, number_of(altered)[1])
        return altered.content

    def _everywhere(self, number: int) -> Iterator[Reply]:
        since = self.since(number)
        # The leader first: a copy that is only behind lacks a record too.
        reply = from_leader(self._connection, self._stream, self._asked(since))
        if reply is not None:
            yield reply
        for _ in range(ASK_AGAIN):
            yield from direct(self._connection, self._stream, self._asked(since), 1)
        yield from self._copies(self._stream, since, self._subject)

    def _begin(self, known_last: int) -> int:
        """The first number that the leader has."""
        reply = from_leader(self._connection, self._stream, self._asked(1))
        return known_last + 1 if reply is None else number_of(reply)[0]

    def _is_anywhere(self, number: int) -> bool:
        """True if a server has a record that the leader says was dropped."""
        return any(
            number_of(reply)[0] == number
            for _ in range(ASK_AGAIN)
            for reply in direct(self._connection, self._stream, self._asked(self.since(number)), 1)
        )


def from_leader(connection: NatsConnection, stream: str, asked: dict[str, Any]) -> Reply | None:
    """A record as the leader has it, None if it has it not. Raises Unavailable."""
    try:
        message = connection.look_up(f"STREAM.MSG.GET.{stream}", asked)["message"]
    except ApiRefusal as error:
        if error.meaning is Meaning.ABSENT:
            return None
        raise Unavailable(str(error)) from error
    headers: dict[str, str] = {}
    for line in base64.b64decode(message.get("hdrs", "")).decode().split("\r\n")[1:]:
        name, _, value = line.partition(":")
        headers[name] = value.strip()
    headers[SEQUENCE] = str(message["seq"])
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
