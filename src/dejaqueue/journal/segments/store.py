"""The data directory of a broker: its lock, documents, the logs of its shards, topics.

    lock                              held by flock while the store is open; holds the process id
    shards.json                       how many shards, for life, and the directory's identity
    keys.json                         API keys (no secrets), with their checksum; mode 0600
    backup.json, restore.json         which backups were taken of it; what is restored into it
    data-keys/<number>.json           keys of what is encrypted, each wrapped by a master key
    shards/<shard>/                   segments of a shard: entries of all its partitions
    shards/<shard>.begun              there were entries in that directory
    topics/<topic>/@<number>/         a topic that was made, and the number that it has in the logs
    topics/…/@…/<partition>/          snapshots of a partition
    topics/…/@…/<partition>.begun     there were snapshots in that directory
    topics/=catalogue/@0/             the catalogue's snapshots, like a topic's
    topics/=catalogue/log/            segments of the catalogue, in a log of its own
    dropped/<number>/                 topics on their way out

Room: journal. Knows names and texts, not what is in the catalogue.
Holds: one process at a time; a document is replaced whole; a dropped topic never comes back in
part: its number is never given again, and entries of a number that no topic has are free; what the
broker keeps for itself shares no log with messages.
See: interface.py, JournalStore; log.py; docs/adr/0036-one-log-for-many-partitions.md.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from dejaqueue.directories import warn_if_open
from dejaqueue.errors import (
    BadRequest,
    InternalError,
    JournalDamaged,
    Locked,
    Refused,
    ResourceExhausted,
    Unavailable,
)
from dejaqueue.journal.encryption.cipher import Cipher
from dejaqueue.journal.interface import DOCUMENTS, OWN_PREFIX, JournalStore
from dejaqueue.journal.sealed_text import open_text, seal_text
from dejaqueue.journal.segments.files import FULL, FileSystem, read_file, replace_file
from dejaqueue.journal.segments.journal import SegmentJournal
from dejaqueue.journal.segments.log import SEGMENT_BYTES, ShardLog
from dejaqueue.journal.segments.log_turn import LogTurn

DATA_KEYS = "data-keys"
SHARDS: Final = 16
"""So many shards a data directory is made with."""
PARTITION_BITS: Final = 16
_PARTITION_MAX: Final = (1 << PARTITION_BITS) - 1
_UNNAMED_BITS: Final = 46
"""Numbers from two to this on are given by chance, to topics that no catalogue has numbered."""
_OWN_NUMBER: Final = 0
"""Of what the broker keeps for itself: it has its log alone."""
CATALOGUE: Final = f"{OWN_PREFIX}catalogue"
"""The one journal of the broker's own that backups have."""
OWN_NAME: Final = "own"
"""What its log is called by who follows logs; others are called by their shard."""
_OWN_LOG: Final = "log"
_OWN_SHARD: Final = 0xFFFF_FFFF
"""In the headers of such a log."""


def cipher_name(log: str) -> str:
    """The name that the entries of a log are encrypted for; `log` as `open_logs` has it."""
    return f"log/{log}"


def spread(number: int) -> int:
    """Where the partitions of a topic begin among the shards, before the modulus.

    Topics that are each made and then used have every second number, so numbers themselves would
    leave half of the shards, and of two workers one, without any.
    """
    return (number * 0x9E3779 & 0xFFFFFF) >> 8


class DirectoryLock:
    """The right of this process to a directory, from creation to `release`.

    Args:
        name: of the file that is locked; other names are other rights.
    """

    def __init__(self, directory: Path, name: str = "lock") -> None:
        path = directory / name
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            what = directory if name == "lock" else path
            raise Locked(f"{what} is in use by process {holder}") from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Let others have it; twice is fine."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class KeptLog:
    """Where a log is, also while nobody has it open.

    Attributes:
        guard: held while the log is opened or closed.
        log: None = it is not open.
        users: journals that have it open.
        lock: of a log that other processes may open, while this one has it open.
        numbers: of the partitions that it had when it was closed; None = it was not opened yet, or
            others may have had it open since.
    """

    __slots__ = ("directory", "guard", "lock", "log", "numbers", "shard", "users")

    def __init__(self, directory: Path, shard: int, *, is_new: bool) -> None:
        self.directory, self.shard = directory, shard
        self.guard = threading.RLock()
        self.log: ShardLog | None = None
        self.lock: DirectoryLock | None = None
        self.users = 0
        self.numbers: frozenset[int] | None = frozenset() if is_new else None

    def may_have(self, number: int) -> bool:
        """False if it has nothing of a partition; True also if that is not known."""
        log, numbers = self.log, self.numbers
        if log is not None:
            part = log.parts.get(number)
            return part is not None and part.tail > 0
        return numbers is None or number in numbers

    def let_go(self) -> None:
        """A log that nobody has open is closed; one that failed stays as it is (duty 8)."""
        self.users -= 1
        if not self.users and self.log is not None and not self.log.has_failed:
            if self.lock is None:
                parts = self.log.parts.items()
                self.numbers = frozenset(number for number, part in parts if part.tail)
            self.close()

    def close(self) -> None:
        """Close the log if it is open, and let others have it; twice is fine."""
        if self.log is not None:
            self.log.close()
            self.log = None
        lock, self.lock = self.lock, None
        if lock is not None:
            lock.release()


class SegmentStore(JournalStore):
    """All journals of one broker, in one directory.

    Args:
        root: the data directory; created if needed.
        segment_bytes: size of a full-grown segment.
        reserve_bytes: room on the disk that producers may not use (rule 14); None = two segments.
        file_system: what stands for the operating system; tests give others.
        shards: logs that partitions share, if the directory is new; it keeps those it has.

    Attributes:
        turn: of who follows its logs (log_turn.py).

    Raises:
        Locked: another process has the directory. JournalDamaged, Unavailable.
    """

    is_shared = False
    """Whether several processes have such a directory open; it stays as it was made."""

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
        """Over `_open` and `_own_logs`, for a moment."""
        self._making = threading.Lock()
        """Held while a topic is made or dropped."""
        self._numbers: dict[str, int] = {}
        self._topics: dict[int, str] = {}
        self._logs: list[KeptLog] = []
        self._own_logs: dict[str, KeptLog] = {}
        """Of what the broker keeps for itself, by name."""
        self._snapshots: dict[str, frozenset[int]] = {}
        """Which partitions of a topic have snapshots, as far as that was asked."""
        self._background: ThreadPoolExecutor | None = None
        self._closed = False
        self.turn = LogTurn()
        self._lock: DirectoryLock | None = None
        try:
            warn_if_open(root)
            self._files.make_directory(root / "topics")
            self._lock = self._take_lock()
            if self._files.background:
                self._background = ThreadPoolExecutor(1, thread_name_prefix="dejaq-segments")
            self._open_shards(shards)
        except OSError as failure:
            self.close()
            raise Unavailable(f"the data directory {root} cannot be used: {failure}") from failure

    def _take_lock(self) -> DirectoryLock | None:
        return DirectoryLock(self.root)

    def _find_topics(self) -> None:
        self._finish_drops()
        for topic in self._files.names(self.root / "topics"):
            is_own = topic.startswith(OWN_PREFIX)
            for name in self._files.names(self.root / "topics" / topic):
                if name.startswith("@"):
                    self._numbers[topic] = int(name[1:])
                elif not (is_own and name.partition(".")[0] == _OWN_LOG):
                    path = self.root / "topics" / topic / name
                    raise JournalDamaged(f"{path}: is of another version's data directories")
        self._topics = {number: topic for topic, number in self._numbers.items() if number}

    def _open_shards(self, shards: int) -> None:
        """What the directory was made with, or make it."""
        path, directory = self.root / "shards.json", self.root / "shards"
        facts: dict[str, Any] = {}
        try:
            facts = json.loads(open_text(path, read_file(self._files, path)))
        except FileNotFoundError:
            pass
        else:
            self._check_kind(is_shared=bool(facts.get("is_shared")))
        self._find_topics()
        there = {name.partition(".")[0] for name in self._files.names(directory)}
        if not facts:
            if there or self._topics:
                raise JournalDamaged(f"{path}: is missing")
            facts = {"shards": shards, "identity": self._new_identity()}
            if self.is_shared:
                facts["is_shared"] = True
            replace_file(self._files, path, seal_text(json.dumps(facts)))
        self.shards, self._identity = int(facts["shards"]), int(facts["identity"])
        names = [f"{shard:04d}" for shard in range(self.shards)]
        self._logs = [
            KeptLog(directory / name, shard, is_new=not self.is_shared and name not in there)
            for shard, name in enumerate(names)
        ]
        self._files.make_directory(directory)

    def _check_kind(self, *, is_shared: bool) -> None:
        if is_shared == self.is_shared:
            return
        self.close()
        if is_shared:
            text = "was made for several processes: start it with `--processes`, 1 is enough"
        else:
            text = "was made for one process, and several cannot divide it (server.processes)"
        raise Refused(f"{self.root} {text}")

    def _new_identity(self) -> int:
        return int.from_bytes(os.urandom(8), "little")

    def _new_number(self) -> int:
        """A number for a topic that no catalogue has numbered: no other one has it or had it."""
        chance = int.from_bytes(os.urandom(8), "little") % (1 << _UNNAMED_BITS)
        return 1 << _UNNAMED_BITS | chance

    def _directory(self, topic: str) -> Path:
        return self.root / "topics" / topic / self._made_as(topic, self._numbers[topic])

    def _made_as(self, topic: str, number: int) -> str:
        """What says that a topic was made, as the name of a directory."""
        return f"@{number}"

    def shard_of(self, topic: str, number: int, partition: int) -> int:
        """See JournalStore.shard_of."""
        return (spread(number or self._numbers.get(topic, 0)) + partition) % self.shards

    def _place(self, topic: str, partition: int) -> KeptLog:
        if not topic.startswith(OWN_PREFIX):
            return self._logs[self.shard_of(topic, self._numbers[topic], partition)]
        with self._guard:
            place = self._own_logs.get(topic)
            if place is None:
                directory = self.root / "topics" / topic / _OWN_LOG
                place = self._own_logs[topic] = KeptLog(directory, _OWN_SHARD, is_new=False)
            return place

    def make(self, topic: str, number: int = 0) -> None:
        """See JournalStore.make: its directory is there.

        Raises:
            JournalDamaged: it was made with another number, and not dropped since.
        """
        self.make_all([(topic, number)])

    def make_all(self, topics: Sequence[tuple[str, int]]) -> None:
        """See JournalStore.make_all."""
        with self._making:
            self._check_usable()
            fresh: dict[str, int] = {}
            for topic, number in topics:
                known = self._numbers.get(topic)
                if number and known not in {None, number}:
                    raise JournalDamaged(f"{self._directory(topic)}: is not topic number {number}")
                if known is None:
                    is_own = topic.startswith(OWN_PREFIX)
                    fresh[topic] = _OWN_NUMBER if is_own else number or self._new_number()
            named = ", ".join(topic for topic, _ in topics)
            try:
                self._files.make_directories(
                    self.root / "topics" / topic / self._made_as(topic, number)
                    for topic, number in fresh.items()
                )
                # Also of those that are known: it may be that their sync failed.
                self._files.sync_directory(self.root / "topics")
            except OSError as failure:
                if failure.errno in FULL:
                    raise ResourceExhausted(f"no room for {named}") from failure
                raise Unavailable.by_file(f"{named} could not be made", failure) from failure
            for topic, number in fresh.items():
                if not topic.startswith(OWN_PREFIX):
                    self._topics[number] = topic
                self._numbers[topic] = number

    def made(self) -> list[str]:
        """See JournalStore.made."""
        return sorted(self._numbers.copy())

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
            raise Unavailable.by_file(f"{topic}/{partition} cannot be opened", failure) from failure
        except BaseException:
            self._forget(topic, partition)
            raise
        self._open[topic, partition] = journal
        return journal

    def _open_part(self, topic: str, partition: int) -> SegmentJournal:
        place = self._place(topic, partition)
        with place.guard:
            if place.log is None:
                place.log = self._open_log(place)
            place.log.check_usable()
            place.users += 1
            try:
                return SegmentJournal(
                    place.log,
                    self._directory(topic) / f"{partition:05d}",
                    self._number(topic, partition),
                    on_close=lambda: self._leave(topic, partition, place),
                    snapshots_cipher=self._cipher("snapshots"),
                )
            except BaseException:
                place.let_go()
                raise

    def _number(self, topic: str, partition: int) -> int:
        """What a partition is called in its log."""
        return self._numbers[topic] << PARTITION_BITS | partition

    def _open_log(self, place: KeptLog) -> ShardLog:
        is_own = place.shard == _OWN_SHARD
        name = OWN_NAME if is_own else str(place.shard)
        log = ShardLog(
            self._files,
            place.directory,
            identity=self._identity,
            shard=place.shard,
            segment_bytes=self._segment_bytes,
            reserve_bytes=self._reserve_bytes,
            background=self._background,
            has_partition=lambda number: is_own or number >> PARTITION_BITS in self._topics,
            ask=self._ask,
            cipher=self._cipher(cipher_name(name)),
            clear_budget=self.clear_budget,
            turn=self.turn,
        )
        self.turn.opened(name, log)
        return log

    def follow(self, changed: Callable[[], None]) -> None:
        """Have `turn` know of all that is appended from now on; `changed` as there."""
        self.turn.changed, self.turn.number = changed, 1
        self.turn.logs |= self.open_logs()

    def open_logs(self) -> dict[str, ShardLog]:
        """Logs that are open, by the names that who follows them knows; OWN_NAME is that of the
        catalogue."""
        with self._guard:
            own = self._own_logs.get(CATALOGUE)
        named = [(str(place.shard), place) for place in self._logs]
        if own is not None:
            named.append((OWN_NAME, own))
        return {name: place.log for name, place in named if place.log is not None}

    def _cipher(self, name: str) -> Cipher | None:
        return None if self.encryption is None else self.encryption.cipher(name)

    def _ask(self, numbers: list[int]) -> None:
        """Topics are asked; who keeps a log for itself needs nobody to tell it."""
        named = ((self._topics.get(one >> PARTITION_BITS), one) for one in numbers)
        asked = [(topic, number & _PARTITION_MAX) for topic, number in named if topic is not None]
        if asked:
            self.ask(asked)

    def _leave(self, topic: str, partition: int, place: KeptLog) -> None:
        with place.guard:
            place.let_go()
        self._forget(topic, partition)

    def taken_bytes(self, topic: str, partition: int) -> int:
        """See JournalStore.taken_bytes; while the log that it shares is not open, all of that."""
        if topic not in self._numbers:
            return 0
        place = self._place(topic, partition)
        log = place.log
        if log is None:
            return self._files.taken_bytes(place.directory)
        part = log.parts.get(self._number(topic, partition))
        return 0 if part is None else part.byte_count

    def was_used(self, topic: str, partition: int) -> bool:
        """See JournalStore.was_used. Until the log that it shares was opened, that is not known."""
        if topic not in self._numbers:
            return False
        if (topic, partition) in self._open:
            return True
        if self._place(topic, partition).may_have(self._number(topic, partition)):
            return True
        # A log that is lost as a whole looks new; a snapshot says that there was something.
        found = self._snapshots.get(topic)
        if found is None:
            names = self._files.names(self._directory(topic))
            # Also those of which only the note is left that there was one.
            numbers = (name.partition(".")[0] for name in names)
            found = frozenset(int(number) for number in numbers if number.isdecimal())
            self._snapshots[topic] = found
        return partition in found

    def _forget(self, topic: str, partition: int) -> None:
        self._open.pop((topic, partition), None)
        self._snapshots.pop(topic, None)

    def _check_usable(self) -> None:
        if self._closed:
            raise Unavailable(f"the store {self.root} is closed")

    def press_dead(self, now_ms: int, age_ms: int) -> None:
        """See JournalStore.press_dead; of the logs that are open."""
        for place in self._logs:
            log = place.log
            if log is not None and not log.has_failed:
                log.press_dead(now_ms, age_ms)

    def drop(self, topic: str) -> None:
        """See JournalStore.drop. The name is free at once, the room a little later."""
        if topic.startswith(OWN_PREFIX):
            raise InternalError(f"{topic} is no topic: it is not dropped")
        with self._making:
            with self._guard:
                self._check_usable()
                if any(name == topic for name, _ in list(self._open)):
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
                raise Unavailable.by_file(f"{topic} could not be dropped", failure) from failure
        for place in self._logs:
            with place.guard:
                if place.log is not None and not place.log.has_failed:
                    place.log.forget(lambda part: part >> PARTITION_BITS == number)

    def _finish_drops(self) -> None:
        for name in self._files.names(self.root / "dropped"):
            self._files.remove_tree(self.root / "dropped" / name)

    def load_document(self, name: str) -> str | None:
        """See JournalStore.load_document."""
        return self._load(self._document(name))

    def _load(self, path: Path) -> str | None:
        self._check_usable()
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
        self._store(self._document(name), text)

    def data_key_numbers(self) -> list[int]:
        """See JournalStore.data_key_numbers."""
        self._check_usable()
        names = self._files.names(self.root / DATA_KEYS)
        return [int(name.removesuffix(".json"), 16) for name in names if name.endswith(".json")]

    def _data_key(self, number: int) -> Path:
        return self.root / DATA_KEYS / f"{number:016x}.json"

    def load_data_key(self, number: int) -> str | None:
        """See JournalStore.load_data_key."""
        return self._load(self._data_key(number))

    def store_data_key(self, number: int, text: str) -> None:
        """See JournalStore.store_data_key."""
        try:
            self._files.make_directory(self.root / DATA_KEYS)
        except OSError as failure:
            raise Unavailable(f"{self.root / DATA_KEYS} cannot be made: {failure}") from failure
        self._store(self._data_key(number), text)

    def _store(self, path: Path, text: str) -> None:
        self._check_usable()
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
        for place in [*self._logs, *self._own_logs.values()]:
            place.close()
        if self._background is not None:
            self._background.shutdown(wait=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()
