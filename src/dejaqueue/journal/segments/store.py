"""The data directory of a broker: its lock, the topic catalogue, the logs of its shards.

    lock                              held by flock while the store is open; holds the process id
    shards.json                       how many shards, for life; the directory's identity; numbers
    topics.json                       the catalogue, with its checksum
    keys.json                         API keys (no secrets), with their checksum; mode 0600
    cluster.json                      which cluster the journals belong to, if any
    shards/<shard>/                   segments of a shard: entries of all its partitions
    shards/<shard>.begun              there were entries in that directory
    topics/<topic>/@<number>/         a topic that was made, and the number that it has in the logs
    topics/…/@…/<partition>/          snapshots of a partition
    topics/…/@…/<partition>.begun     there were snapshots in that directory
    topics/…/@…/text.json             what is kept beside the journals of a topic of a cluster
    dropped/<number>/                 topics on their way out

Room: journal. Knows names and texts, not what is in the catalogue.
Holds: one process at a time; the catalogue is replaced whole; a dropped topic never comes back in
part: its number is never given again, and entries of a number that no topic has are free.
See: interface.py, JournalStore; log.py.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from dejaqueue.directories import warn_if_open
from dejaqueue.errors import BadRequest, JournalDamaged, Locked, ResourceExhausted, Unavailable
from dejaqueue.journal.interface import DOCUMENTS, JournalStore
from dejaqueue.journal.segments.files import FULL, FileSystem, read_file, replace_file
from dejaqueue.journal.segments.journal import SegmentJournal
from dejaqueue.journal.segments.log import SEGMENT_BYTES, ShardLog
from dejaqueue.journal.segments.snapshots import open_text, seal_text

TEXT = "text.json"
SHARDS: Final = 16
"""So many shards a data directory is made with."""
_PARTITION_BITS: Final = 16
_NUMBERS_AT_ONCE: Final = 1_024
"""Numbers of topics that are taken with one write; those that are not given are lost."""


class DirectoryLock:
    """The right of this process to a directory, from creation to `release`."""

    def __init__(self, directory: Path) -> None:
        path = directory / "lock"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            raise Locked(f"{directory} is in use by process {holder}") from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Let others have it; twice is fine."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class SegmentStore(JournalStore):
    """All journals of one broker, in one directory.

    Args:
        root: the data directory; created if needed.
        segment_bytes: size of a full-grown segment.
        reserve_bytes: room on the disk that producers may not use (rule 14); None = two segments.
        file_system: what stands for the operating system; tests give others.
        shards: logs that partitions share, if the directory is new; it keeps those it has.

    Raises:
        Locked: another process has the directory. JournalDamaged, Unavailable.
    """

    def __init__(
        self,
        root: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        reserve_bytes: int | None = None,
        file_system: FileSystem | None = None,
        shards: int = SHARDS,
    ) -> None:
        self.root = root
        self._files = file_system or FileSystem()
        self._segment_bytes = segment_bytes
        self._reserve_bytes = 2 * segment_bytes if reserve_bytes is None else reserve_bytes
        self._open: dict[tuple[str, int], SegmentJournal | None] = {}
        self._guard = threading.Lock()
        """Over `_open` and `_numbers`, for a moment."""
        self._making = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._topics: dict[int, str] = {}
        self._logs: list[ShardLog | None] = []
        self._background: ThreadPoolExecutor | None = None
        self._closed = False
        self._lock: DirectoryLock | None = None
        try:
            warn_if_open(root)
            self._files.make_directory(root / "topics")
            self._lock = self._take_lock()
            if self._files.background:
                self._background = ThreadPoolExecutor(1, thread_name_prefix="dejaq-segments")
            self._finish_drops()
            self._find_topics()
            self._open_shards(shards)
        except OSError as failure:
            self.close()
            raise Unavailable(f"the data directory {root} cannot be used: {failure}") from failure

    def _take_lock(self) -> DirectoryLock | None:
        return DirectoryLock(self.root)

    def _find_topics(self) -> None:
        for topic in self._files.names(self.root / "topics"):
            for name in self._files.names(self.root / "topics" / topic):
                if not name.startswith("@"):
                    path = self.root / "topics" / topic / name
                    raise JournalDamaged(f"{path}: is of another version's data directories")
                self._numbers[topic] = int(name[1:])
        self._topics = {number: topic for topic, number in self._numbers.items()}

    def _open_shards(self, shards: int) -> None:
        """What the directory was made with, or make it."""
        path = self.root / "shards.json"
        try:
            facts = json.loads(open_text(path, read_file(self._files, path)))
        except FileNotFoundError:
            if self._numbers or self._files.names(self.root / "shards"):
                raise JournalDamaged(f"{path}: is missing") from None
            facts = {"shards": shards, "identity": self._new_identity(), "next_number": 1}
        self.shards, self._identity = int(facts["shards"]), int(facts["identity"])
        self._next_number = self._numbers_end = int(facts["next_number"])
        self._logs = [None] * self.shards
        self._users = [0] * self.shards
        self._log_guards = [threading.RLock() for _ in range(self.shards)]
        """Each held while a log is opened or closed."""
        self._files.make_directory(self.root / "shards")

    def _new_identity(self) -> int:
        return int.from_bytes(os.urandom(8), "little")

    def _new_number(self) -> int:
        """A number that no topic had before."""
        if self._next_number >= self._numbers_end:
            end = self._next_number + _NUMBERS_AT_ONCE
            facts = {"shards": self.shards, "identity": self._identity, "next_number": end}
            replace_file(self._files, self.root / "shards.json", seal_text(json.dumps(facts)))
            self._numbers_end = end
        number = self._next_number
        self._next_number += 1
        return number

    def _directory(self, topic: str) -> Path:
        return self.root / "topics" / topic / f"@{self._numbers[topic]}"

    def shard_of(self, topic: str, partition: int) -> int:
        """See JournalStore.shard_of."""
        return (self._numbers.get(topic, 0) + partition) % self.shards

    def make(self, topic: str, text: str = "") -> None:
        """See JournalStore.make: its directory is there."""
        with self._making:
            self._check_usable()
            try:
                if topic not in self._numbers:
                    number = self._new_number()
                    self._files.make_directory(self.root / "topics" / topic / f"@{number}")
                    self._topics[number] = topic
                    self._numbers[topic] = number
                self._files.sync_directory(self.root / "topics")
            except OSError as failure:
                if failure.errno in FULL:
                    raise ResourceExhausted(f"no room for {topic}") from failure
                raise Unavailable(f"{topic} could not be made: {failure}") from failure
        if text:
            self.note(topic, text)

    def note(self, topic: str, text: str) -> None:
        """See JournalStore.note."""
        if topic in self._numbers:
            self._store(self._directory(topic) / TEXT, text, private=False)

    def made(self, prefix: str = "") -> dict[str, str]:
        """See JournalStore.made."""
        topics = sorted(topic for topic in list(self._numbers) if topic.startswith(prefix))
        return {topic: self._text_of(topic) for topic in topics}

    def _text_of(self, topic: str) -> str:
        try:
            return self._load(self._directory(topic) / TEXT) or ""
        except JournalDamaged:
            return ""

    def open(self, topic: str, partition: int, *, only_made: bool = False) -> SegmentJournal:
        """See JournalStore.open; a journal that is open already is Unavailable."""
        if not only_made:
            self.make(topic)
        with self._guard:
            self._check_usable()
            if topic not in self._numbers:
                raise JournalDamaged(f"{self.root / 'topics' / topic}: is missing")
            if (topic, partition) in self._open:
                raise Unavailable(f"the journal of {topic}/{partition} is open already")
            self._open[topic, partition] = None
        try:
            journal = self._open_part(topic, partition)
        except OSError as failure:
            self._forget(topic, partition)
            raise Unavailable(f"{topic}/{partition} cannot be opened: {failure}") from failure
        except BaseException:
            self._forget(topic, partition)
            raise
        self._open[topic, partition] = journal
        return journal

    def _open_part(self, topic: str, partition: int) -> SegmentJournal:
        shard = self.shard_of(topic, partition)
        with self._log_guards[shard]:
            log = self._logs[shard]
            if log is None:
                log = self._logs[shard] = self._open_log(shard)
            log.check_usable()
            self._users[shard] += 1
            try:
                return SegmentJournal(
                    log,
                    self._directory(topic) / f"{partition:05d}",
                    self._numbers[topic] << _PARTITION_BITS | partition,
                    on_close=lambda: self._leave(topic, partition, shard),
                )
            except BaseException:
                self._let_go(shard)
                raise

    def _open_log(self, shard: int) -> ShardLog:
        return ShardLog(
            self._files,
            self.root / "shards" / f"{shard:04d}",
            identity=self._identity,
            shard=shard,
            segment_bytes=self._segment_bytes,
            reserve_bytes=self._reserve_bytes,
            background=self._background,
            has_partition=lambda number: number >> _PARTITION_BITS in self._topics,
            ask=self._ask,
        )

    def _ask(self, numbers: list[int]) -> None:
        named = ((self._topics.get(one >> _PARTITION_BITS), one) for one in numbers)
        last = (1 << _PARTITION_BITS) - 1
        self.ask([(topic, number & last) for topic, number in named if topic is not None])

    def _leave(self, topic: str, partition: int, shard: int) -> None:
        with self._log_guards[shard]:
            self._let_go(shard)
        self._forget(topic, partition)

    def _let_go(self, shard: int) -> None:
        """A log that nobody has open is closed; one that failed stays as it is (duty 8)."""
        self._users[shard] -= 1
        log = self._logs[shard]
        if not self._users[shard] and log is not None and not log.has_failed:
            log.close()
            self._logs[shard] = None

    def taken_bytes(self, topic: str, partition: int) -> int:
        """See JournalStore.taken_bytes; while the log that it shares is not open, all of that."""
        shard = self.shard_of(topic, partition)
        log = self._logs[shard]
        if log is not None:
            part = log.parts.get(self._numbers[topic] << _PARTITION_BITS | partition)
            return 0 if part is None else part.byte_count
        return self._files.taken_bytes(self.root / "shards" / f"{shard:04d}")

    def _forget(self, topic: str, partition: int) -> None:
        self._open.pop((topic, partition), None)

    def _check_usable(self) -> None:
        if self._closed:
            raise Unavailable(f"the store {self.root} is closed")

    def drop(self, topic: str) -> None:
        """See JournalStore.drop. The name is free at once, the room a little later."""
        with self._making:
            with self._guard:
                self._check_usable()
                if any(name == topic for name, _ in self._open):
                    raise Unavailable(f"journals of {topic} are open")
                if topic not in self._numbers:
                    return
            number = self._numbers[topic]
            try:
                self._files.make_directory(self.root / "dropped")
                gone = self.root / "dropped" / str(number)
                self._files.rename(self.root / "topics" / topic, gone)
                self._files.sync_directory(self.root / "topics")
                self._files.sync_directory(self.root / "dropped")
                del self._numbers[topic]
                del self._topics[number]
                self._files.remove_tree(gone)
            except OSError as failure:
                raise Unavailable(f"{topic} could not be dropped: {failure}") from failure
        for shard in range(self.shards):
            with self._log_guards[shard]:
                log = self._logs[shard]
                if log is not None and not log.has_failed:
                    log.forget(lambda part: part >> _PARTITION_BITS == number)

    def _finish_drops(self) -> None:
        for name in self._files.names(self.root / "dropped"):
            self._files.remove_tree(self.root / "dropped" / name)

    def load_catalog(self) -> str | None:
        """See JournalStore.load_catalog.

        Raises:
            JournalDamaged: it is not what was stored.
        """
        return self._load(self.root / "topics.json")

    def load_document(self, name: str) -> str | None:
        """See JournalStore.load_document."""
        return self._load(self._document(name))

    def _document(self, name: str) -> Path:
        if name not in DOCUMENTS:
            raise BadRequest("document", f"one of {', '.join(DOCUMENTS)}", name)
        return self.root / f"{name}.json"

    def _load(self, path: Path) -> str | None:
        self._check_usable()
        try:
            return open_text(path, read_file(self._files, path))
        except FileNotFoundError:
            return None
        except OSError as failure:
            raise Unavailable(f"{path} could not be read: {failure}") from failure

    def store_catalog(self, text: str) -> None:
        """See JournalStore.store_catalog.

        Raises:
            ResourceExhausted, Unavailable: the one before stays.
        """
        self._store(self.root / "topics.json", text, private=False)

    def store_document(self, name: str, text: str) -> None:
        """See JournalStore.store_document.

        Raises:
            ResourceExhausted, Unavailable: the one before stays.
        """
        self._store(self._document(name), text, private=True)

    def _store(self, path: Path, text: str, *, private: bool) -> None:
        self._check_usable()
        try:
            replace_file(self._files, path, seal_text(text), private=private)
        except OSError as failure:
            if failure.errno in FULL:
                raise ResourceExhausted(f"no room for {path}") from failure
            raise Unavailable(f"{path} could not be stored: {failure}") from failure

    def close(self) -> None:
        """See JournalStore.close."""
        self._closed = True
        for journal in list(self._open.values()):
            if journal is not None:
                journal.close()
        for log in self._logs:
            if log is not None:
                log.close()
        if self._background is not None:
            self._background.shutdown(wait=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()
