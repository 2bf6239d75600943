"""A data directory that several broker processes of this machine have open at once.

    catalogue.sqlite          the journal of the catalogue, to which all of them append
    the rest                  segments of shards, each open in one process

Room: journal. Puts two backends together, and knows neither's files.
Holds: what all processes write is compared and appended by SQLite, which is made for that; what
only one writes is locked for it, so that messages take the path that they take for one process.
See: segments/shared_store.py, records/store.py; docs/adr/0048-processes-divide-a-directory.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from dejaqueue.connections.sqlite import Sqlite
from dejaqueue.journal.encryption.master_keys import MasterKey
from dejaqueue.journal.interface import OWN_PREFIX, Journal, JournalStore
from dejaqueue.journal.records.sql import SqlRecordStore
from dejaqueue.journal.records.store import PATIENCE_SECONDS, RecordJournalStore
from dejaqueue.journal.segments.log import SEGMENT_BYTES
from dejaqueue.journal.segments.shared_store import LOCKS, TURNS, SharedStore, TopicSlots
from dejaqueue.journal.segments.shared_turn import SharedTurn, make_turns
from dejaqueue.journal.segments.store import DirectoryLock

CATALOGUE = "catalogue.sqlite"


def prepare(root: Path, shards: int) -> tuple[DirectoryLock, int]:
    """Have a directory to oneself, for the processes that one starts; make it if it is new.

    Args:
        shards: of a new one.

    Returns:
        The lock, to be held while they run; how many shards the directory has.

    Raises:
        Locked: another process has it. Refused: it is for one process. JournalDamaged, Unavailable.
    """
    probe = SharedStore(root, segment_bytes=SEGMENT_BYTES, shards=shards, is_alone=True)
    lock = probe.keep_lock()
    probe.close()
    try:
        make_turns(root / LOCKS / TURNS, probe.shards)
    except BaseException:
        lock.release()
        raise
    return lock, probe.shards


def is_divided(root: Path) -> bool:
    """Whether a directory was made for several processes."""
    return (root / LOCKS).is_dir()


class ProcessStore(JournalStore):
    """All journals, as one of the processes has them.

    Args:
        root: the data directory, which `prepare` made.
        segment_bytes, reserve_bytes: see SegmentStore.
        patience_seconds: how long an append to the catalogue is tried.

    Attributes:
        shards: into how many its topics are dealt.
        segments: the journals of topics.
        turn: which turn it is for the logs of all processes.

    Raises:
        Refused, JournalDamaged, Unavailable.
    """

    def __init__(
        self,
        root: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        reserve_bytes: int | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.segments = SharedStore(root, segment_bytes=segment_bytes, reserve_bytes=reserve_bytes)
        self.shards = self.segments.shards
        self._root, self._patience_seconds = root, patience_seconds
        try:
            self.segments.turn = self.turn = SharedTurn(root / LOCKS / TURNS)
            self._records = self._opened_records()
        except BaseException:
            self.segments.close()
            raise

    def _opened_records(self) -> RecordJournalStore:
        # Its path is not part of a URL: it may have any character.
        records = SqlRecordStore(Sqlite(f"sqlite:///{self._root / CATALOGUE}", exclusive=False))
        return RecordJournalStore(records, patience_seconds=self._patience_seconds)

    def second_records(self) -> RecordJournalStore:
        """The store of the catalogue once more, for who reads it besides; to be closed."""
        records = self._opened_records()
        records.encryption, records.clear_budget = self.encryption, self.clear_budget
        return records

    def lies(self, slots_of: Callable[[str], TopicSlots]) -> None:
        """Say where a topic is to lie, by its name in the catalogue; for good once it is made."""
        self.segments.slots_of = slots_of

    def _of(self, topic: str) -> JournalStore:
        return self._records if topic.startswith(OWN_PREFIX) else self.segments

    # --- journals -------------------------------------------------------------------------------

    def make(self, topic: str, number: int = 0) -> None:
        """See JournalStore.make."""
        self._of(topic).make(topic, number)

    def made(self) -> list[str]:
        """See JournalStore.made."""
        return sorted([*self._records.made(), *self.segments.made()])

    def open(self, topic: str, partition: int, *, only_made: bool = False) -> Journal:
        """See JournalStore.open."""
        return self._of(topic).open(topic, partition, only_made=only_made)

    def drop(self, topic: str) -> None:
        """See JournalStore.drop."""
        self._of(topic).drop(topic)

    def shard_of(self, topic: str, number: int, partition: int) -> int:
        """See JournalStore.shard_of."""
        return self.segments.shard_of(topic, number, partition)

    def taken_bytes(self, topic: str, partition: int) -> int:
        """See JournalStore.taken_bytes."""
        return self._of(topic).taken_bytes(topic, partition)

    def was_used(self, topic: str, partition: int) -> bool:
        """See JournalStore.was_used."""
        return self._of(topic).was_used(topic, partition)

    def press_dead(self, now_ms: int, age_ms: int) -> None:
        """See JournalStore.press_dead; of the logs that this process has open."""
        self.segments.press_dead(now_ms, age_ms)

    def tidy(self, topics: Collection[str]) -> None:
        """See JournalStore.tidy."""
        self.segments.tidy(topics)

    @property
    def ask(self) -> Callable[[list[tuple[str, int]]], None]:
        """See JournalStore.ask."""
        return self.segments.ask

    @ask.setter
    def ask(self, call: Callable[[list[tuple[str, int]]], None]) -> None:
        self.segments.ask = call

    # --- what is beside them --------------------------------------------------------------------

    def load_document(self, name: str) -> str | None:
        """See JournalStore.load_document."""
        return self.segments.load_document(name)

    def store_document(self, name: str, text: str) -> None:
        """See JournalStore.store_document."""
        self.segments.store_document(name, text)

    def data_key_numbers(self) -> list[int]:
        """See JournalStore.data_key_numbers."""
        return self.segments.data_key_numbers()

    def load_data_key(self, number: int) -> str | None:
        """See JournalStore.load_data_key."""
        return self.segments.load_data_key(number)

    def store_data_key(self, number: int, text: str) -> None:
        """See JournalStore.store_data_key."""
        self.segments.store_data_key(number, text)

    def encrypt(self, masters: Sequence[MasterKey], clear_bytes_max: int = 0) -> None:
        """See JournalStore.encrypt."""
        super().encrypt(masters, clear_bytes_max)
        for store in (self.segments, self._records):
            store.encryption, store.clear_budget = self.encryption, self.clear_budget

    def close(self) -> None:
        """See JournalStore.close."""
        self.segments.close()
        self._records.close()


def tell_slots(store: JournalStore, slots_of: Callable[[str], TopicSlots], slots: int) -> bool:
    """Say where the topics of a cluster are to lie, by their names in the catalogue.

    Returns:
        True if what is stored of a topic cannot follow it to another slot.
    """
    if isinstance(store, ProcessStore):
        store.lies(slots_of)
        return True
    if isinstance(store, RecordJournalStore):
        store.slots_of = lambda topic: slots_of(topic).within(slots)
    return False
