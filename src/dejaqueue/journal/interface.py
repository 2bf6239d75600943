"""The journal contract: what every storage backend promises to the broker, in numbered duties.

Room: journal. Knows entries and bytes, not messages' states. Backends live beside this file.

Duties of a `Journal` (one object = one partition; for one thread unless a method says otherwise):

 1. `append` is durable when it returns: after any crash, `scan` gives the entries back.
 2. `append` with an `after` that is not the tail appends nothing and raises Fenced.
 3. Positions are dense: the entries of an append get after+1, after+2, …
 4. An append is whole: after a crash, the entries of an append that did not return may be there or
    not, but always as a prefix of it, and no entry is ever there in part.
 5. Every entry carries a checksum of itself and that of the entry before it (the chain). A damaged
    entry of an append that returned is refused with JournalDamaged, which names the file and the
    offset; it is never skipped.
 6. `read` gives the stored columns of any rows that were not freed, in the order asked, without
    work in Python per row; safe to call from any thread. A locator that is gone gives null in every
    column (the reader's lease has ended meanwhile; see broker/consumers/dispatch.py).
 7. `free` says that rows are not needed; `truncate(p)` that entries up to p are not needed for
    replay. What is neither live nor needed gives its room back, some time later.
 8. The first sync that fails is final: the journal closes and every later call raises Unavailable.
    A full disk (ENOSPC) appends nothing, raises ResourceExhausted and leaves the journal usable.
 9. `has_room` tells before an append whether producers may still write; what acks and leases need
    is kept in reserve, so that consumers go on when the disk is full (rule 14).
10. A snapshot becomes visible whole or not at all; the one before stays until it is durable.
11. A journal in which something was durable, and of which nothing is there, is refused with
    JournalDamaged: it was lost, and is not a new one.
12. Several brokers may have a journal on a server open, and append by turns: `follow` takes in what
    the others have appended, all that was acknowledged to anybody before it was called. Whoever
    follows may store snapshots whoever appended last.
13. Once `press` says so, what it was asked for is in no file of the journal any more, whatever
    crashes then.
14. Where the store `reads_ahead`, a journal may be opened while its owner goes on: that changes
    nothing for the owner. `take_over` makes of it what opening it at that moment would.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dejaqueue.errors import DejaQError, InternalError, Refused
from dejaqueue.journal.encryption.clear_budget import BYTES_MAX, ClearBudget
from dejaqueue.journal.encryption.data_keys import DataKeys
from dejaqueue.journal.encryption.master_keys import MasterKey

Int64s = npt.NDArray[np.int64]

TEXT_COLUMNS = ("key", "group", "tags", "headers", "payload")
"""The variable-length columns of an entry's rows, in the order of its directory.

`tags` and `headers` are packed texts (see schema/packing.py), so that every one is a flat column.
"""

OWN_PREFIX = "="
"""Journals whose names begin so are the broker's own; no topic can be called so."""


class EntryKind(IntEnum):
    """What an entry is (uint16). Numbers are for ever."""

    OPEN_EPOCH = 1
    ENQUEUE = 2
    LEASE = 3
    ACK = 4
    NACK = 5
    EXTEND = 6
    MOVE = 7
    CANCEL = 8
    RELOCATE = 9
    CONFIGURE = 10
    DECIDE = 11
    REMEMBER = 12
    BURY = 13
    PUT_ENTRY = 14
    DROP_ENTRY = 15
    DEPART = 16
    SET_TIME = 17
    OPEN_VIEW = 18
    DROP_VIEW = 19
    IN_VIEW = 20
    """An entry of one view of a partition alone; which one, and of what kind, is in its extra."""
    FORGET = 21
    SEEK = 22
    SEED_VIEW = 23
    FORGET_TEXTS = 24
    CATALOGUE = 32
    """A change of the catalogue, in a journal of its own (catalogue/changes.py)."""


@dataclass(slots=True)
class TextColumn:
    """A variable-length column in Arrow's layout, without nulls.

    Attributes:
        offsets: int32 array, shape (rows + 1,), from 0.
        data: the bytes; row i is data[offsets[i]:offsets[i + 1]]. Any buffer.
    """

    offsets: npt.NDArray[np.int32]
    data: pa.Buffer | memoryview | bytes  # tidy: allow name, because Arrow calls it so


@dataclass(slots=True)
class Entry:
    """One entry of a journal: a command in columns.

    Attributes:
        kind: what it is.
        now_ms: the broker's time of it.
        params: four int64, their meaning by kind (broker/shard/entries.py).
        rows: length of every column.
        ints: int64 columns, by place (meaning by kind); at most 8.
        texts: variable-length columns by name out of TEXT_COLUMNS; absent = empty in every row.
        extra: a few bytes more, their meaning by kind.
    """

    kind: EntryKind
    now_ms: int
    params: tuple[int, int, int, int] = (0, 0, 0, 0)
    rows: int = 0
    ints: tuple[Int64s, ...] = ()
    texts: dict[str, TextColumn] = field(default_factory=dict)
    extra: bytes = b""

    def byte_count(self) -> int:
        """About how many bytes it takes in the journal; for limits, before it is written."""
        texts = sum(len(t.data) + 4 * (self.rows + 1) for t in self.texts.values())
        return 256 + 8 * self.rows * len(self.ints) + texts + len(self.extra)


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """One file of a snapshot.

    Attributes:
        name: unique among all files of this partition's snapshots; same name = same content, so a
            backend stores a name once and later snapshots may name it again (incremental).
        content: the bytes; None = this name was stored by an earlier snapshot, keep it.
    """

    name: str
    content: bytes | memoryview | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A durable snapshot: the state after the entry at `position`.

    Attributes:
        position: replay goes on with position + 1.
        meta: what the writer gave, JSON text.
        files: names of the files, readable with `Journal.read_snapshot_file`.
    """

    position: int
    meta: str
    files: tuple[str, ...]


class Erasure(NamedTuple):
    """What is to be gone from where a journal is kept.

    Attributes:
        units: what is kept and given back as a whole and has some of it, ascending; what the
            numbers mean is up to the journal.
        until: snapshots of what was before this position go, too.
        byte_count: of the units.
    """

    units: tuple[int, ...] = ()
    until: int = 0
    byte_count: int = 0


@dataclass(slots=True, eq=False)
class Append:
    """What is appended to one journal, and what came of it.

    Attributes:
        journal, entries, after, epoch: as of `Journal.append`.
        landed: called when `tail` or `error` is set.
        tail: the new tail.
        error: why it was not appended, or not surely; None = it was.
    """

    journal: Journal
    entries: Sequence[Entry]
    after: int
    epoch: int
    landed: Callable[[Append], None] = lambda _: None
    tail: int = 0
    error: DejaQError | None = None


class Log(Protocol):
    """Where several journals have their entries, so that they are appended together."""

    def append_all(self, appends: Sequence[Append]) -> None:
        """Append, each all or nothing, in few syncs. Raises, calls `landed`: never. Any thread."""
        ...


class Journal(ABC):
    """The journal of one partition. See the duties on top of this file.

    Attributes:
        appended_bytes: bytes of entries that were made durable since it was opened; for metrics.
        reopens: a failure is one of the connection: opening the journal again may help (duty 8 is
            about disks, where it must not be tried).
        cut_bytes: bytes of a torn append that opening cut off.
        log: which it shares with other journals; None = it has one of its own.
        number: its partition's number in the log.
        place: topic and partition, for people; who opened it says so.
    """

    appended_bytes: int = 0
    reopens: bool = False
    cut_bytes: int = 0
    log: Log | None = None
    number: int = 0
    place: str = ""

    @property
    def repairs(self) -> list[str]:
        """What was damaged or torn when it was opened, and left away, in words for the log."""
        return []

    @property
    def is_proved(self) -> bool:
        """Whether damage of what was appended last would be told from an append that was torn, or
        will be, as `prove` was called. Where a server keeps the journal that is its duty."""
        return True

    def prove(self) -> None:
        """Nothing is appended for the moment: leave a durable proof of the tail. Does not wait."""
        return

    @property
    @abstractmethod
    def tail(self) -> int:
        """Position of the last entry, 0 if there is none."""

    @abstractmethod
    def append(self, entries: Sequence[Entry], after: int, epoch: int) -> int:
        """Append entries durably; return the new tail.

        Args:
            entries: at least one.
            after: the position the caller believes to be the tail.
            epoch: the owner's epoch, stored in each entry.

        Raises:
            Fenced: `after` is not the tail. ResourceExhausted: no space; nothing was appended.
            Unavailable: a sync failed or the journal is closed; the outcome is unknown.
        """

    @abstractmethod
    def scan(self, after: int) -> Iterator[tuple[int, int, Entry]]:
        """Yield (position, epoch, entry) from after + 1 on, in order, checked against the chain.

        Columns may be views of the journal's own memory: valid while the entry is referenced.

        Raises:
            JournalDamaged: an entry is missing or is not what was written.
        """

    def follow(self) -> int:
        """Know what others have appended since it was opened, or followed last.

        For the thread that appends. What is new is read with `scan` behind the tail of before. A
        part of an append that is still coming in is left for the next time.

        Returns:
            The tail.

        Raises:
            JournalDamaged: what is behind the tail was dropped, as a newer snapshot has it, or is
                damaged: opening the journal again tells. Unavailable; it can be asked again.
        """
        return self.tail  # nobody else has it open

    def take_over(self) -> bool:
        """Know what the owner before has appended since it was opened, as its next owner.

        For a journal of `open_ahead`. What is new is read with `scan` behind the tail of before.

        Returns:
            False: there is another snapshot, so what was read at the opening may be gone from the
            server, and must not stay here: close the journal and open it anew.

        Raises:
            JournalDamaged: as of `follow`; opening the journal anew tells. Unavailable.
        """
        raise InternalError(f"{type(self).__name__} is not read ahead")

    @abstractmethod
    def read(self, locators: Int64s, columns: Sequence[str] = TEXT_COLUMNS) -> pa.RecordBatch:
        """The stored columns of rows, in the order of `locators` (position << 20 | row).

        Returns:
            One column per name asked: `payload` binary, the others utf8; null where a row is gone
            or the entry does not have the column.
        """

    def read_here(self, locators: Int64s, columns: Sequence[str]) -> pa.RecordBatch | None:
        """As `read`, but asks no server and waits for nobody who does; None = it would have to."""
        return self.read(locators, columns)

    @abstractmethod
    def adopt(self, live_locators: Iterator[Int64s]) -> None:
        """At start, after replay: these rows are live, everything else is free."""

    @abstractmethod
    def free(self, locators: Int64s) -> None:
        """These rows, which were live, are not needed any more."""

    @abstractmethod
    def truncate(self, position: int) -> None:
        """Entries up to `position` are not needed for replay (a snapshot covers them)."""

    @property
    def holds_room(self) -> bool:
        """Whether room would be given back if two snapshots more were stored."""
        return False

    @property
    def is_asked(self) -> bool:
        """Whether `sparse` is worth a look though little was appended: others that share the log
        are short of room. Until `sparse` is called."""
        return False

    def turn_over(self) -> None:
        """Nothing comes for the moment: if what the journal has ready for appends is large, and
        nothing in it is live, go on with less from the next append on."""
        return

    @abstractmethod
    def has_room(self, byte_count: int) -> bool:
        """True if producers may append this much."""

    @abstractmethod
    def sparse(self) -> Int64s | None:
        """Positions whose live rows should be copied forward, as [first, last] ranges.

        Returns:
            int64 array, shape (k, 2), of ranges of positions that lie in mostly dead storage,
            oldest first; None if there is nothing worth copying. The broker copies their live
            rows in due order to a new entry (Relocate) and frees the old ones.
        """

    def shed(self, positions: Int64s, byte_counts: Int64s) -> None:  # noqa: B027 - not every one
        """Rows at these positions that are being freed are so large; for `sparse`."""

    def stored(self, after: int, end: int) -> Iterator[tuple[int, Entry]]:
        """Each entry behind `after`, up to `end`, whose bytes are there still, needed or not; what
        was given back is left out. Any thread; columns as those of `scan`.

        Raises:
            JournalDamaged: an entry is not what was written. Refused: that is not known.
        """
        raise Refused("where these journals are kept nothing can be erased by itself")

    def plan_erasure(self, positions: Int64s, until: int) -> Erasure:
        """What has to go so that nothing is left of the entries at these positions, nor of
        snapshots of before `until`. Changes nothing. Any thread."""
        raise Refused("where these journals are kept nothing can be erased by itself")

    def press(self, erasure: Erasure) -> bool:
        """Have it gone as soon as can be: whoever needs something of it is asked to copy it, and to
        take snapshots. True: it is gone for good. Again is how to wait, after a start, too."""
        raise Refused("where these journals are kept nothing can be erased by itself")

    @property
    def is_pressed(self) -> bool:
        """Whether two snapshots more are needed for something that is to be gone."""
        return False

    @property
    def is_urgent(self) -> bool:
        """Whether somebody waits for that, so that nothing is kept for a backup to come."""
        return False

    @property
    def has_rows_pressed(self) -> bool:
        """Whether live rows lie in something that is to be gone: `sparse` names them."""
        return False

    @abstractmethod
    def put_snapshot(self, position: int, meta: str, files: Sequence[SnapshotFile]) -> None:
        """Store a snapshot durably, then forget older ones. May be called from another thread."""

    @abstractmethod
    def latest_snapshot(self) -> Snapshot | None:
        """The newest whole snapshot, None if there is none."""

    @abstractmethod
    def read_snapshot_file(self, name: str) -> memoryview:
        """The bytes of a file of the latest snapshot, verified.

        Raises:
            JournalDamaged: it is not what was written.
        """

    @abstractmethod
    def byte_count(self) -> int:
        """Bytes that the journal takes on its storage, snapshots left out."""

    @abstractmethod
    def close(self) -> None:
        """Release everything; twice is fine."""


DOCUMENTS = ("keys", "key-uses", "backup", "backup-schedule", "restore", "payloads", "standby")
"""What a store keeps for the broker beside topics: API keys (access/key_ring.py); of backups and
restores (broker/backup), of payloads (broker/payloads), of a standby (broker/standby)."""
_CHANGING = threading.Lock()
"""Held while a document is changed, which is rare: one for all stores of a process."""


class JournalStore(ABC):
    """All journals of one broker: a directory, a database, a cluster.

    Only the making of a topic lets journals come into being: what was dropped stays so, whoever
    still believes to serve it.

    Attributes:
        is_remote: journals are on a server, and each may hang by itself.
        reads_ahead: a journal can be opened while another broker appends to it (duty 14).
        erases: whether what is done can be had gone by itself (duty 13).
        ask: called with partitions, each a topic and a number, that keep room of a log which they
            share with others, and may be quiet: they should be stepped. Any thread; must not block.
        encryption: keys for journals that are opened from now on; None = they are not encrypted.
        clear_budget: how much of all of them is decrypted in memory.
        lease_ahead_ms: that of topics which have the default, where that is shorter than an append
            takes; 0 = the default.
    """

    is_remote = reads_ahead = False
    erases = True
    lease_ahead_ms = 0
    encryption: DataKeys | None = None
    clear_budget: ClearBudget | None = None
    ask: Callable[[list[tuple[str, int]]], None] = staticmethod(lambda _: None)

    @abstractmethod
    def make(self, topic: str, number: int = 0) -> None:
        """Let journals of a topic be opened, until `drop`. Again is fine.

        Args:
            number: of the topic, from 1; no other topic has it, or ever had it. 0 = it has none:
                its name tells it from all others.

        Raises:
            ResourceExhausted, Unavailable.
        """

    def make_all(self, topics: Sequence[tuple[str, int]]) -> None:
        """Make several, by name and number, as `make`; if that raises, some may be made."""
        for topic, number in topics:
            self.make(topic, number)

    @abstractmethod
    def made(self) -> list[str]:
        """Topics that were made and not dropped since, sorted. Raises Unavailable."""

    @abstractmethod
    def open(self, topic: str, partition: int, *, only_made: bool = False) -> Journal:
        """Open a partition's journal, creating it if needed.

        Args:
            only_made: only if the topic was made and not dropped since; brokers ask so always. A
                first append checks it once more, because others may drop meanwhile.

        Raises:
            JournalDamaged, Unavailable.
        """

    def open_ahead(self, topic: str, partition: int) -> Journal:
        """Open a journal that another broker appends to, for who is to be its next owner: `scan` it
        and its snapshot, then `take_over`, or close it. Raises as `open`."""
        raise InternalError(f"journals of {type(self).__name__} are not read ahead")

    @abstractmethod
    def drop(self, topic: str) -> None:
        """Delete all journals of a topic; none of them is open. Again is fine."""

    def shard_of(self, topic: str, number: int, partition: int) -> int:
        """Partitions with the same number are appended together, if one thread steps them.

        Args:
            number: of the topic, as for `make`.
        """
        return sum(topic.encode()) + partition

    def taken_bytes(self, topic: str, partition: int) -> int:
        """Bytes that a journal takes on the disk here, without opening it; 0 = not known."""
        return 0

    def was_used(self, topic: str, partition: int) -> bool:
        """False if nothing was ever stored in a partition; True also if that is not known."""
        return True

    def press_dead(self, now_ms: int, age_ms: int) -> None:
        """Have what is kept as a whole gone, as soon as can be, if a row of it has been dead for so
        long, since the first call that found it so; of the journals that are open."""
        return

    def tidy(self, topics: Collection[str]) -> None:
        """Forget what is kept here of journals on a server, but for these topics' and open ones."""
        return

    def erase_copy(self, topic: str, partition: int) -> None:
        """Delete what is here of a journal on a server. Raises Unavailable: it is open here."""
        return

    @abstractmethod
    def load_document(self, name: str) -> str | None:
        """A small text that the broker keeps beside its topics; None if it was never stored.

        Args:
            name: one of DOCUMENTS.

        Raises:
            JournalDamaged: it is not what was stored.
        """

    @abstractmethod
    def store_document(self, name: str, text: str) -> None:
        """Store such a text durably, whole or not at all, for the broker's own eyes alone."""

    def data_key_numbers(self) -> list[int]:
        """Numbers of the data keys that are stored (encryption/data_keys.py); any order."""
        return []

    def load_data_key(self, number: int) -> str | None:
        """A wrapped data key; None if it was never stored. Raises JournalDamaged."""
        return None

    def store_data_key(self, number: int, text: str) -> None:
        """Store a wrapped data key durably, in place of one with this number."""
        raise InternalError(f"{type(self).__name__} keeps no data keys")

    def encrypt(self, masters: Sequence[MasterKey], clear_bytes_max: int = 0) -> None:
        """Encrypt what is stored from now on, and decrypt what is read; before a journal is opened.

        Args:
            masters: master keys, the one to wrap with first.
            clear_bytes_max: of what is decrypted in memory, about; 0 = 256 MiB.

        Raises:
            EncryptionKeyMissing, JournalDamaged, ResourceExhausted, Unavailable.
        """
        self.encryption = DataKeys(self, masters, is_new=not self.made())
        self.clear_budget = ClearBudget(clear_bytes_max or BYTES_MAX)

    def change_document(self, name: str, change: Callable[[str | None], str | None]) -> None:
        """Store what `change` makes of such a text; None = it stays. One process has the store."""
        with _CHANGING:
            text = change(self.load_document(name))
            if text is not None:
                self.store_document(name, text)

    def servers(self, *, now: bool = True) -> list[dict[str, Any]]:
        """For status: the servers beneath, a row for each; none where they are not known.

        Args:
            now: ask them; False = as they were seen last, at once.
        """
        return []

    def copies(self, topic: str, partitions: int) -> list[dict[str, Any]]:
        """For status: the copies of a topic's journals and their servers; none if not known."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Release everything (the lock too); twice is fine."""


def store_path(url: str) -> Path | None:
    """The directory of a plain path, `segment:///path` or `shared:///path`; None for `memory:`."""
    if url.startswith("memory:"):
        return None
    return Path(url.removeprefix("segment://").removeprefix("shared://")).expanduser()
