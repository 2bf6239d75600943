"""The record store in a bucket of S3, Google or Azure, or in a directory that is used like one.

    journal                                 JSON: the format
    lives/<life>/<number>                   what all partitions did at a time; see life_log.py
    owners/<topic>/<partition>/<number>     whose log a partition is in; see ownership_log.py
    logs/<name>/<partition>/<number>        records of what several append to by turns, an object
                                            each; see numbered_objects.py
    objects/<path>                          objects by name; see names.py

Room: journal, one backend.
Holds: a store that does not keep its promise of conditional PUTs is refused before anything is
stored in it.
See: journal/records/interface.py for the duties; docs/adr/0080-a-journal-in-a-bucket.md.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from dejaqueue.clock import Clock, SteadyClock
from dejaqueue.connections.bucket import Bucket, DirectoryBucket
from dejaqueue.connections.object_bucket import ObjectBucket
from dejaqueue.digits import number_of
from dejaqueue.errors import BadRequest, Refused, Unavailable
from dejaqueue.journal.records.bucket.lives import Lives
from dejaqueue.journal.records.bucket.names import folder_of, name_of, path_of
from dejaqueue.journal.records.bucket.numbered_objects import NumberedObjects
from dejaqueue.journal.records.bucket.ownership_log import OwnershipLog
from dejaqueue.journal.records.interface import Bytes, RecordLog, RecordStore

RECORD_BYTES_MAX: Final = 16 << 20
"""A request takes as long as its answer is away, whatever it carries: few and large ones."""
READS_AT_ONCE: Final = 32
"""A partition that is taken over is read by a request for each record, about."""
PATIENCE_SECONDS: Final = 5
"""So long a request that may be repeated is made again."""
BETWEEN_MS: Final = 100
"""Ten requests a second at most that append, whatever is appended."""
BETWEEN_MS_MAX: Final = 10_000
LEASE_AHEAD_MS: Final = 1_000
"""A lease waits for the request that is on its way, and for its own: some hundred milliseconds, of
which the slowest take several."""
SHARED: Final = "="
"""Names that begin so are of logs to which several append by turns, as the catalogue's."""
FORMAT: Final = 1
HEAD: Final = "journal"
SCHEME: Final = "bucket"
"""Of a directory that is used as a bucket: bucket:///path."""


class SharedRecords(RecordLog):
    """A log to which several brokers append by turns, a record an object. Made by its store."""

    def __init__(self, objects: NumberedObjects, name: str, pool: ThreadPoolExecutor) -> None:
        self._objects, self._name, self._pool = objects, name, pool
        self._closed = False

    def _check_usable(self) -> None:
        if self._closed:
            raise Unavailable(f"{self._name}: the log is closed")

    def last(self) -> int:
        """See RecordLog.last."""
        self._check_usable()
        return self._objects.last()

    def append(self, after: int, records: Sequence[Sequence[Bytes]]) -> None:
        """See RecordLog.append. A request for each record, one after the other."""
        self._check_usable()
        self._objects.append(after, [b"".join(pieces) for pieces in records])

    def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """See RecordLog.read. Several are asked for at once."""
        self._check_usable()
        first = max(first, self._objects.floor(), 1)
        yield from read_ahead(self._pool, self._objects.get, range(first, end))

    def drop_before(self, number: int) -> None:
        """See RecordLog.drop_before; the last one stays, so that its number does."""
        self._check_usable()
        self._objects.drop_before(number)

    def byte_count(self) -> int:
        """See RecordLog.byte_count."""
        self._check_usable()
        return self._objects.byte_count()

    def close(self) -> None:
        """See RecordLog.close; the bucket is the store's."""
        self._closed = True


def read_ahead(
    pool: ThreadPoolExecutor, get: Callable[[int], bytes | None], numbers: range
) -> Iterator[tuple[int, bytes]]:
    """Yield (number, content) of those that are there, in order, with a few asked for ahead."""
    asked: deque[tuple[int, Future[bytes | None]]] = deque()
    waiting = iter(numbers)
    missing = 0
    while True:
        while len(asked) < READS_AT_ONCE and missing < READS_AT_ONCE:
            number = next(waiting, None)
            if number is None:
                break
            asked.append((number, pool.submit(get, number)))
        if not asked:
            return
        number, answer = asked.popleft()
        content = answer.result()
        if content is None:
            missing += 1  # numbers are dense: behind so many there is nothing more
            continue
        missing = 0
        yield number, content


class BucketRecordStore(RecordStore):
    """All record logs and objects of a cluster in one bucket, below its prefix.

    Args:
        bucket: which does not store a new object twice by itself.
        record_bytes_max: of one record.
        between_ms: between the requests that append, while there is something to append; what they
            cost is bounded by that.
        clock: by which that is kept; None = the elapsed time of this process.

    Raises:
        Refused: there is something else, or a later version's; or the store stores where there is
            an object already. Unavailable.
    """

    def __init__(
        self,
        bucket: Bucket,
        record_bytes_max: int = RECORD_BYTES_MAX,
        *,
        between_ms: int = 0,
        clock: Clock | None = None,
    ) -> None:
        self._bucket = bucket
        self.record_bytes_max = record_bytes_max
        self.summary = f"bucket {bucket.url}"
        self.lease_ahead_ms = LEASE_AHEAD_MS
        self._check()
        self._pool = ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="dejaq-bucket")
        self.lives = Lives(
            bucket, self._read_ahead, clock or SteadyClock(), self._pool.submit, between_ms
        )

    def _read_ahead(
        self, get: Callable[[int], bytes | None], numbers: range
    ) -> Iterator[tuple[int, bytes]]:
        return read_ahead(self._pool, get, numbers)

    def _check(self) -> None:
        """Begin a journal if there is none, and see that nobody can begin it a second time."""
        head = json.dumps({"dejaq": "journal", "format": FORMAT}).encode()
        if self._bucket.put_new(HEAD, head) and self._bucket.put_new(HEAD, head):
            raise Refused(
                f"{self._bucket.url} stores an object where there is one, though it was asked not "
                "to (If-None-Match): two owners could both write"
            )
        found = self._bucket.get(HEAD)
        try:
            facts = json.loads(found or b"")
            is_ours, found_format = facts["dejaq"] == "journal", facts["format"]
        except (ValueError, KeyError, TypeError):
            is_ours, found_format = False, 0
        if not is_ours:
            raise Refused(f"{self._bucket.url}/{HEAD} is not of a journal")
        if found_format != FORMAT:
            raise Refused(f"{self._bucket.url} has format {found_format}, this is {FORMAT}")

    def open(self, topic: str, partition: int) -> RecordLog:
        """Open a log; it is made by its first append."""
        name = f"{topic}/{partition}"
        if topic.startswith(SHARED):
            objects = NumberedObjects(self._bucket, f"{_logs_of(topic)}{partition:05d}", name)
            return SharedRecords(objects, name, self._pool)
        return self._owned(f"{_owners_of(topic)}{partition:05d}", name)

    def _owned(self, prefix: str, name: str) -> OwnershipLog:
        return OwnershipLog(self._bucket, prefix, name, self.lives, self._read_ahead)

    def drop(self, topic: str) -> None:
        """Delete all logs of a topic; who has one open appends to it no more."""
        names = [one.name for one in self._bucket.objects(_logs_of(topic))]
        owners = [one.name for one in self._bucket.objects(_owners_of(topic))]
        for prefix in sorted({name.rpartition("/")[0] for name in owners}):
            self._owned(prefix, prefix).end()
        self._bucket.delete([*names, *owners])

    # --- objects --------------------------------------------------------------------------------

    def put_object(self, name: str, content: bytes | memoryview) -> None:
        """See RecordStore.put_object."""
        self._bucket.put(f"objects/{path_of(name)}", content)

    def get_object(self, name: str) -> bytes | None:
        """See RecordStore.get_object."""
        return self._bucket.get(f"objects/{path_of(name)}")

    def object_names(self, prefix: str) -> list[str]:
        """See RecordStore.object_names."""
        found = self._bucket.objects(f"objects/{folder_of(prefix)}")
        names = (name_of(one.name.removeprefix("objects/")) for one in found)
        return sorted(name for name in names if name.startswith(prefix))

    def drop_objects(self, names: Sequence[str]) -> None:
        """See RecordStore.drop_objects."""
        self._bucket.delete([f"objects/{path_of(name)}" for name in names])

    def close(self) -> None:
        """End the threads that read; twice is fine."""
        self.lives.close()
        self._pool.shutdown(wait=True)


def _logs_of(topic: str) -> str:
    return f"logs/{topic}/"


def _owners_of(topic: str) -> str:
    return f"owners/{topic}/"


def open_records(url: str) -> BucketRecordStore:
    """The records behind a URL; see journal/registry.py."""
    place, _, parameters = url.partition("?")
    between_ms = _between_ms(parameters, place)
    scheme, _, path = place.partition("://")
    bucket: Bucket
    if scheme != SCHEME:
        bucket = ObjectBucket(place, "journal.url", PATIENCE_SECONDS, is_new_once=True)
    elif path.startswith("/"):
        bucket = DirectoryBucket(Path(path), "journal")
    else:
        raise BadRequest("journal.url", f"{SCHEME}:///path", place)
    return BucketRecordStore(bucket, between_ms=between_ms)


def _between_ms(parameters: str, place: str) -> int:
    """What a URL says of the time between two requests."""
    given = dict(parse_qsl(parameters, keep_blank_values=True))
    between_ms = number_of(given.pop("between_ms", str(BETWEEN_MS)))
    if given or between_ms is None or between_ms > BETWEEN_MS_MAX:
        words = f"no other parameter than between_ms=0 to {BETWEEN_MS_MAX:,}"
        raise BadRequest("journal.url", words, f"{place}?{parameters}")
    return between_ms
