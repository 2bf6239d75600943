"""Following the logs of a store from outside: what became durable in them, up to one moment.

Who follows begins a turn: a number that all logs of the store look at when they publish an append.
The first append of a log in a turn notes where the log ended before. So the ends of all logs at the
begin of a turn can be read one after the other, and are those of one moment: an append that was
published before the turn began is within them. One that was caused by an append behind them is
behind them, too, as that one was published first, in this turn. And who follows says up to where
entries are wanted no more, so that those stay whose topic is deleted meanwhile.

Room: journal. Any thread. Knows stored bytes, and decrypts nothing.
Holds: what is read is durable, and whole entries that follow each other without a gap; what was not
verified since the log was opened is verified before it is given.
See: log.py, which publishes; broker/backup/archiver.py, who follows;
docs/adr/0078-entries-are-archived-as-they-come.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from dejaqueue.errors import JournalDamaged
from dejaqueue.journal import format as entry_format
from dejaqueue.journal.segments.files import FileSystem
from dejaqueue.journal.segments.segment import Segment, SegmentList


class FollowedRoom(Protocol):
    """What of a log is kept (room.py)."""

    def let_archived_go(self) -> None: ...  # noqa: D102


class FollowedLog(Protocol):
    """A log (log.py), as who follows it sees it.

    Attributes:
        tail: position of its last entry.
        turn_seen: the last turn in which something was published, and where the log ended before.
    """

    files: FileSystem
    directory: Path
    tail: int
    turn_seen: tuple[int, int]

    @property
    def listed(self) -> SegmentList: ...  # noqa: D102
    @property
    def room(self) -> FollowedRoom: ...  # noqa: D102
    @property
    def has_failed(self) -> bool: ...  # noqa: D102
    def end_of_turn(self) -> int: ...  # noqa: D102


class LogTurn:
    """Which turn it is, for all logs of a store.

    Attributes:
        number: raised by who follows, to begin a turn; 0 = nobody follows.
        changed: called after the first append of a log in a turn, on the thread that appends; must
            not block.
        logs: those that were opened since somebody follows, by name; also closed ones, whose
            entries can be read until who follows takes them out.
        kept: of each log, behind which position entries stay for who follows; of one that is not
            among them, all. None = none stay: nobody follows, or it took too long, or there is no
            room.
    """

    __slots__ = ("changed", "kept", "logs", "number")

    def __init__(self) -> None:
        self.number = 0
        self.kept: dict[str, int] | None = None
        self.changed: Callable[[], None] = lambda: None
        self.logs: dict[str, FollowedLog] = {}

    def opened(self, name: str, log: FollowedLog) -> None:
        """A log was opened."""
        if self.number:
            before = self.logs.get(name)
            if before is not None:
                log.turn_seen = before.turn_seen  # perhaps in the turn that it is
            self.logs[name] = log

    def keep(self, reached: Mapping[str, int] | None) -> None:
        """Who follows has this, and wants what is behind; None = nothing, until this is called
        again."""
        self.kept = None if reached is None else dict(reached)
        for one in list(self.logs.values()):
            if not one.has_failed:
                one.room.let_archived_go()

    def reach(self, reached: Mapping[str, int]) -> None:
        """Who follows has this, and wants what is behind, if that stays still."""
        if self.kept is not None:
            self.keep(reached)

    def kept_behind(self, shard: int) -> int | None:
        """Behind which position entries of a shard's log stay; None = they need not."""
        kept = self.kept
        return None if kept is None else kept.get(str(shard), 0)

    def published(self, shard: int, number: int, before: int, tail: int) -> None:
        """A log has got entries, which made it end at `tail`, in the turn of a number; `before` is
        where it ended. Called with the log's guard, before anybody is told of them."""


class LogSlice(NamedTuple):
    """Neighbouring entries of one log, as they are stored.

    Attributes:
        log: its name: the shard's number, or OWN for the catalogue's.
        after, last: from the position behind `after` to this one.
        content: their bytes; a view of the log's memory, which it keeps.
    """

    log: str
    after: int
    last: int
    content: memoryview


def read_slice(name: str, log: FollowedLog, after: int, last: int, byte_count_max: int) -> LogSlice:
    """Entries of a log behind a position that lie in one file, as many as fit, and one at least.

    Args:
        last: the last one that is asked for; it is durable, and behind `after`.

    Raises:
        JournalDamaged: the log has given some of them back, or they are not what was written.
    """
    for segment in log.listed.segments:
        if segment.last > after:
            if segment.first > after + 1:
                break
            end = _fitting(segment, log, after, min(last, segment.last), byte_count_max)
            return LogSlice(name, after, end, _stored(segment, after, end))
    raise JournalDamaged(f"{log.directory}: entry {after + 1} was given back")


def _fitting(segment: Segment, log: FollowedLog, after: int, last: int, byte_count_max: int) -> int:
    """The last entry of a segment up to which those behind `after` have so few bytes; one more
    than `after` at least."""
    segment.load(log.files)
    offsets = segment.offsets()[after + 1 - segment.first : last + 1 - segment.first]
    bound = (int(offsets[0]) << 3) + byte_count_max
    if _end_of(segment, last) <= bound:
        return last
    # Where the entry behind one begins is where that one ends.
    count = int((offsets[1:].astype("int64") << 3).searchsorted(bound, side="right"))
    return after + max(count, 1)


def _end_of(segment: Segment, position: int) -> int:
    """Where an entry ends, an offset in its file, of a segment that is loaded."""
    at = int(segment.offsets()[position - segment.first]) << 3
    head = entry_format.peek(segment.memory().view, at)
    if head is None or head.position != position:
        raise JournalDamaged(f"{segment.path}, offset {at}: not entry {position}")
    return at + entry_format.HEADER_BYTES + head.body_bytes


def _stored(segment: Segment, after: int, last: int) -> memoryview:
    """The stored bytes of the entries behind one, to another, of a segment that is loaded."""
    first = after + 1 - segment.first
    verified = segment.verified()
    if verified is not None:
        places = range(first, last + 1 - segment.first)
        segment.verify([place for place in places if not verified[place]])
    start = int(segment.offsets()[first]) << 3
    return segment.memory().view[start : _end_of(segment, last)]
