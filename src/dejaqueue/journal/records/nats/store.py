"""The record store on NATS JetStream: a stream for each log, one server or three that vote.

Room: journal. Needs the extra `nats`.
Holds: the server compares the number of the stream's last record with each append's own header and
appends in one step. Acknowledged is durable only with `sync_interval: always`: a server that says
otherwise is refused. Several records go as one atomic batch, or one after the other: records
that are sent without waiting could land behind those of another owner, each naming a number that
is right again, though the one before it was refused.
See: journal/records/interface.py for the duties; reading.py, watch.py for damaged copies.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dejaqueue.clock import Clock, SystemClock, Wake
from dejaqueue.connections.nats.answers import (
    NO_STREAM,
    WRONG_LAST,
    ApiRefusal,
    Meaning,
    read_answer,
)
from dejaqueue.connections.nats.connection import TIMEOUT_S, Message, NatsConnection
from dejaqueue.connections.nats.monitor import Monitor, open_monitor
from dejaqueue.connections.nats.url import NatsUrl, read_url
from dejaqueue.errors import Fenced, Refused, ResourceExhausted, Unavailable
from dejaqueue.journal.records.interface import Bytes, RecordLog, RecordStore
from dejaqueue.journal.records.nats.copies import read_copy
from dejaqueue.journal.records.nats.objects import BYTES_A_SECOND, NatsObjects
from dejaqueue.journal.records.nats.reading import SUM, Reader, checksum
from dejaqueue.journal.records.nats.status import copy_rows, server_rows
from dejaqueue.journal.records.nats.streams import (
    ATOMIC,
    make_stream,
    records_beginning,
    records_stream,
    records_subject,
    settings_of,
    stream_state,
)
from dejaqueue.journal.records.nats.watch import CopyWatch, SickCopy

log = logging.getLogger("dejaqueue.journal")

EXPECTED = "Nats-Expected-Last-Sequence"
HEADER_BYTES_MAX = 512
RECORD_BYTES_MAX = 1 << 20
SETTLE_MS = 3_000
"""How long an append waits that was refused because an earlier one is not agreed on yet."""
COUNT_AGAIN_MS = 2_000
RECORD_BYTES_MIN = 64 << 10
SMALL_BYTES = 128 << 10
"""A larger record is as fast alone, and waits for no other."""
BATCH_BYTES = 4 << 20
BATCH_RECORDS = 500
"""The server takes 1,000."""


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
        names = [records_stream(self._url, topic, number) for number in range(partitions)]
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

    def open(self, topic: str, partition: int) -> RecordLog:
        """Open a log, making its stream if it is not there. Raises Refused, Unavailable."""
        name = records_stream(self._url, topic, partition)
        subject = records_subject(self._url, topic, partition)
        made = make_stream(self._connection, settings_of(self._url, name, subject))
        reader = Reader(self._connection, name, self._watch.suspect, self._watch.copies)
        log = NatsRecordLog(self._connection, name, subject, reader, self._monitor, self._clock)
        log.takes_batches(bool(made["config"].get(ATOMIC)))
        log.last_at_opening = int(made["state"]["last_seq"])
        return log

    def drop(self, topic: str) -> None:
        """Delete the streams of a topic."""
        asked = {"subject": records_subject(self._url, topic, "*")}
        try:
            while names := self._connection.api("STREAM.NAMES", asked).get("streams"):
                for name in names:
                    self._delete(name)
        except ApiRefusal as error:
            raise Unavailable(str(error)) from error

    def _delete(self, name: str) -> None:
        try:
            self._connection.api(f"STREAM.DELETE.{name}")
        except ApiRefusal as error:
            if error.number != NO_STREAM:
                raise

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
        name: str,
        subject: str,
        reader: Reader,
        monitor: Monitor,
        clock: Clock,
    ) -> None:
        self._connection, self._name, self._subject = connection, name, subject
        self._reader, self._monitor, self._clock = reader, monitor, clock
        self._byte_count, self._counted_ms = 0, -COUNT_AGAIN_MS
        self._closed = self._takes_batches = False

    def takes_batches(self, does: bool) -> None:
        """Say whether the stream stores several records at once or none of them."""
        self._takes_batches = does

    def _check(self) -> None:
        if self._closed:
            raise Unavailable(f"{self._name}: the log is closed")

    def _state(self) -> dict[str, int]:
        self._check()
        found = stream_state(self._connection, self._name)
        if found is None:
            raise Unavailable(f"{self._name}: the stream is gone")
        state: dict[str, int] = found["state"]
        return state

    def last(self) -> int:
        """The number that the stream's leader has; see `stream_state` for what it must hear.

        A leader that was just cut off from the others may answer for up to a second what was the
        last before; an append behind it is refused or gets no answer then.
        """
        return int(self._state()["last_seq"])

    def append(self, after: int, records: Sequence[Sequence[Bytes]]) -> None:
        """Append small records together, in one batch that is stored whole or not; large alone."""
        self._check()
        place = after
        for batch in batches([b"".join(pieces) for pieces in records], self._takes_batches):
            try:
                self._append_batch(place, batch)
            except Fenced as error:
                if place == after:
                    raise
                # What is before it is in, and another owner came behind that.
                raise Unavailable(f"{error}, behind a part of this append") from error
            except ResourceExhausted as error:
                if place == after:
                    raise
                raise Unavailable(f"{error}, behind a part of this append") from error
            place += len(batch)

    def _append_batch(self, after: int, contents: Sequence[bytes]) -> None:
        messages: list[Message] = []
        mark = secrets.token_hex(12)
        for number, content in enumerate(contents, 1):
            headers = {SUM: checksum(content)}
            if number == 1:
                headers[EXPECTED] = str(after)
            if len(contents) > 1:
                headers |= {"Nats-Batch-Id": mark, "Nats-Batch-Sequence": str(number)}
                if number == len(contents):
                    headers["Nats-Batch-Commit"] = "1"
            messages.append((headers, content))
        timeout_s = TIMEOUT_S + sum(map(len, contents)) / BYTES_A_SECOND
        *_, reply = self._connection.publish_all(self._subject, messages, timeout_s)
        last = after + len(contents)
        if reply is None or reply.status:
            raise Unavailable(f"{self._name}: no answer to the append of record {last}")
        try:
            answer = read_answer(self._name, reply)
        except ApiRefusal as error:
            if error.number == WRONG_LAST:
                self._refused(after)
            if error.meaning is Meaning.NO_ROOM:
                raise ResourceExhausted(str(error)) from error
            raise Unavailable(str(error)) from error
        if int(answer["seq"]) != last:
            raise Unavailable(f"{self._name}: record {last} was stored as {answer['seq']}")

    def _refused(self, after: int) -> None:
        """Raise Fenced if the last record is another one.

        The leader compares with what it has proposed, too. Such a record may be of an append of
        ours that got no answer, and vanish again: so it is fenced only by one that is agreed on.
        """
        until_ms = self._clock.now_ms() + SETTLE_MS
        while self.last() == after:
            if self._clock.now_ms() > until_ms:
                raise Unavailable(f"{self._name}: a record behind {after} is not agreed on")
            self._clock.wait_until(self._clock.now_us() + 20_000, Wake())
        raise Fenced(f"{self._name}: the last record is not {after}")

    def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Read from any copy that is whole; see reading.py."""
        self._check()
        return self._reader.read(max(first, 1), end)

    def replicas(self) -> Sequence[str]:
        """Names of the servers that say that they have a copy."""
        self._check()
        reports = self._monitor.reports()
        return [
            one.server for report in reports for one in report.copies if one.stream == self._name
        ]

    def read_from(self, replica: str, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Read the copy of one server; what it cannot read itself is left out."""
        self._check()
        for number, reply in read_copy(self._connection, self._name, replica, first):
            if number >= end:
                return
            yield number, reply.content
            if number == end - 1:
                return

    def drop_before(self, number: int) -> None:
        """Purge the stream up to the record; its last number stays."""
        state = self._state()
        number = min(number, int(state["last_seq"]) + 1)
        if number <= int(state["first_seq"]):
            return
        try:
            self._connection.api(f"STREAM.PURGE.{self._name}", {"seq": number})
        except ApiRefusal as error:
            raise Unavailable(str(error)) from error

    def byte_count(self) -> int:
        """Bytes of the stream in one copy, at most two seconds old while the server answers."""
        now_ms = self._clock.now_ms()
        if now_ms - self._counted_ms >= COUNT_AGAIN_MS:
            self._byte_count, self._counted_ms = int(self._state()["bytes"]), now_ms
        return self._byte_count

    def close(self) -> None:
        """The connections are the store's."""
        self._closed = True


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
