"""A data directory whose shards several processes of this machine divide among them.

    shards.json                       says that it is such a one, and how many shards it has
    locks/<shard>                     held by flock while a process has the log of a shard open
    locks/turns                       memory that the processes share (shared_turn.py)
    topics/<topic>/@<number>-<first>-<spread>/
                                      a topic that was made, its number, and where it lies

The rest is as in store.py. Who should have which shard is agreed on elsewhere; here is what keeps
two of them from having one: the kernel, which gives a lock to one process, and takes it back when
that ends, however it does.

Room: journal. Knows no process but this one.
Holds: a log is open in one process at a time; before it is read, every topic is known that may have
entries in it, since a topic is made before anything of it is stored; where a topic lies is written
down when it is made, and does not change.
See: store.py; ../processes.py, with the catalogue; docs/adr/0048-processes-divide-a-directory.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from dejaqueue.errors import JournalDamaged, Locked, Unavailable
from dejaqueue.journal.interface import OWN_PREFIX
from dejaqueue.journal.segments.files import FileSystem
from dejaqueue.journal.segments.journal import SegmentJournal
from dejaqueue.journal.segments.log import ShardLog
from dejaqueue.journal.segments.proof import has_begun
from dejaqueue.journal.segments.store import (
    PARTITION_BITS,
    SHARDS,
    DirectoryLock,
    KeptLog,
    SegmentStore,
)

LOCKS = "locks"
TURNS = "turns"
AGAIN_MS = 50
"""When to ask again for a shard that another process is just giving up."""


class TopicSlots(NamedTuple):
    """Where the partitions of a topic lie: p is in the log (first + p % spread) % shards.

    Attributes:
        spread: into how many parts it is dealt, a log each.
    """

    first: int
    spread: int

    def within(self, shards: int) -> tuple[int, ...]:
        """The log of each part.

        >>> TopicSlots(3, 2).within(4)
        (3, 0)
        """
        return tuple((self.first + part) % shards for part in range(self.spread))


class SharedStore(SegmentStore):
    """The journals of one process in such a directory. Settings as of SegmentStore.

    Args:
        is_alone: before the processes run: make the directory if it is new, and clear up.

    Attributes:
        slots_of: where a topic is to lie, by the name that the catalogue has for it.

    Raises:
        Locked: with `is_alone`, somebody has it. Refused: the directory is for one process.
        JournalDamaged, Unavailable.
    """

    is_shared = True

    def __init__(
        self,
        root: Path,
        *,
        segment_bytes: int,
        reserve_bytes: int | None = None,
        file_system: FileSystem | None = None,
        shards: int = SHARDS,
        is_alone: bool = False,
    ) -> None:
        self._is_alone = is_alone
        self._slots: dict[int, TopicSlots] = {}
        self.slots_of: Callable[[str], TopicSlots] = lambda _: TopicSlots(0, 1)
        super().__init__(
            root,
            segment_bytes=segment_bytes,
            reserve_bytes=reserve_bytes,
            file_system=file_system,
            shards=shards,
        )
        self._files.make_directory(root / LOCKS)
        if is_alone:
            self._finish_drops()

    def _take_lock(self) -> DirectoryLock | None:
        # Who starts the processes has it while they run.
        return super()._take_lock() if self._is_alone else None

    def keep_lock(self) -> DirectoryLock:
        """The lock of the directory, which `close` leaves alone from now on."""
        lock, self._lock = self._lock, None
        assert lock is not None
        return lock

    # --- topics, which any of the processes makes and drops -------------------------------------

    def _find_topics(self) -> None:
        found = {one: self._find_topic(one) for one in self._files.names(self.root / "topics")}
        self._numbers = {one: number for one, number in found.items() if number is not None}
        self._topics = {number: topic for topic, number in self._numbers.items()}

    def _find_topic(self, topic: str) -> int | None:
        """The number of a topic that is there, whose slots are known then; None = it is not."""
        found: int | None = None
        for name in self._files.names(self.root / "topics" / topic):
            found, slots = _slots_in(self.root / "topics" / topic / name)
            self._slots[found] = slots
        return found

    def _look_again(self) -> None:
        with self._looking():
            self._find_topics()

    def _look_for(self, topic: str) -> None:
        """As `_look_again`, at one topic: of ten thousand that are used, each would go over all."""
        with self._looking():
            before, found = self._numbers.get(topic), self._find_topic(topic)
            if found is not None:
                self._numbers[topic], self._topics[found] = found, topic
            elif before is not None:
                del self._numbers[topic]
            if before is not None and before != found:
                self._topics.pop(before, None)

    @contextmanager
    def _looking(self) -> Iterator[None]:
        with self._making:
            self._check_usable()
            try:
                yield
            except OSError as failure:
                raise Unavailable(f"{self.root} cannot be read: {failure}", AGAIN_MS) from failure

    def _made_as(self, topic: str, number: int) -> str:
        slots = self._slots.get(number)
        if slots is None:
            slots = self._slots[number] = self.slots_of(_name_of(topic))
        return f"@{number}-{slots.first}-{slots.spread}"

    def make_all(self, topics: Sequence[tuple[str, int]]) -> None:
        """See JournalStore.make_all; another process may have made them."""
        for topic, _ in topics:
            if topic not in self._numbers:
                self._look_for(topic)
        super().make_all(topics)

    def made(self) -> list[str]:
        """See JournalStore.made."""
        self._look_again()
        return super().made()

    def drop(self, topic: str) -> None:
        """See JournalStore.drop; another process may have dropped it."""
        self._look_for(topic)
        super().drop(topic)

    def tidy(self, topics: Collection[str]) -> None:
        """See JournalStore.tidy: others' drops are free in the logs open here."""
        self._look_again()
        for place in self._logs:
            with place.guard:
                if place.log is not None and not place.log.has_failed:
                    place.log.forget(lambda part: part >> PARTITION_BITS not in self._topics)

    def used_logs(self) -> list[str]:
        """Names of the logs in which topics lie, of whichever process, and that have begun: there
        are entries in them."""
        self._look_again()
        shards = {
            (slots.first + place) % self.shards
            for number in list(self._topics)
            for slots in (self._slots[number],)
            for place in range(slots.spread)
        }
        return [
            str(one) for one in sorted(shards) if has_begun(self._files, self._logs[one].directory)
        ]

    # --- logs, of which one process at a time has each -------------------------------------------

    def shard_of(self, topic: str, number: int, partition: int) -> int:
        """See JournalStore.shard_of."""
        return self._shard(self.slots_of(topic), partition)

    def _shard(self, slots: TopicSlots, partition: int) -> int:
        return (slots.first + partition % slots.spread) % self.shards

    def _place(self, topic: str, partition: int) -> KeptLog:
        return self._logs[self._shard(self._slots[self._numbers[topic]], partition)]

    def open(self, topic: str, partition: int, *, only_made: bool = False) -> SegmentJournal:
        """See JournalStore.open. Raises Unavailable, too, while another process has the shard."""
        if only_made and topic not in self._numbers:
            self._look_for(topic)
        return super().open(topic, partition, only_made=only_made)

    def _open_log(self, place: KeptLog) -> ShardLog:
        try:
            lock = DirectoryLock(self.root / LOCKS, place.directory.name)
        except Locked as taken:
            shard = place.directory.name
            away = Unavailable(str(taken), AGAIN_MS)
            away.outside = str(taken).replace(str(self.root / LOCKS / shard), f"shard {shard}")
            raise away from None
        try:
            # Entries of a number that no topic has are free: all that can be in it must be known.
            self._look_again()
            log = super()._open_log(place)
        except BaseException:
            lock.release()
            raise
        place.lock = lock
        return log


def _name_of(journals: str) -> str:
    """The name of a topic whose journals are called by its name and its number."""
    name, dot, number = journals.rpartition(".")
    return name if dot and number.isdecimal() else journals


def _slots_in(path: Path) -> tuple[int, TopicSlots]:
    """What the name of such a directory says. Raises JournalDamaged."""
    try:
        number, shard, spread = (int(word) for word in path.name.removeprefix("@").split("-"))
    except ValueError:
        raise JournalDamaged(f"{path}: is of another version's data directories") from None
    if path.parent.name.startswith(OWN_PREFIX) or spread < 1:
        raise JournalDamaged(f"{path}: says not where a topic lies")
    return number, TopicSlots(shard, spread)
