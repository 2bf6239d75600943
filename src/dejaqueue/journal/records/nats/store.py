"""The record store on NATS JetStream: a stream for each slot, one server or three that vote.

Room: journal. Needs the extra `nats`.
Holds: the server compares the number of the stream's last message with each append's own header and
appends in one step. Acknowledged is durable only with `sync_interval: always`: a server that says
otherwise is refused. Several records go as one atomic batch, or one after the other: records
that are sent without waiting could land behind those of another owner, each naming a number that
is right again, though the one before it was refused.
See: journal/records/interface.py for the duties; shard.py for appends; reading.py, watch.py for
damaged copies; docs/adr/0111-a-stream-for-each-slot.md.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dejaqueue.clock import Clock, SystemClock
from dejaqueue.connections.nats.answers import NO_STREAM, ApiRefusal, read_answer
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.connections.nats.monitor import Monitor, open_monitor
from dejaqueue.connections.nats.url import NatsUrl, read_url
from dejaqueue.errors import Refused, Unavailable
from dejaqueue.journal.records.interface import Bytes, RecordLog, RecordStore
from dejaqueue.journal.records.nats.copies import read_copy
from dejaqueue.journal.records.nats.objects import NatsObjects
from dejaqueue.journal.records.nats.reading import Reader, number_of
from dejaqueue.journal.records.nats.shard import ASK_OTHERS, Shard
from dejaqueue.journal.records.nats.status import copy_rows, server_rows
from dejaqueue.journal.records.nats.streams import (
    ATOMIC,
    RecordsPlace,
    make_stream,
    records_beginning,
    records_place,
    settings_of,
)
from dejaqueue.journal.records.nats.watch import CopyWatch, SickCopy

log = logging.getLogger("dejaqueue.journal")

HEADER_BYTES_MAX = 512
RECORD_BYTES_MAX = 1 << 20
COUNT_AGAIN_MS = 2_000
RECORD_BYTES_MIN = 64 << 10


class NatsRecordStore(RecordStore):
    """All record logs and objects of a cluster in JetStream.

    Attributes:
        sick: copies that are not whole, as of the last look: see watch.py.
    """

    erases = True

    def __init__(
        self,
        url: str | NatsUrl,
        *,
        clock: Clock | None = None,
        on_sick: Callable[[list[SickCopy]], None] | None = None,
    ) -> None:
        """Connect, check the servers' settings and begin to watch their copies.

        Args:
            url: see nats_url.py.
            on_sick: called with all that is sick, after each change, on a thread of the store's.

        Raises:
            BadRequest: the url. Refused: settings that lose what was acknowledged. Unavailable.
        """
        self._url = read_url(url) if isinstance(url, str) else url
        self._shards: dict[str, Shard] = {}
        self._slots: dict[str, tuple[int, ...]] = {}
        self._guard = threading.Lock()
        self._clock = clock or SystemClock()
        self._connection = NatsConnection(self._url)
        self._monitor = open_monitor(self._url, self._connection)
        self._watch = CopyWatch(
            self._connection,
            self._monitor,
            self._url.prefix,
            records_beginning(self._url),
            self._clock,
            on_sick,
        )
        try:
            self.summary = f"nats-server {self._connection.server_version}"
            self.record_bytes_max = self._record_bytes()
            servers = max(len(self._url.servers), len(self._url.monitors))
            check_settings(self._monitor, servers, self.summary)
            self._objects = NatsObjects(self._url, self._connection, self.record_bytes_max)
            self._watch.check()
        except BaseException:
            self.close()
            raise
        self._watch.start()

    def _record_bytes(self) -> int:
        most = min(self._connection.payload_bytes_max - HEADER_BYTES_MAX, RECORD_BYTES_MAX)
        if most < RECORD_BYTES_MIN:
            raise Refused(
                f"{self.summary}: max_payload is {self._connection.payload_bytes_max}; the "
                f"journal needs {RECORD_BYTES_MIN + HEADER_BYTES_MAX} at least, better 8MB"
            )
        return most

    @property
    def sick(self) -> list[SickCopy]:
        """Copies that are not whole, as of the last look."""
        return list(self._watch.sick)

    @property
    def address(self) -> NatsUrl:
        """Where the servers are, and the connection that asks them."""
        return self._url

    def has_stream(self, name: str) -> bool:
        """True for the name of a stream of this cluster's."""
        return self._watch.is_ours(name)

    def servers(self, *, now: bool = True) -> list[dict[str, Any]]:
        """The servers with their copies; see status.py."""
        if now:
            self._watch.seen = self._monitor.reports() or self._watch.seen
        return server_rows(self._watch.seen, self.sick, self._watch.is_ours)

    def copies(self, topic: str, partitions: int) -> list[dict[str, Any]]:
        """Which servers have copies of each partition's records; see status.py."""
        names = [self._place(topic, number).stream for number in range(partitions)]
        return copy_rows(self._monitor.reports(), names)

    def on_sick(self, call: Callable[[list[SickCopy]], None]) -> None:
        """Call with all that is sick after each change, on a thread of the store's; now, too, if
        anything is: what `JetStreamServer.heal` is for."""
        self._watch.on_change(call)

    def distrust(self, server: str) -> None:
        """Read all copies of the server beside this broker through soon, and of no other."""
        self._watch.distrust(server)

    def look_now(self) -> list[SickCopy]:
        """Look at all copies now; those that are not whole."""
        return self._watch.check()

    def lies(self, topic: str, slots: tuple[int, ...]) -> None:
        """See RecordStore.lies."""
        with self._guard:
            self._slots[topic] = slots

    def _place(self, topic: str, partition: int) -> RecordsPlace:
        with self._guard:
            slots = self._slots.get(topic, ())
        slot = slots[partition % len(slots)] if slots else None
        return records_place(self._url, topic, partition, slot)

    def open(self, topic: str, partition: int) -> RecordLog:
        """Open a log, making its stream if it is not there. Raises Refused, Unavailable."""
        place = self._place(topic, partition)
        shard = self._shard(place)
        reader = Reader(
            self._connection,
            place.stream,
            place.subject,
            shard.last_of,
            self._watch.suspect,
            self._watch.copies,
        )
        return NatsRecordLog(
            self._connection, shard, place.subject, reader, self._monitor, self._clock
        )

    def _shard(self, place: RecordsPlace) -> Shard:
        """The stream that a log is in: one for all logs of it, made if it is not there."""
        with self._guard:
            shard = self._shards.get(place.stream)
        if shard is None:
            wanted = settings_of(self._url, place.stream, place.subjects)
            made = make_stream(self._connection, wanted)
            does = bool(made["config"].get(ATOMIC))
            others = ASK_OTHERS if self._url.replicas > 1 else 0
            shard = Shard(
                self._connection, place.stream, self._clock, takes_batches=does, others=others
            )
            with self._guard:
                shard = self._shards.setdefault(place.stream, shard)
        return shard

    def drop(self, topic: str) -> None:
        """Purge the records of a topic from the streams of its slots.

        Whoever still appends to it is fenced: the stream has another last message then, and so the
        numbers are asked for, of which none is left. What came between is purged, too.
        """
        with self._guard:
            slots = self._slots.pop(topic, ()) or (None,)
        for slot in slots:
            place = records_place(self._url, topic, "*", slot)
            marks = f"{place.subjects.removesuffix('>')}-"
            if self._purge(place.stream, place.subject):
                self._mark(place.stream, marks)
                self._purge(place.stream, place.subject)
                self._purge(place.stream, marks)

    def _mark(self, stream: str, subject: str) -> None:
        """Give the stream another last message. Raises Unavailable, also where there is no room."""
        try:
            read_answer(stream, self._connection.request(subject))
        except ApiRefusal as error:
            raise Unavailable(str(error)) from error

    def _purge(self, stream: str, subject: str) -> bool:
        """False if there is no such stream."""
        try:
            self._connection.api(f"STREAM.PURGE.{stream}", {"filter": subject})
        except ApiRefusal as error:
            if error.number == NO_STREAM:
                return False
            raise Unavailable(str(error)) from error
        return True

    def put_object(self, name: str, content: bytes | memoryview) -> None:
        """Store an object."""
        self._objects.put(name, content)

    def get_object(self, name: str) -> bytes | None:
        """An object's content from whichever server has it whole."""
        return self._objects.get(name)

    def get_objects(self, names: Sequence[str]) -> dict[str, bytes]:
        """See RecordStore.get_objects."""
        return self._objects.get_some(names)

    def object_names(self, prefix: str) -> list[str]:
        """Names of the objects that begin so, sorted."""
        return self._objects.names(prefix)

    def drop_objects(self, names: Sequence[str]) -> None:
        """Delete objects."""
        self._objects.drop(names)

    def close(self) -> None:
        """Stop watching and close all connections; twice is fine."""
        self._connection.close()  # first: what the watch asks just now is answered by nobody
        self._watch.close()


class NatsRecordLog(RecordLog):
    """One partition's records in a stream."""

    def __init__(
        self,
        connection: NatsConnection,
        shard: Shard,
        subject: str,
        reader: Reader,
        monitor: Monitor,
        clock: Clock,
    ) -> None:
        self._connection, self._shard, self._subject = connection, shard, subject
        self._reader, self._monitor, self._clock = reader, monitor, clock
        self._byte_count, self._counted_ms = 0, -COUNT_AGAIN_MS
        self._dropped_before = 0
        self._closed = False

    def _check(self) -> None:
        if self._closed:
            raise Unavailable(f"{self._subject}: the log is closed")

    def last(self) -> int:
        """The number that the stream's leader has; see `Shard.last_of`."""
        self._check()
        return self._shard.last_of(self._subject)[0]

    def append(self, after: int, records: Sequence[Sequence[Bytes]]) -> None:
        """Append small records together, in one batch that is stored whole or not; large alone."""
        self._check()
        contents = [b"".join(pieces) for pieces in records]
        self._reader.note(after + 1, self._shard.append(self._subject, after, contents))

    def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Read from any copy that is whole; see reading.py."""
        self._check()
        return self._reader.read(max(first, 1), end)

    def replicas(self) -> Sequence[str]:
        """Names of the servers that say that they have a copy."""
        self._check()
        reports = self._monitor.reports()
        name = self._shard.name
        return [one.server for report in reports for one in report.copies if one.stream == name]

    def read_from(self, replica: str, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Read the copy of one server; what it cannot read itself is left out."""
        self._check()
        since = self._reader.since(first)
        stream, subject = self._shard.name, self._subject
        for _, reply in read_copy(self._connection, stream, replica, since, subject):
            number, _ = number_of(reply)
            if number >= end:
                return
            if number >= first:
                yield number, reply.content
            if number == end - 1:
                return

    def drop_before(self, number: int) -> None:
        """Purge the partition's records up to the record; the last one stays, and so its number."""
        self._check()
        if number <= max(self._dropped_before, 1):
            return
        last, sequence = self._shard.last_of(self._subject)
        if number < last:
            sequence = self._reader.sequence_of(number)
        if not sequence:
            return
        asked = {"filter": self._subject, "seq": sequence}
        try:
            self._connection.api(f"STREAM.PURGE.{self._shard.name}", asked)
        except ApiRefusal as error:
            raise Unavailable(str(error)) from error
        self._dropped_before = min(number, last)
        self._reader.forget_before(self._dropped_before)

    def byte_count(self) -> int:
        """Bytes of the records in one copy, if they were as large as their neighbours; at most two
        seconds old while the server answers."""
        self._check()
        now_ms = self._clock.now_ms()
        if now_ms - self._counted_ms >= COUNT_AGAIN_MS:
            state = self._shard.state({"subjects_filter": self._subject})
            records = int((state.get("subjects") or {}).get(self._subject, 0))
            mean = int(state["bytes"]) / max(1, int(state["messages"]))
            self._byte_count, self._counted_ms = int(records * mean), now_ms
        return self._byte_count

    def close(self) -> None:
        """The connections are the store's."""
        self._closed = True


def check_settings(monitor: Monitor, server_count: int, summary: str) -> None:
    """Refuse servers that acknowledge before they have synced; warn where they do not tell.

    Raises:
        Refused.
    """
    reports = monitor.reports()
    for report in reports:
        if not report.is_off and not report.sync_always:
            raise Refused(
                f"{summary}: server {report.server} does not sync before it acknowledges; set "
                f"`sync_interval: always` in its block `jetstream`"
            )
    if len(reports) < server_count:
        log.warning(
            "%s: %d of %d servers tell their settings: make sure that all have `sync_interval: "
            "always`, or what is acknowledged may be lost, and name their monitoring ports with "
            "monitor=host:port, or damaged copies are not found",
            summary,
            len(reports),
            server_count,
        )


def open_records(url: str) -> NatsRecordStore:
    """The records behind a URL; see journal/registry.py."""
    return NatsRecordStore(url)
