"""All journals of a broker on one server that keeps records, with their copies here.

    object documents/keys                       API keys (no secrets), with their checksum
    object made/<topic>                         it was made, and not dropped since; its slots
    object dropped/<topic>                      a topic on its way out; its slots
    objects topics/<topic>/<partition>/…        snapshots; see snapshot_objects.py
    log <topic>, <partition>                    records; see record.py

Room: journal. Knows names and texts, not what is in the catalogue.
Holds: a dropped topic never comes back in part, nor by whoever still serves it; a
copy that another process uses is not touched.
See: interface.py beside, and journal/interface.py, JournalStore.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final

import xxhash

from dejaqueue.directories import warn_if_open
from dejaqueue.errors import BadRequest, DejaQError, Unavailable
from dejaqueue.journal.encryption.cipher import Cipher
from dejaqueue.journal.interface import DOCUMENTS, OWN_PREFIX, JournalStore
from dejaqueue.journal.memory import MemoryFileSystem
from dejaqueue.journal.records.concurrency import Concurrency
from dejaqueue.journal.records.interface import RecordStore
from dejaqueue.journal.records.journal import RecordJournal
from dejaqueue.journal.records.mirror import CacheFiles, Mirror
from dejaqueue.journal.sealed_text import open_text, seal_text
from dejaqueue.journal.segments.files import FileSystem
from dejaqueue.journal.segments.store import DirectoryLock

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 10.0
"""How long a server is asked what became of an append whose answer was lost."""
MEMORY_BYTES_MAX: Final = 256 << 20
"""Of a partition's copy, where it has no directory."""
_SEGMENT_BYTES: Final = 64 << 20


class RecordJournalStore(JournalStore):
    """All journals of one broker on one server.

    Args:
        records: the server; closed with this store.
        mirror: directory of the copies; None = they are in memory, and begin empty at each start.
        segment_bytes: size of a full-grown file of a copy.
        mirror_bytes_max: bytes of one partition's copy, about; None = MEMORY_BYTES_MAX in memory,
            no limit in a directory.
        patience_seconds: how long an append waits for a server that is away.
        concurrency: how it waits; None = on threads of this process.

    Attributes:
        is_short: asked before producers may write: whether a server's disk has too little room.
        slots_of: in which slots a topic that is made is to lie, by the name that the catalogue has
            for it; none = wherever the server puts it.

    Raises:
        Locked: another process uses the directory. Unavailable.
    """

    is_remote = reads_ahead = True

    def __init__(
        self,
        records: RecordStore,
        *,
        mirror: Path | None = None,
        segment_bytes: int = _SEGMENT_BYTES,
        mirror_bytes_max: int | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
        concurrency: Concurrency | None = None,
    ) -> None:
        self.records = records
        self.lease_ahead_ms, self.erases = records.lease_ahead_ms, records.erases
        self._concurrency = concurrency or Concurrency()
        self.is_short: Callable[[], bool] = lambda: False
        self.slots_of: Callable[[str], tuple[int, ...]] = lambda topic: ()
        self._segment_bytes, self._patience_seconds = segment_bytes, patience_seconds
        self._mirror_bytes_max = mirror_bytes_max
        self._open: dict[tuple[str, int], RecordJournal | None] = {}
        self._not_dropped: set[str] = set()
        self._lies: dict[str, tuple[int, ...]] = {}
        self._unused_since_ms: dict[tuple[str, int], int] = {}
        """Since when it is known of a copy that nobody here has its journal open."""
        self._opening: dict[str, AbstractContextManager[object]] = {}
        """By topic, a lock for asking the server about it before its journals are opened."""
        self._guard = threading.Lock()
        self._closed = False
        self._lock: DirectoryLock | None = None
        self._files: FileSystem
        if mirror is None:
            self._files, self._root = MemoryFileSystem(), Path(PurePosixPath("mirror:"))
            self._mirror_bytes_max = mirror_bytes_max or MEMORY_BYTES_MAX
        else:
            self._files, self._root = CacheFiles(), mirror
            try:
                warn_if_open(mirror)
                self._files.make_directory(mirror)
                self._lock = DirectoryLock(mirror)
            except OSError as failure:
                raise Unavailable(f"{mirror} cannot be used: {failure}") from failure
        self._background = self._concurrency.executor()

    def make(self, topic: str, number: int = 0) -> None:
        """See JournalStore.make."""
        name = topic.removesuffix(f".{number}") if number else topic
        self.records.put_object(_made(topic), _slots_text(self.slots_of(name)))

    def made(self) -> list[str]:
        """See JournalStore.made."""
        self._check_usable()
        return [name.removeprefix(_made("")) for name in self.records.object_names(_made(""))]

    def open(self, topic: str, partition: int, *, only_made: bool = False) -> RecordJournal:
        """See JournalStore.open; a journal that is open already is Unavailable."""
        return self._open_once(topic, partition, only_made)

    def open_ahead(self, topic: str, partition: int) -> RecordJournal:
        """See JournalStore.open_ahead; a journal that is open already is Unavailable."""
        return self._open_once(topic, partition, only_made=True, is_owner=False)

    def _open_once(
        self, topic: str, partition: int, only_made: bool, *, is_owner: bool = True
    ) -> RecordJournal:
        with self._guard:
            self._check_usable()
            if (topic, partition) in self._open:
                raise Unavailable(f"the journal of {topic}/{partition} is open already")
            self._open[topic, partition] = None  # several are opened at once by several threads
        try:
            journal = self._opened(topic, partition, only_made, is_owner)
        except BaseException:
            self._forget(topic, partition)
            raise
        self._open[topic, partition] = journal
        return journal

    def open_beside(self, topic: str, partition: int) -> RecordJournal:
        """Open a journal once more, to read what others append to it. It may be open here, too.
        Closed by who asked. Raises as `open`."""
        self._check_usable()
        root = Path(PurePosixPath("mirror:"))
        mirror = self._mirror(topic, partition, MemoryFileSystem(), root, MEMORY_BYTES_MAX)
        return self._journal(topic, partition, mirror)

    def _opened(self, topic: str, partition: int, only_made: bool, is_owner: bool) -> RecordJournal:
        with self._guard:
            opening = self._opening.setdefault(topic, self._concurrency.lock())
        with opening:
            if topic not in self._not_dropped:  # asked once, not for each partition
                dropped = self.records.get_object(f"dropped/{topic}")
                if dropped is not None:
                    self._finish_drop(topic, dropped)
                if self._knows_slots(topic):
                    self._not_dropped.add(topic)
        directory = self._directory(topic, partition)
        mirror = self._mirror(topic, partition, self._files, directory, self._mirror_bytes_max)
        check_made = (lambda: self._check_made(topic)) if only_made else None
        on_close = partial(self._forget, topic, partition)
        return self._journal(topic, partition, mirror, on_close, check_made, is_owner=is_owner)

    def _knows_slots(self, topic: str) -> bool:
        """Tell the server where a topic lies; False while that is not said yet."""
        if topic.startswith(OWN_PREFIX):
            return True
        made = self.records.get_object(_made(topic))
        self._lies[topic] = _slots(made)
        self.records.lies(topic, self._lies[topic])
        return made is not None

    def _mirror(
        self,
        topic: str,
        partition: int,
        files: FileSystem,
        directory: Path,
        byte_count_max: int | None,
    ) -> Mirror:
        return Mirror(
            files,
            directory,
            topic=xxhash.xxh3_64_intdigest(topic.encode()),
            partition=partition,
            segment_bytes=self._segment_bytes,
            byte_count_max=byte_count_max,
            cipher=self._cipher(topic, partition),
            clear_budget=self.clear_budget,
        )

    def _cipher(self, topic: str, partition: int) -> Cipher | None:
        if self.encryption is None:
            return None
        return self.encryption.cipher(f"journal/{topic}/{partition}")

    def _journal(
        self,
        topic: str,
        partition: int,
        mirror: Mirror,
        on_close: Callable[[], None] = lambda: None,
        check_made: Callable[[], None] | None = None,
        *,
        is_owner: bool = True,
    ) -> RecordJournal:
        log = self.records.open(topic, partition)
        try:
            return RecordJournal(
                self.records,
                log,
                mirror,
                place=f"{topic}/{partition}",
                prefix=f"topics/{topic}/{partition:05d}",
                patience_seconds=self._patience_seconds,
                background=self._background,
                concurrency=self._concurrency,
                on_close=on_close,
                is_short=lambda: self.is_short(),
                ask=lambda: self.ask([(topic, partition)]),
                check_made=check_made,
                is_owner=is_owner,
                cipher=self._cipher(topic, partition),
            )
        except BaseException:
            log.close()
            raise

    def _check_made(self, topic: str) -> None:
        """Raise Unavailable if a topic was dropped; then nothing stays of what was opened of it."""
        made = self.records.get_object(_made(topic))
        if made is not None and _slots(made) != self._lies.get(topic, ()):
            raise Unavailable(f"the journals of {topic} were made just now", 100)
        if made is None:
            # Nobody makes journals of this name again, or the mark would be there.
            self.records.drop(topic)
            self.records.drop_objects(self.records.object_names(f"topics/{topic}/"))
            raise Unavailable(f"the journals of {topic} were dropped, or never made", 100)

    def _forget(self, topic: str, partition: int) -> None:
        self._open.pop((topic, partition), None)

    def _check_usable(self) -> None:
        if self._closed:
            raise Unavailable("the store is closed")

    def drop(self, topic: str) -> None:
        """See JournalStore.drop."""
        with self._guard:
            self._check_usable()
            # A copy, made in one step: a journal that is closed leaves without the guard.
            if any(name == topic for name, _ in list(self._open)):
                raise Unavailable(f"journals of {topic} are open")
            self._opening.pop(topic, None)
        self._not_dropped.discard(topic)
        self._lies.pop(topic, None)
        made = self.records.get_object(_made(topic)) or b""
        self.records.drop_objects([_made(topic)])
        # Noted first: if this breaks off, the rest is not taken for a damaged topic of that name.
        self.records.put_object(f"dropped/{topic}", made)
        self._finish_drop(topic, made)

    def _finish_drop(self, topic: str, made: bytes) -> None:
        self.records.lies(topic, _slots(made))
        self.records.drop_objects(self.records.object_names(f"topics/{topic}/"))
        self.records.drop(topic)
        directory = self._root / "topics" / topic
        try:
            self._files.remove_tree(directory)
        except FileNotFoundError:
            pass
        except OSError as failure:
            raise Unavailable.by_file(f"{topic} could not be dropped", failure) from failure
        self.records.drop_objects([f"dropped/{topic}"])

    def tidy(self, topics: Collection[str]) -> None:
        """See JournalStore.tidy: copies here of what others have dropped. Never raises."""
        with self._guard:
            keep = {*topics, *(name for name, _ in list(self._open))}
            gone = [name for name in self._files.names(self._root / "topics") if name not in keep]
            for name in gone:
                try:
                    self._files.remove_tree(self._root / "topics" / name)
                except OSError as failure:
                    log.warning("a copy that nobody needs stays for now: %s", failure)

    def press_dead(self, now_ms: int, age_ms: int) -> None:
        """See JournalStore.press_dead; copies here of journals that nobody has open go by that
        age, too: what is done in them is for another broker to know."""
        with self._guard:
            opened = list(self._open.items())
        for (topic, partition), journal in opened:
            if journal is None or topic.startswith(OWN_PREFIX):
                continue
            try:
                journal.press_dead(now_ms, age_ms)
            except DejaQError as failure:
                if self._open.get((topic, partition)) is journal:
                    log.warning("what is done of %s/%d stays: %s", topic, partition, failure)
        self._erase_unused_copies(now_ms, age_ms)

    def _erase_unused_copies(self, now_ms: int, age_ms: int) -> None:
        topics = self._root / "topics"
        there = {
            (topic, int(number))
            for topic in self._files.names(topics)
            if not topic.startswith(OWN_PREFIX)
            for number in self._files.names(topics / topic)
            if number.isdecimal()
        }
        since_ms = self._unused_since_ms
        unused = there.difference(list(self._open))
        self._unused_since_ms = {place: since_ms.get(place, now_ms) for place in unused}
        for topic, partition in sorted(unused):
            if now_ms - self._unused_since_ms[topic, partition] < age_ms:
                continue
            try:
                self.erase_copy(topic, partition)
            except Unavailable as failure:
                log.warning("a copy that nobody uses stays for now: %s", failure)

    def erase_copy(self, topic: str, partition: int) -> None:
        """See JournalStore.erase_copy."""
        directory = self._directory(topic, partition)
        with self._guard:  # nobody opens it meanwhile
            if (topic, partition) in self._open:
                raise Unavailable(f"the journal of {topic}/{partition} is open here", 500)
            try:
                if self._files.names(directory):
                    self._files.remove_tree(directory)
                    self._files.sync_deletions(directory.parent)
            except FileNotFoundError:
                return
            except OSError as failure:
                what = f"a copy of {topic}/{partition} stays"
                raise Unavailable.by_file(what, failure) from failure

    def _directory(self, topic: str, partition: int) -> Path:
        return self._root / "topics" / topic / f"{partition:05d}"

    def load_document(self, name: str) -> str | None:
        """See JournalStore.load_document."""
        return self._load(_document(name))

    def store_document(self, name: str, text: str) -> None:
        """See JournalStore.store_document. Raises ResourceExhausted, Unavailable."""
        self._store(_document(name), text)

    def data_key_numbers(self) -> list[int]:
        """See JournalStore.data_key_numbers."""
        self._check_usable()
        names = self.records.object_names(_data_key(None))
        return [int(name.removeprefix(_data_key(None)), 16) for name in names]

    def load_data_key(self, number: int) -> str | None:
        """See JournalStore.load_data_key."""
        return self._load(_data_key(number))

    def store_data_key(self, number: int, text: str) -> None:
        """See JournalStore.store_data_key."""
        self._store(_data_key(number), text)

    def _load(self, name: str) -> str | None:
        self._check_usable()
        content = self.records.get_object(name)
        return None if content is None else open_text(Path(name), content)

    def _store(self, name: str, text: str) -> None:
        self._check_usable()
        self.records.put_object(name, seal_text(text))

    def servers(self, *, now: bool = True) -> list[dict[str, Any]]:
        """See JournalStore.servers."""
        return self.records.servers(now=now)

    def copies(self, topic: str, partitions: int) -> list[dict[str, Any]]:
        """See JournalStore.copies."""
        self._knows_slots(topic)
        return self.records.copies(topic, partitions)

    def close(self) -> None:
        """See JournalStore.close."""
        self._closed = True
        for journal in list(self._open.values()):
            if journal is not None:
                journal.close()
        self._background.shutdown(wait=True)
        self.records.close()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


def _made(topic: str) -> str:
    return f"made/{topic}"


def _slots_text(slots: tuple[int, ...]) -> bytes:
    return ",".join(map(str, slots)).encode()


def _slots(text: bytes | None) -> tuple[int, ...]:
    return tuple(map(int, text.decode().split(","))) if text else ()


def _data_key(number: int | None) -> str:
    return "data-keys/" if number is None else f"data-keys/{number:016x}"


def _document(name: str) -> str:
    if name not in DOCUMENTS:
        raise BadRequest("document", f"one of {', '.join(DOCUMENTS)}", name)
    return f"documents/{name}"
