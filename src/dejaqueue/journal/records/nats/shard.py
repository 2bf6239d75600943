"""Appending to one stream for all partitions whose records are in it.

What several partitions append at a time goes to the server together: small records of any of them
are one batch that is stored whole or not. The server compares the number of the stream's last
message, and what each partition appends behind is compared here, with what the stream was seen to
have when that number was: if anybody has appended since, the server refuses, and both are asked
for anew.

Room: journal.
Holds: one append of a stream is on its way; none is sent a second time after its answer was lost.
Nothing depends on who else appends to the stream: brokers that share one are only slower.
See: store.py; docs/adr/0111-a-stream-for-each-slot.md.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dejaqueue.clock import Clock, Wake
from dejaqueue.connections.nats.answers import (
    WRONG_LAST,
    ApiRefusal,
    Meaning,
    Reply,
    read_answer,
)
from dejaqueue.connections.nats.connection import TIMEOUT_S, Message, NatsConnection
from dejaqueue.errors import DejaQError, Fenced, ResourceExhausted, Unavailable
from dejaqueue.journal.records.nats.objects import BYTES_A_SECOND
from dejaqueue.journal.records.nats.reading import (
    NUMBER,
    SUM,
    checksum,
    from_leader,
    number_of,
)
from dejaqueue.journal.records.nats.streams import stream_state

EXPECTED = "Nats-Expected-Last-Sequence"
SETTLE_MS = 3_000
"""How long an append waits that was refused because an earlier one is not agreed on yet."""
SETTLE_US = 20_000
SMALL_BYTES = 128 << 10
"""A larger record is as fast alone, and waits for no other."""
BATCH_BYTES = 4 << 20
BATCH_RECORDS = 500
"""The server takes 1,000."""
TRIES_MAX = 100
"""Of an append that others are before: brokers that share a stream come between each other."""
ASK_OTHERS = 3
"""Direct reads are answered by any server that has a copy: another one, it may be."""
OTHERS_S = 1.0


@dataclass(slots=True)
class Append:
    """What one partition appends: it waits in a shard's line until it is `done`.

    Attributes:
        after: number of the record that the next of its batches goes behind.
        batches: what is left of it, each to be stored at once.
        stored: of each record that is in, its sequence in the stream.
        failed: why the rest is not, or may not be.
        leads: told to append for all that wait.
    """

    subject: str
    after: int
    batches: deque[list[bytes]]
    stored: list[int] = field(default_factory=list)
    failed: DejaQError | None = None
    is_done: bool = False
    leads: bool = False
    rung: threading.Event = field(default_factory=threading.Event)

    def end(self, failed: DejaQError | None = None) -> None:
        """Nothing more becomes of it."""
        if failed is not None and self.stored and not isinstance(failed, Unavailable):
            # What is before it is in: whether all of it is must be found out.
            failed = Unavailable(f"{failed}, behind a part of this append")
        self.failed, self.is_done = failed, True
        self.rung.set()


class Shard:
    """One stream, for all who append to it from this store. Any thread may call it."""

    def __init__(
        self,
        connection: NatsConnection,
        name: str,
        clock: Clock,
        *,
        takes_batches: bool,
        others: int = ASK_OTHERS,
    ) -> None:
        """Nothing is asked yet.

        Args:
            takes_batches: the stream stores several records at once or none of them.
            others: how often other copies are asked with the leader; 0 = it has the only one.
        """
        self._connection, self.name, self._clock = connection, name, clock
        self._takes_batches, self._others = takes_batches, others
        self._guard = threading.Lock()
        self._line: deque[Append] = deque()
        self._is_led = False
        # Of whoever leads: the stream's last sequence, and the last numbers behind which each
        # subject was then; -1 = it has to be asked for.
        self._last = -1
        self._numbers: dict[str, int] = {}
        # What `last_of` was answered while the stream's last sequence was this, or before, where
        # all that came since was appended here.
        self._looked_at, self._looked = -1, dict[str, tuple[int, int]]()

    # --- what there is ------------------------------------------------------------------------

    def state(self, asked: object = None) -> dict[str, Any]:
        """What the stream's leader says of it; see `stream_state` for what it must hear."""
        found = stream_state(self._connection, self.name, asked)
        if found is None:
            raise Unavailable(f"{self.name}: the stream is gone")
        state: dict[str, Any] = found["state"]
        return state

    def last_of(self, subject: str) -> tuple[int, int]:
        """(number, sequence) of the last record of a subject, (0, 0) if it has none.

        The leader is asked, and other copies with it: a leader that has lost a record would say
        that there never was one, and a copy that is only behind says less than the leader.
        A leader that was just cut off from the others may answer for up to a second what was the
        last before; an append behind it is refused or gets no answer then.
        """
        last = int(self.state()["last_seq"])  # of a leader that hears the others
        with self._guard:
            if self._looked_at != last:
                self._looked_at, self._looked = last, {}
            known = self._looked.get(subject)
        if known is None:
            known = self._last_of(subject)
            with self._guard:
                if self._looked_at == last:
                    self._looked[subject] = known
        return known

    def _last_of(self, subject: str) -> tuple[int, int]:
        asked = {"last_by_subj": subject}
        found = [from_leader(self._connection, self.name, asked)]
        direct = Message(f"$JS.API.DIRECT.GET.{self.name}", json.dumps(asked).encode())
        if self._others:
            others = self._connection.publish_each([direct] * self._others, OTHERS_S)
            found += [other for other in others if other is not None and not other.status]
        return max((number_of(one) for one in found if one is not None), default=(0, 0))

    # --- appending ----------------------------------------------------------------------------

    def append(self, subject: str, after: int, contents: Sequence[bytes]) -> list[int]:
        """Append records of one subject behind its record `after`.

        Returns:
            The sequence of each in the stream.

        Raises:
            Fenced, ResourceExhausted, Unavailable: see RecordLog.append.
        """
        one = Append(subject, after, deque(batches(contents, self._takes_batches)))
        with self._guard:
            self._line.append(one)
            one.leads, self._is_led = not self._is_led, True
        if not one.leads:
            one.rung.wait()  # by who leads, whose own requests have an end
        if one.leads:
            self._lead(one)
        if one.failed is not None:
            raise one.failed
        return one.stored

    def _lead(self, one: Append) -> None:
        """Append for all that wait until this append is done; then another one leads."""
        try:
            while not one.is_done:
                turn = self._turn()
                try:
                    self._append(turn)
                except DejaQError as error:
                    _end(turn, error)
                except BaseException:
                    _end(turn, Unavailable(f"{self.name}: an append broke off"))
                    raise
                with self._guard:
                    self._line.extend(left for left in turn if not left.is_done)
        finally:
            with self._guard:
                if not one.is_done:  # its thread leaves, and leads no more
                    one.end(Unavailable(f"{self.name}: an append broke off"))
                self._line = deque(left for left in self._line if not left.is_done)
                self._is_led = bool(self._line)
                if self._line:
                    self._line[0].leads = True
                    self._line[0].rung.set()

    def _turn(self) -> list[Append]:
        """Whose next batches go together: those of the first in line, and of whoever fits in."""
        with self._guard:
            turn = [self._line.popleft()]
            records, byte_count = _size(turn[0].batches[0])
            if not self._takes_batches or not _is_small(turn[0].batches[0]):
                return turn
            waiting, subjects = deque[Append](), {turn[0].subject}
            for other in self._line:
                more, more_bytes = _size(other.batches[0])
                fits = records + more <= BATCH_RECORDS and byte_count + more_bytes <= BATCH_BYTES
                is_new = other.subject not in subjects
                if fits and is_new and _is_small(other.batches[0]):
                    turn.append(other)
                    subjects.add(other.subject)
                    records, byte_count = records + more, byte_count + more_bytes
                else:
                    waiting.append(other)
            self._line = waiting
            return turn

    def _append(self, turn: list[Append]) -> None:
        """Store the next batch of each, or end those that are not behind the last of theirs."""
        for _ in range(TRIES_MAX):
            if self._last < 0:
                self._numbers.clear()
                self._last = int(self.state()["last_seq"])
            turn[:] = [one for one in turn if self._is_next(one)]
            if not turn:
                return
            answer = self._send(turn)
            if answer is not None:
                self._stored(turn, answer)
                return
            self._settle()
        raise Unavailable(f"{self.name}: others append to it all the time")

    def _is_next(self, one: Append) -> bool:
        """True if the partition's last record is the one that is appended behind.

        The leader of a stream compares with what it has proposed, too, which may vanish again. What
        is seen here is agreed on: only by that is an append fenced.
        """
        number = self._numbers.get(one.subject, -1)
        if number != one.after:
            with self._guard:
                looked = self._looked.get(one.subject) if self._looked_at == self._last else None
            if looked is None or looked[0] != one.after:
                looked = self._last_of(one.subject)
            number = self._numbers[one.subject] = looked[0]
        if number == one.after:
            return True
        one.end(Fenced(f"{one.subject}: the last record is not {one.after}"))
        return False

    def _send(self, turn: list[Append]) -> int | None:
        """Send a batch of each; the sequence of the last, None if it is not behind the last one.

        Raises:
            ResourceExhausted: nothing was stored. Unavailable: that is not known.
        """
        messages = list(self._messages(turn))
        timeout_s = TIMEOUT_S + sum(len(one.content) for one in messages) / BYTES_A_SECOND
        *_, reply = self._connection.publish_each(messages, timeout_s)
        try:
            answer = _answer(self.name, reply)
        except ApiRefusal as error:
            if error.number == WRONG_LAST:
                return None
            self._last = -1
            if error.meaning is Meaning.NO_ROOM:
                raise ResourceExhausted(str(error)) from error
            raise Unavailable(str(error)) from error
        except Unavailable:
            self._last = -1
            raise
        last, expected = int(answer["seq"]), self._last + len(messages)
        if last != expected:
            self._last = -1
            raise Unavailable(f"{self.name}: record {expected} was stored as {last}")
        return last

    def _messages(self, turn: list[Append]) -> Iterator[Message]:
        contents = [
            (one.subject, number, content)
            for one in turn
            for number, content in enumerate(one.batches[0], one.after + 1)
        ]
        mark = secrets.token_hex(12)
        for place, (subject, number, content) in enumerate(contents, 1):
            headers = {SUM: checksum(content, number), NUMBER: str(number)}
            if place == 1:
                headers[EXPECTED] = str(self._last)
            if len(contents) > 1:
                headers |= {"Nats-Batch-Id": mark, "Nats-Batch-Sequence": str(place)}
                if place == len(contents):
                    headers["Nats-Batch-Commit"] = "1"
            yield Message(subject, content, headers)

    def _stored(self, turn: list[Append], last: int) -> None:
        sequence, self._last = self._last, last
        before, looked = sequence, dict[str, tuple[int, int]]()
        for one in turn:
            count = len(one.batches.popleft())
            one.stored += range(sequence + 1, sequence + 1 + count)
            sequence += count
            one.after += count
            self._numbers[one.subject] = one.after
            looked[one.subject] = one.after, sequence
            if not one.batches:
                one.end()

        with self._guard:
            if self._looked_at == before:  # nobody else has appended since
                self._looked_at = last
                self._looked |= looked

    def _settle(self) -> None:
        """After a refusal: know what the last sequence is, once it is another one.

        The refusal may be for an append that is not agreed on, and vanishes again.
        """
        refused, self._last = self._last, -1
        until_ms = self._clock.now_ms() + SETTLE_MS
        while (last := int(self.state()["last_seq"])) == refused:
            if self._clock.now_ms() > until_ms:
                raise Unavailable(f"{self.name}: a record behind {refused} is not agreed on")
            self._clock.wait_until(self._clock.now_us() + SETTLE_US, Wake())
        self._last = last
        self._numbers.clear()


def _end(turn: list[Append], error: DejaQError) -> None:
    for one in turn:
        if not one.is_done:
            one.end(error)


def _size(batch: list[bytes]) -> tuple[int, int]:
    return len(batch), sum(map(len, batch))


def _is_small(batch: list[bytes]) -> bool:
    return all(len(one) <= SMALL_BYTES for one in batch)


def _answer(name: str, reply: Reply | None) -> dict[str, Any]:
    if reply is None or reply.status:
        raise Unavailable(f"{name}: no answer to an append")
    return read_answer(name, reply)


def batches(contents: Sequence[bytes], takes_batches: bool) -> Iterator[list[bytes]]:
    """Records in groups: small ones together up to a bound of bytes; a large one alone."""
    batch: list[bytes] = []
    byte_count = 0
    for content in contents:
        alone = len(content) > SMALL_BYTES or not takes_batches
        full = byte_count + len(content) > BATCH_BYTES or len(batch) == BATCH_RECORDS
        if batch and (alone or full):
            yield batch
            batch, byte_count = [], 0
        if alone:
            yield [content]
        else:
            batch.append(content)
            byte_count += len(content)
    if batch:
        yield batch
