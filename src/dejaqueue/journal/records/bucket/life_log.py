"""The log of one life of a broker: containers, each with what all its partitions did at a time.

    lives/<life>/00000000000000000017   a container
    lives/<life>/index                  what is in the containers below a number

It has one writer, and whoever takes a partition over from it: by a container of its own in the next
place, which the writer meets there when it stores its own. From then on records of that ownership
count no more, in the log of a writer that may not even know it yet. So a writer needs no other
fence than that there is something in its place: nobody but itself deletes a container of records,
and one that takes something is never deleted.

Room: journal. Any thread; no lock that a thread of the pool takes is held over a request.
Holds: what is known here is a beginning of the log; above the index no container is missing, below
it those are deleted in which no record is needed any more.
See: container.py; lives.py, which writes one and reads others.
"""

from __future__ import annotations

import json
import threading
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from dejaqueue.connections.bucket import Bucket
from dejaqueue.errors import JournalDamaged, Unavailable
from dejaqueue.journal.records.bucket.container import (
    ALL,
    HEAD_READ_BYTES,
    Head,
    decode_head,
    encode_taken,
    head_bytes,
)
from dejaqueue.journal.sealed_text import open_text, seal_text

DIGITS: Final = 20
LOOKS_MAX: Final = 1_000
_NO_END: Final = 1 << 62
ReadSeveral: TypeAlias = Callable[
    [Callable[[int], bytes | None], range], Iterator[tuple[int, bytes]]
]
"""Numbers with what a function gives for them, without those of which it gives nothing."""


class Where(NamedTuple):
    """Where a record is."""

    container: int
    offset: int
    byte_count: int


class Records:
    """Where the records of an ownership are, by number: dense from the first that is kept.

    Attributes:
        first: number of the first that is kept; where none is, of the next one.
    """

    __slots__ = ("byte_counts", "containers", "first", "offsets")

    def __init__(self, first: int) -> None:
        self.first = first
        self.containers, self.offsets, self.byte_counts = array("q"), array("q"), array("q")

    @property
    def end(self) -> int:
        """Number behind the last one."""
        return self.first + len(self.containers)

    def add(self, container: int, offset: int, sizes: list[int]) -> None:
        """Records that lie one behind the other."""
        for size in sizes:
            self.containers.append(container)
            self.offsets.append(offset)
            self.byte_counts.append(size)
            offset += size

    def where(self, number: int) -> Where | None:
        """Where a record is; None if it is not known, or not needed any more."""
        at = number - self.first
        if not 0 <= at < len(self.containers):
            return None
        return Where(self.containers[at], self.offsets[at], self.byte_counts[at])

    def drop_before(self, number: int) -> None:
        """Records below a number are not needed any more."""
        count = min(max(number - self.first, 0), len(self.containers))
        for column in (self.containers, self.offsets, self.byte_counts):
            del column[:count]
        self.first += count

    def facts(self) -> list[Any]:
        """For the index."""
        return [self.first, list(self.containers), list(self.offsets), list(self.byte_counts)]

    @staticmethod
    def of(facts: list[Any]) -> Records:
        """From the index."""
        found = Records(facts[0])
        found.containers.extend(facts[1])
        found.offsets.extend(facts[2])
        found.byte_counts.extend(facts[3])
        return found


class LifeLog:
    """What is known of one life's log.

    Args:
        life: whose it is.
        read_several: reads numbers at once.

    Attributes:
        next: number of the container that comes next, as far as is known.
        records: by id of the ownership.
        taken: ownerships whose records count no more.
    """

    def __init__(self, bucket: Bucket, life: str, read_several: ReadSeveral) -> None:
        self.life = life
        self._bucket, self._prefix, self._read_several = bucket, f"lives/{life}/", read_several
        self._guard = threading.Lock()
        """Over what is known, for a moment each: threads of the pool take it while they read for
        others, and who reads by the pool may not hold it."""
        self._turn = threading.Lock()
        """Of those that read what has come: each would ask for the same."""
        self.next = 1
        self.indexed = 0
        """Number up to which, without it, the index was stored or read."""
        self.records: dict[str, Records] = {}
        self.taken: set[str] = set()
        self._there: set[int] = set()
        self.taking: set[int] = set()
        """Containers that take something."""

    def name(self, number: int) -> str:
        """The name of a container."""
        return f"{self._prefix}{number:0{DIGITS}d}"

    # --- what is there --------------------------------------------------------------------------

    def last_of(self, ownership: str, first: int) -> int:
        """Number of the last record of an ownership that began with the record `first`."""
        with self._guard:
            found = self.records.get(ownership)
            return first - 1 if found is None else found.end - 1

    def where(self, ownership: str, number: int) -> Where | None:
        """Where a record is; None if it is not known."""
        with self._guard:
            found = self.records.get(ownership)
            return None if found is None else found.where(number)

    def is_taken(self, ownership: str) -> bool:
        """Whether somebody has taken it, as far as is known."""
        return ownership in self.taken or ALL in self.taken

    def refresh(self) -> None:
        """Read what has come. Raises JournalDamaged, Unavailable.

        Cost: two requests, and one for each container that has come.
        """
        with self._turn:
            for _ in range(LOOKS_MAX):
                self._read_on()
                facts = self._read_index()
                if facts is None or not self._adopt(facts):
                    return
                # What came next has been deleted meanwhile: the index has what is left of it.
        raise Unavailable(f"{self._prefix}: its beginning is deleted while it is read")

    def _read_on(self) -> None:
        first = self.next
        content = self._head_content(first)
        if content is None:
            return
        self.apply(first, decode_head(content, self.name(first)))
        for number, content in self._read_several(self._head_content, range(first + 1, _NO_END)):
            if number > self.next:
                return
            # Who appends, or takes something over, may have applied it meanwhile.
            self.apply(number, decode_head(content, self.name(number)))

    def _head_content(self, number: int) -> bytes | None:
        name = self.name(number)
        content = self._bucket.get_range(name, 0, HEAD_READ_BYTES)
        if content is not None and head_bytes(content, name) > len(content):
            content = self._bucket.get_range(name, 0, head_bytes(content, name))
        return content

    def apply(self, number: int, head: Head) -> None:
        """Take in the container that comes next; one that is known already is left."""
        with self._guard:
            if number != self.next:
                return
            self.next = number + 1
            self.taken.update(head.taken)
            if head.taken:
                self.taking.add(number)
            if head.runs:
                self._there.add(number)
            for run in head.runs:
                if self.is_taken(run.ownership):
                    continue
                records = self.records.setdefault(run.ownership, Records(run.first))
                if records.end != run.first:
                    raise JournalDamaged(
                        f"{self.name(number)}: record {run.first} where {records.end} comes next"
                    )
                records.add(number, run.offset, run.sizes)

    # --- storing --------------------------------------------------------------------------------

    def put(self, number: int, content: bytes) -> bool:
        """Store a container; False if there is another one in its place.

        Raises:
            ResourceExhausted. Unavailable: whether it is there is not known.
        """
        name = self.name(number)
        if self._bucket.put_new(name, content):
            return True
        found = self._bucket.get(name)
        if found is None:  # refused for one that was on its way, and did not come
            raise Unavailable(f"{name} was refused, and is not there")
        return found == content  # the store may have been asked twice

    def keeps(self, name: str) -> bool:
        """Whether an object stays when the rest of the log is deleted."""
        number = name.removeprefix(self._prefix)
        return not number.isdigit() or int(number) in self.taking

    @property
    def is_sealed(self) -> bool:
        """Whether somebody has ended all of it, as far as is known."""
        return ALL in self.taken

    def take(self, ownerships: list[str], by: str) -> None:
        """Have records of these ownerships count no more from the end of the log on.

        When this returns, all that count are known here. Raises JournalDamaged, Unavailable.
        """
        content = encode_taken(ownerships, by)
        for _ in range(LOOKS_MAX):
            self.refresh()
            if all(self.is_taken(one) for one in ownerships):
                return
            number = self.next
            if self.put(number, content):
                self.apply(number, decode_head(content, self.name(number)))
        raise Unavailable(f"{self._prefix}: its end moves on while it is taken over")

    # --- the index, and room --------------------------------------------------------------------

    def _read_index(self) -> dict[str, Any] | None:
        content = self._bucket.get(f"{self._prefix}index")
        if content is None:
            return None
        text = open_text(Path(f"{self._prefix}index"), content)
        facts: dict[str, Any] = json.loads(text)
        return facts

    def _adopt(self, facts: dict[str, Any]) -> bool:
        """Know what is in the index; False if all of it is known."""
        with self._guard:
            if facts["next"] <= self.next:
                return False
            self.next = self.indexed = int(facts["next"])
            self.taken, self.taking = set(facts["taken"]), set(facts["taking"])
            self.records = {name: Records.of(found) for name, found in facts["records"].items()}
            self._there = {one for found in self.records.values() for one in found.containers}
            return True

    def forget(self, ownership: str) -> None:
        """No record of an ownership is needed any more, nor will come."""
        with self._guard:
            self.records.pop(ownership, None)

    def drop_before(self, ownership: str, number: int) -> None:
        """Records of an ownership below a number are not needed any more."""
        with self._guard:
            if ownership in self.records:
                self.records[ownership].drop_before(number)

    def store_index(self) -> None:
        """By the life itself: store what is there, then delete the containers nobody needs.

        Raises:
            ResourceExhausted, Unavailable: what is left is deleted another time.
        """
        with self._guard:
            end = self.next
            facts = {
                "next": end,
                "taken": sorted(self.taken),
                "taking": sorted(self.taking),
                "records": {name: found.facts() for name, found in self.records.items()},
            }
            needed = {one for found in self.records.values() for one in found.containers}
            gone = sorted(self._there - needed)
        text = json.dumps(facts, separators=(",", ":"))
        self._bucket.put(f"{self._prefix}index", seal_text(text))
        self.indexed = end
        self._bucket.delete([self.name(number) for number in gone])
        with self._guard:
            self._there.difference_update(gone)
