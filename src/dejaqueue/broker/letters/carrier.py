"""The carrier: takes parcels of dead messages to their topics.

Room: broker. One for a broker, on a thread of its own, so that nobody else waits for what it reads
and sends.
Holds: for each parcel that is carried `arrived` is called once, unless the carrier is closed
before; our own bug with one parcel stops no other.
See: parcel.py; dead_letters.py, whose partitions give it their parcels; rule 18.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from typing import Protocol

import numpy as np

from dejaqueue import limits
from dejaqueue.access.senders import THE_BROKER, Sender
from dejaqueue.broker.letters.far_letters import FarLetterbox, Peers
from dejaqueue.broker.letters.parcel import (
    Parcel,
    RowsDamagedError,
    kept_senders,
    letter_columns,
    read_rows,
    returned_columns,
)
from dejaqueue.broker.payloads.payloads import Payloads
from dejaqueue.broker.replies import ReplyTo
from dejaqueue.clock import Clock
from dejaqueue.engine.arrays import Words
from dejaqueue.errors import (
    BadRequest,
    DejaQError,
    Elsewhere,
    InternalError,
    TopicUnknown,
    Unavailable,
)
from dejaqueue.journal.interface import Journal
from dejaqueue.model import RowStatus, Topic
from dejaqueue.schema import references
from dejaqueue.schema.checks import SendColumns
from dejaqueue.schema.references import Reference
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply

Arrived = Callable[[int, DejaQError | None], None]
"""Told how many rows of a parcel are durable where they went, or why none is; how many of the first
ones cannot be read, if that is why."""


class Letterbox(Protocol):
    """A stream of batches into one topic."""

    def submit_columns(
        self, number: int, columns: SendColumns, senders: Words | None, reply: ReplyTo
    ) -> None:
        """Send a batch that was checked before; `reply` is called once, on any thread."""
        ...


class Post(Protocol):
    """What a carrier needs of a broker."""

    clock: Clock

    @property
    def peers(self) -> Peers | None:
        """The way to other brokers; None = there is none."""
        ...

    def topic(self, name: str) -> Topic:
        """The topic, or TopicUnknown."""
        ...

    def create_topic(self, topic: Topic, *, exist_ok: bool = False) -> Topic:
        """Make a topic."""
        ...

    def served_names(self, topic: Topic) -> tuple[str, ...]:
        """What is served apart: the topic, or its shards."""
        ...

    def open_write(self, stream: WriteStream, sender: Sender) -> Letterbox:
        """A stream of batches."""
        ...

    def payload_owner(self, name: str) -> str:
        """What the payloads of a topic, or shard, have in their names."""
        ...


class Carrier:
    """Takes parcels to their topics, one after the other.

    Args:
        post: the broker.
        thread: where they are read and sent.
        payloads: where large payloads are kept.
    """

    def __init__(self, post: Post, thread: Executor, payloads: Payloads | None = None) -> None:
        self._post = post
        self._thread = thread
        self._payloads = payloads

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
            except RowsDamagedError as damage:
                arrived(damage.rows, damage)
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
        columns = self._with_own_payloads(columns, name)
        producer = f"{kind}/{parcel.topic.name}/{parcel.partition}"
        letterbox = self._letterbox(WriteStream(name, producer=producer))

        def replied(reply: Reply) -> None:
            if reply.error is not None:
                arrived(0, reply.error)
            elif parcel.destination and reply.statuses is not None and reply.statuses.any():
                self._send_without_keys(letterbox, parcel, columns, reply, arrived)
            else:
                # A letter whose key is taken is there already.
                arrived(columns.rows, None)

        letterbox.submit_columns(parcel.number(), columns, kept_senders(parcel), replied)

    def _letterbox(self, stream: WriteStream) -> Letterbox:
        """The way into a topic, or shard, whichever broker serves it."""
        try:
            return self._post.open_write(stream, THE_BROKER)
        except Elsewhere as other:
            peers = self._post.peers
            if peers is None or not other.url:
                raise
            return FarLetterbox(peers, other.url, stream)

    def _with_own_payloads(self, columns: SendColumns, name: str) -> SendColumns:
        """The messages with copies of what they have in the payload store: each topic has its own,
        which go when its message is done."""
        rows = references.marked_rows(columns.payloads).tolist()
        found = {row: references.decode(columns.payloads[row].as_py()) for row in rows}
        large = {row: one for row, one in found.items() if isinstance(one, Reference)}
        if not large or self._payloads is None:
            return columns
        copies = self._payloads.copied(list(large.values()), self._post.payload_owner(name))
        changes = {row: copy.encode() for row, copy in zip(large, copies, strict=True)}
        return replace(columns, payloads=references.replaced(columns.payloads, changes))

    def _send_without_keys(
        self,
        letterbox: Letterbox,
        parcel: Parcel,
        columns: SendColumns,
        reply: Reply,
        arrived: Arrived,
    ) -> None:
        """Messages that come back, but whose key was taken meanwhile: they lose it, not more."""
        refused = (RowStatus.DUPLICATE, RowStatus.KEPT)
        rows = np.flatnonzero(np.isin(reply.all_statuses(), refused))
        unkeyed, senders = columns.take(rows), kept_senders(parcel, rows)
        unkeyed.keys = None

        def replied(reply: Reply) -> None:
            arrived(0 if reply.error is not None else columns.rows, reply.error)

        # One less is no number of another parcel, but for one in 2^63.
        letterbox.submit_columns(parcel.number() ^ 1, unkeyed, senders, replied)

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
