"""The data directory of a broker: its lock, documents, a directory for each journal.

    lock                              held by flock while the store is open; holds the process id
    keys.json                         API keys (no secrets), with their checksum; mode 0600
    topics/=catalogue/00000/          the catalogue: segments and snapshots like a partition's
    topics/<topic>/<partition>/       segments and snapshots
    topics/<topic>/<partition>.begun  there were entries in that directory
    dropped/<number>/                 topics on their way out

Room: journal. Knows names and texts, not what is in the catalogue.
Holds: one process at a time; a document is replaced whole; a dropped topic never comes back in
part.
See: interface.py, JournalStore.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dejaqueue.directories import warn_if_open
from dejaqueue.errors import BadRequest, JournalDamaged, Locked, ResourceExhausted, Unavailable
from dejaqueue.journal.interface import DOCUMENTS, JournalStore
from dejaqueue.journal.segments.files import FULL, FileSystem, read_file, replace_file
from dejaqueue.journal.segments.journal import SEGMENT_BYTES, SegmentJournal
from dejaqueue.journal.segments.snapshots import open_text, seal_text


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
    ) -> None:
        self.root = root
        self._files = file_system or FileSystem()
        self._segment_bytes = segment_bytes
        self._reserve_bytes = 2 * segment_bytes if reserve_bytes is None else reserve_bytes
        self._open: dict[tuple[str, int], SegmentJournal | None] = {}
        self._guard = threading.Lock()
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
        except OSError as failure:
            self.close()
            raise Unavailable(f"the data directory {root} cannot be used: {failure}") from failure

    def _take_lock(self) -> DirectoryLock | None:
        return DirectoryLock(self.root)

    def _directory(self, topic: str) -> Path:
        return self.root / "topics" / topic

    def make(self, topic: str) -> None:
        """See JournalStore.make: its directory is there."""
        self._check_usable()
        try:
            self._files.make_directory(self._directory(topic))
            self._files.sync_directory(self.root / "topics")
        except OSError as failure:
            if failure.errno in FULL:
                raise ResourceExhausted(f"no room for {self._directory(topic)}") from failure
            raise Unavailable(f"{topic} could not be made: {failure}") from failure

    def made(self) -> list[str]:
        """See JournalStore.made."""
        return sorted(self._files.names(self.root / "topics"))

    def open(self, topic: str, partition: int, *, only_made: bool = False) -> SegmentJournal:
        """See JournalStore.open; a journal that is open already is Unavailable."""
        with self._guard:
            self._check_usable()
            if only_made and topic not in self._files.names(self.root / "topics"):
                raise JournalDamaged(f"{self._directory(topic)}: is missing")
            if (topic, partition) in self._open:
                raise Unavailable(f"the journal of {topic}/{partition} is open already")
            self._open[topic, partition] = None  # recovery of several at once takes several threads
        try:
            journal = SegmentJournal(
                self._files,
                self._directory(topic) / f"{partition:05d}",
                topic=topic,
                partition=partition,
                segment_bytes=self._segment_bytes,
                reserve_bytes=self._reserve_bytes,
                background=self._background,
                on_close=lambda: self._forget(topic, partition),
            )
        except OSError as failure:
            self._forget(topic, partition)
            raise Unavailable(f"{topic}/{partition} cannot be opened: {failure}") from failure
        except BaseException:
            self._forget(topic, partition)
            raise
        self._open[topic, partition] = journal
        return journal

    def taken_bytes(self, topic: str, partition: int) -> int:
        """See JournalStore.taken_bytes."""
        return self._files.taken_bytes(self._directory(topic) / f"{partition:05d}")

    def used_partitions(self, topic: str) -> Collection[int] | None:
        """See JournalStore.used_partitions."""
        try:
            names = self._files.names(self._directory(topic))
        except OSError:
            return None
        # Also those of which only the note is left that there was something.
        numbers = (name.partition(".")[0] for name in names)
        return {int(number) for number in numbers if number.isdecimal()}

    def _forget(self, topic: str, partition: int) -> None:
        self._open.pop((topic, partition), None)

    def _check_usable(self) -> None:
        if self._closed:
            raise Unavailable(f"the store {self.root} is closed")

    def drop(self, topic: str) -> None:
        """See JournalStore.drop. The name is free at once, the room a little later."""
        with self._guard:
            self._check_usable()
            if any(name == topic for name, _ in self._open):
                raise Unavailable(f"journals of {topic} are open")
            if topic not in self._files.names(self.root / "topics"):
                return
            try:
                self._files.make_directory(self.root / "dropped")
                taken = set(self._files.names(self.root / "dropped"))
                number = next(n for n in range(len(taken) + 1) if str(n) not in taken)
                gone = self.root / "dropped" / str(number)
                self._files.rename(self._directory(topic), gone)
                self._files.sync_directory(self.root / "topics")
                self._files.sync_directory(self.root / "dropped")
                self._files.remove_tree(gone)
            except OSError as failure:
                raise Unavailable(f"{topic} could not be dropped: {failure}") from failure

    def _finish_drops(self) -> None:
        for name in self._files.names(self.root / "dropped"):
            self._files.remove_tree(self.root / "dropped" / name)

    def load_document(self, name: str) -> str | None:
        """See JournalStore.load_document."""
        self._check_usable()
        path = self._document(name)
        try:
            return open_text(path, read_file(self._files, path))
        except FileNotFoundError:
            return None
        except OSError as failure:
            raise Unavailable(f"{path} could not be read: {failure}") from failure

    def _document(self, name: str) -> Path:
        if name not in DOCUMENTS:
            raise BadRequest("document", f"one of {', '.join(DOCUMENTS)}", name)
        return self.root / f"{name}.json"

    def store_document(self, name: str, text: str) -> None:
        """See JournalStore.store_document.

        Raises:
            ResourceExhausted, Unavailable: the one before stays.
        """
        self._check_usable()
        path = self._document(name)
        try:
            replace_file(self._files, path, seal_text(text), private=True)
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
        if self._background is not None:
            self._background.shutdown(wait=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()
