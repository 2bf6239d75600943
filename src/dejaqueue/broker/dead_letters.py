"""Dead letters: messages that died travel to another topic, and are buried once they are there.

Room: broker. `DeadLetters` is a partition's and runs on its worker; the one `Carrier` of a broker
reads stored rows and sends them, on a thread of its own, so that nobody else waits for it.
Holds: a message is buried only when its letter is durable; a parcel that is sent again is
recognised (rule 10), and so is a letter that is there already, by its key (rule 11); where letters
cannot be sent now, they stay dead, are tried again after a pause, and everything else goes on.
See: rule 18; docs/guides/failures.md; redrive.py, which sends letters back.

    engine: dead group → durable → parcel → Carrier → the other topic: durable → Bury in the engine
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from dejaqueue import limits
from dejaqueue.access.senders import THE_BROKER, Sender
from dejaqueue.broker.reading import read_stored, text_of
from dejaqueue.clock import Clock
from dejaqueue.engine.arrays import Int64s, UInt16s, Words
from dejaqueue.engine.commands import Bury
from dejaqueue.engine.dictionary import of_runs, to_runs
from dejaqueue.errors import BadRequest, DejaQError, InternalError, TopicUnknown, Unavailable
from dejaqueue.journal.interface import TEXT_COLUMNS, Journal
from dejaqueue.model import RowStatus, Topic
from dejaqueue.schema import dead_letters as letters
from dejaqueue.schema.checks import SendColumns, text_bytes, text_offsets
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply

if TYPE_CHECKING:
    from dejaqueue.broker.partition import Partition
    from dejaqueue.broker.writer import Writer

log = logging.getLogger("dejaqueue.broker")

# Letters that travel together: enough for 100,000 a second, little enough to stay unnoticed.
PARCEL_ROWS_MAX = 2_048
PARCEL_BYTES_MAX = 8 << 20
# Parcels of one destination that are on their way at once: who dies alone travels alone.
PARCELS_MAX = 256
# Between two attempts to send; doubled each time. What passes by itself (a journal that is away, a
# full disk) is looked at more often than what somebody has to mend.
PAUSE_MS_FIRST = 1_000
PAUSE_MS_MAX = 60_000
PAUSE_MS_MAX_IF_RETRIED = 5_000
# A name longer than this goes into a letter's key as a digest: keys have a limit of their own.
_NAME_IN_KEY_MAX = 190


@dataclass(frozen=True, slots=True)
class Parcel:
    """Dead messages of one partition that travel together; arrays have one length.

    Attributes:
        topic: where they died, or leave.
        destination: the topic they go to; "" = the dead-letter topic.
        groups: texts of now, where they are not those that are stored.
        reasons: why each died.
        deaths_ms: when.
        senders: who sent each; None = nobody.
    """

    topic: Topic
    partition: int
    destination: str
    sequences: Int64s
    attempts: UInt16s
    locators: Int64s
    priorities: UInt16s | None
    groups: Words | None
    reasons: Words
    deaths_ms: Int64s
    senders: Words | None = None

    def first(self, rows: int) -> Parcel:
        """The first rows of it."""
        if rows == len(self.sequences):
            return self
        return replace(
            self,
            sequences=self.sequences[:rows],
            attempts=self.attempts[:rows],
            locators=self.locators[:rows],
            priorities=None if self.priorities is None else self.priorities[:rows],
            groups=None if self.groups is None else _first(self.groups, rows),
            senders=None if self.senders is None else _first(self.senders, rows),
            reasons=_first(self.reasons, rows),
            deaths_ms=self.deaths_ms[:rows],
        )

    def number(self) -> int:
        """A batch number of its content: equal parcels have equal ones, after a restart, too."""
        digest = hashlib.blake2b(digest_size=8)
        for column in (self.sequences, self.deaths_ms):
            digest.update(np.ascontiguousarray(column).tobytes())
        return int.from_bytes(digest.digest(), "little") >> 1


def _first(words: Words, rows: int) -> Words:
    return Words(words.names, words.indices[:rows])


def _kept_senders(parcel: Parcel, rows: Int64s | None = None) -> Words | None:
    """Who sent these rows of a parcel, None = all: a letter is its message's sender's."""
    senders = parcel.senders
    if senders is None:
        return None
    return of_runs(to_runs(senders if rows is None else senders.take(rows)))


Arrived = Callable[[int, DejaQError | None], None]
"""Told how many rows of a parcel are durable where they went, or why none is."""


class Post(Protocol):
    """What a carrier needs of a broker."""

    clock: Clock

    def topic(self, name: str) -> Topic:
        """The topic, or TopicUnknown."""
        ...

    def create_topic(self, topic: Topic, *, exist_ok: bool = False) -> Topic:
        """Make a topic."""
        ...

    def served_names(self, topic: Topic) -> tuple[str, ...]:
        """What is served apart: the topic, or its shards."""
        ...

    def open_write(self, stream: WriteStream, sender: Sender) -> Writer:
        """A stream of batches."""
        ...


class Carrier:
    """Takes parcels to their topics, one after the other.

    Args:
        post: the broker.
        thread: where they are read and sent.
    """

    def __init__(self, post: Post, thread: Executor) -> None:
        self._post = post
        self._thread = thread

    def close(self) -> None:
        """Carry nothing any more. Twice is fine."""
        self._thread.shutdown(cancel_futures=True)

    def carry(self, parcel: Parcel, journal: Journal, arrived: Arrived) -> None:
        """Send as much of the parcel as travels at once; does not block.

        Args:
            arrived: called once, on any thread, unless the carrier is closed before.
        """

        def run() -> None:
            try:
                self._carry(parcel, journal, arrived)
            except DejaQError as error:
                arrived(0, error)
            except Exception as wrong:  # noqa: BLE001 - our bug: others' letters must go on
                arrived(0, InternalError(f"dead letters: {type(wrong).__name__}: {wrong}"))

        try:
            self._thread.submit(run)
        except RuntimeError:
            return  # the broker stops: they are sent after its next start

    def _carry(self, parcel: Parcel, journal: Journal, arrived: Arrived) -> None:
        stored = read_rows(parcel, journal)
        if not stored.num_rows:
            raise Unavailable("rows are being copied", 50)
        parcel = parcel.first(stored.num_rows)
        now_ms = self._post.clock.utc_ms()
        if parcel.destination:
            columns, kind = returned_columns(parcel, stored, now_ms), "redrive"
            name = self._served(parcel.destination, parcel)
        else:
            columns, kind = letter_columns(parcel, stored, now_ms), "dead"
            name = self._served(self._dead_letter_topic(parcel.topic), parcel)
        producer = f"{kind}/{parcel.topic.name}/{parcel.partition}"
        writer = self._post.open_write(WriteStream(name, producer=producer), THE_BROKER)

        def replied(reply: Reply) -> None:
            if reply.error is not None:
                arrived(0, reply.error)
            elif parcel.destination and reply.statuses is not None and reply.statuses.any():
                self._send_without_keys(writer, parcel, columns, reply, arrived)
            else:
                # A letter whose key is taken is there already.
                arrived(columns.rows, None)

        writer.submit_columns(parcel.number(), columns, _kept_senders(parcel), replied)

    def _send_without_keys(
        self,
        writer: Writer,
        parcel: Parcel,
        columns: SendColumns,
        reply: Reply,
        arrived: Arrived,
    ) -> None:
        """Messages that come back, but whose key was taken meanwhile: they lose it, not more."""
        refused = (RowStatus.DUPLICATE, RowStatus.KEPT)
        rows = np.flatnonzero(np.isin(reply.all_statuses(), refused))
        left, senders = columns.take(rows), _kept_senders(parcel, rows)
        left.keys = None

        def replied(reply: Reply) -> None:
            arrived(0 if reply.error is not None else columns.rows, reply.error)

        # One less is no number of another parcel, but for one in 2^63.
        writer.submit_columns(parcel.number() ^ 1, left, senders, replied)

    def _served(self, name: str, parcel: Parcel) -> str:
        """The topic, or the shard of it that is where the parcel comes from."""
        topic = self._post.topic(name)
        if topic.spread != parcel.topic.spread:
            limit = f"a topic of spread {parcel.topic.spread}, as {parcel.topic.name}"
            raise BadRequest("topic", limit, f"{name}, of {topic.spread}")
        names = self._post.served_names(topic)
        return names[parcel.partition % len(names)]

    def _dead_letter_topic(self, topic: Topic) -> str:
        """The name of the topic's dead-letter topic, which is made if it is not there."""
        name = topic.dead_letter_name
        try:
            self._post.topic(name)
        except TopicUnknown:
            most = limits.PAYLOAD_BYTES_MAX
            made = Topic(name, max_payload_bytes=most, spread=topic.spread)
            self._post.create_topic(made, exist_ok=True)
        return name


def read_rows(parcel: Parcel, journal: Journal) -> pa.RecordBatch:
    """Stored columns of the first rows of a parcel: as many as travel at once.

    Rows that are not where they were a moment ago end it: they were copied elsewhere. How many rows
    it takes depends on their sizes alone, so that a parcel is the same when it is sent again.
    """
    step = max(1, 4 * PARCEL_BYTES_MAX // max(1, parcel.topic.max_payload_bytes))
    parts: list[pa.RecordBatch] = []
    byte_count = first = 0
    while first < len(parcel.locators) and byte_count < PARCEL_BYTES_MAX:
        part = read_stored(journal, parcel.locators[first : first + step])
        payloads = part.column(TEXT_COLUMNS.index("payload"))
        rows = asked = part.num_rows
        if payloads.null_count:
            rows = int(np.flatnonzero(np.asarray(payloads.is_null()))[0])
        if byte_count + text_bytes(payloads) > PARCEL_BYTES_MAX:
            ends = text_offsets(payloads)[1:] - text_offsets(payloads)[0]
            fitting = int(np.searchsorted(ends, PARCEL_BYTES_MAX - byte_count, "right"))
            rows = min(rows, max(fitting, 0 if parts else 1))
        parts.append(part.slice(0, rows))
        first += rows
        byte_count += text_bytes(payloads)
        if rows < asked:
            break
    if not first:
        return parts[0].slice(0, 0)
    return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def _texts(stored: pa.RecordBatch, name: str) -> pa.StringArray:
    return stored.column(TEXT_COLUMNS.index(name)).fill_null("")


def _send_columns(
    parcel: Parcel,
    stored: pa.RecordBatch,
    now_ms: int,
    keys: pa.StringArray,
    headers: pa.StringArray,
) -> SendColumns:
    rows = stored.num_rows
    groups = _texts(stored, "group")
    if parcel.groups is not None:
        groups = text_of(parcel.groups).fill_null("")
    payloads = stored.column(TEXT_COLUMNS.index("payload"))

    def some(texts: pa.StringArray) -> pa.StringArray | None:
        return texts if text_bytes(texts) else None

    return SendColumns(
        rows=rows,
        dues_ms=np.full(rows, now_ms, dtype=np.int64),
        payloads=payloads,
        keys=some(keys),
        groups=some(groups),
        tags=some(_texts(stored, "tags")),
        headers=some(headers),
        partitions=None,
        payload_bytes=text_bytes(payloads),
        priorities=parcel.priorities,
    )


def letter_columns(parcel: Parcel, stored: pa.RecordBatch, now_ms: int) -> SendColumns:
    """The dead letters of these messages.

    A letter has a key of its own, made of origin, id and time of death: sent twice, it is there
    once. Headers of the death come on top of what a message may have of them.
    """
    origin = parcel.topic.name
    ids = pa.array(parcel.sequences | (parcel.partition << limits.SEQUENCE_BITS)).cast(pa.utf8())
    died_at = pa.array(parcel.deaths_ms).cast(pa.utf8())
    deaths = letters.Deaths(
        text_of(parcel.reasons).fill_null(""),
        pa.array(parcel.attempts).cast(pa.utf8()),
        origin,
        ids,
        died_at,
        _texts(stored, "key"),
    )
    headers = letters.with_death(_texts(stored, "headers"), deaths)
    keys = letters.letter_keys(_short(origin), ids, died_at)
    return _send_columns(parcel, stored, now_ms, keys, headers)


def _short(name: str) -> str:
    if len(name) <= _NAME_IN_KEY_MAX:
        return name
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


def returned_columns(parcel: Parcel, stored: pa.RecordBatch, now_ms: int) -> SendColumns:
    """The messages that these letters were, as they were sent; due now."""
    headers = _texts(stored, "headers")
    keys = letters.packed_value(headers, letters.KEY)
    return _send_columns(parcel, stored, now_ms, keys, letters.without_death(headers))


@dataclass(slots=True)
class _Group:
    """A group of the dead that waits.

    Attributes:
        number: of the group in the engine.
        position: once entries up to here are durable it may be sent.
        done: rows of it that arrived.
        on_way: the next rows of it are.
    """

    number: int
    position: int
    done: int = 0
    on_way: bool = False


@dataclass(slots=True)
class _Lane:
    """What waits for one destination, by number of the group, oldest first."""

    waiting: dict[int, _Group] = field(default_factory=dict)
    until_us: int = 0
    failures: int = 0

    @property
    def on_way(self) -> int:
        """How many parcels are on their way."""
        return sum(group.on_way for group in self.waiting.values())


@dataclass(frozen=True, slots=True)
class _Answer:
    """What became of a parcel."""

    load_number: int
    destination: str
    group: int
    rows: int
    error: DejaQError | None


class DeadLetters:
    """The dead of one partition.

    A parcel is of one group: whatever else has died meanwhile, after a restart it is the same, and
    is recognised where it arrived before.
    """

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._lanes: dict[str, _Lane] = {}
        self._next_number = 0
        self._load_number = 0
        self._answers: deque[_Answer] = deque()

    def loaded(self, partition: Partition) -> None:
        """The partition was read: whoever is dead still is to be sent, maybe once more."""
        self._load_number += 1
        self._lanes = {}
        for number in partition.engine.dead:
            self._wait(partition, number, 0)
        self._next_number = partition.engine.dead_number

    def _wait(self, partition: Partition, number: int, position: int) -> None:
        group = partition.engine.dead.get(number)
        if group is not None:
            lane = self._lanes.setdefault(group.destination, _Lane())
            lane.waiting[number] = _Group(number, position)

    def bury(self, partition: Partition) -> None:
        """Bury those whose letters arrived; before the step's entries are appended."""
        while self._answers:
            answer = self._answers.popleft()
            if answer.load_number != self._load_number:
                continue  # the partition was read again since: they are sent again, and recognised
            lane = self._lanes[answer.destination]
            group = lane.waiting[answer.group]
            group.on_way = False
            if answer.error is not None:
                if lane.until_us <= partition.clock.now_us():  # of those that failed together, one
                    self._pause(partition, answer.destination, lane, answer.error)
                continue
            lane.failures = 0
            group.done += answer.rows
            if group.done == len(partition.engine.dead[group.number].sequences):
                del lane.waiting[group.number]
                partition.apply(Bury(partition.now_ms(), group.number))

    @staticmethod
    def _pause(partition: Partition, destination: str, lane: _Lane, error: DejaQError) -> None:
        """Try again later: soon if that is what the error says, else less and less often."""
        first_ms, most_ms = PAUSE_MS_FIRST, PAUSE_MS_MAX
        if error.retry:
            first_ms = getattr(error, "retry_after_ms", 0) or PAUSE_MS_FIRST
            most_ms = PAUSE_MS_MAX_IF_RETRIED
        pause_ms = min(first_ms << min(lane.failures, 20), most_ms)
        if lane.failures == 0 and not isinstance(error, Unavailable):
            topic = partition.topic()
            log.warning(
                "topic %s, partition %d: messages for topic %s wait: %s",
                topic.name,
                partition.number,
                destination or topic.dead_letter_name,
                error,
                extra={"topic": topic.name, "partition": partition.number},
            )
        lane.failures += 1
        lane.until_us = partition.clock.now_us() + pause_ms * 1_000

    def send(self, partition: Partition) -> None:
        """Send whoever is dead for good, that is, durably; after the step's append."""
        position = partition.next_position() - 1
        for number in range(self._next_number, partition.engine.dead_number):
            self._wait(partition, number, position)
        self._next_number = partition.engine.dead_number
        if not self._lanes:
            return
        now_us = partition.clock.now_us()
        for destination, lane in list(self._lanes.items()):
            if not lane.waiting:
                del self._lanes[destination]
            elif lane.until_us <= now_us:
                self._send(partition, destination, lane)

    def _send(self, partition: Partition, destination: str, lane: _Lane) -> None:
        """Have as many groups on their way as travel together."""
        room = PARCELS_MAX - lane.on_way
        rows = 0
        for group in lane.waiting.values():
            if room <= 0 or rows >= PARCEL_ROWS_MAX or group.position > partition.position:
                return
            if group.on_way:
                continue
            parcel = self._pack(partition, destination, group)
            group.on_way = True
            room -= 1
            rows += len(parcel.sequences)
            arrived = partial(self._came, partition, self._load_number, destination, group.number)
            self._carrier.carry(parcel, partition.journal, arrived)

    def _came(
        self,
        partition: Partition,
        load_number: int,
        destination: str,
        group: int,
        rows: int,
        error: DejaQError | None,
    ) -> None:
        self._answers.append(_Answer(load_number, destination, group, rows, error))
        partition.ring()

    @staticmethod
    def _pack(partition: Partition, destination: str, waiting: _Group) -> Parcel:
        """The next rows of a group."""
        engine = partition.engine
        group = engine.dead[waiting.number]
        rows = group.sequences[waiting.done : waiting.done + PARCEL_ROWS_MAX]
        return Parcel(
            partition.topic(),
            partition.number,
            destination,
            rows,
            engine.attempts(rows),
            engine.locators(rows),
            engine.priorities(rows),
            engine.moved_groups(rows),
            Words((group.reason,), np.zeros(len(rows), dtype=np.int32)),
            np.full(len(rows), group.now_ms, dtype=np.int64),
            engine.senders(rows),
        )

    def next_us(self) -> int | None:
        """When to be called though nothing happens; None = no need."""
        return min(
            (lane.until_us for lane in self._lanes.values() if lane.failures and not lane.on_way),
            default=None,
        )
