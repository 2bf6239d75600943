"""A bucket in a directory that a test has fail, be late, and count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from dejaqueue.connections.bucket import DirectoryBucket, StoredObject
from dejaqueue.errors import Unavailable
from dejaqueue.journal.records.bucket.store import BucketRecordStore


class PlayedBucket(DirectoryBucket):
    """A bucket.

    Attributes:
        lists: so many of the objects are in a listing.
        lose: what happens to the next new objects: "before" = it is not stored, and no answer;
            "after" = stored, and no answer; "late" = no answer, and stored by `arrive`.
        puts: names of new objects that were asked for.
        reads: names that were read.
        before_put: called with the name, before a new object is stored.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root, "journal")
        self.lists = 1 << 20
        self.lose: list[str] = []
        self.puts: list[str] = []
        self.reads: list[str] = []
        self.before_put: Callable[[str], None] = lambda _: None
        self._late: list[tuple[str, bytes]] = []

    def put_new(self, name: str, content: bytes | memoryview) -> bool:
        self.puts.append(name)
        self.before_put(name)
        how = self.lose.pop(0) if self.lose else ""
        if how == "late":
            self._late.append((name, bytes(content)))
        if how in ("before", "late"):
            raise Unavailable("no answer")
        done = super().put_new(name, content)
        if how == "after":
            raise Unavailable("no answer")
        return done

    def arrive(self) -> list[bool]:
        """What was on its way arrives: whether each was stored."""
        late, self._late = self._late, []
        return [super(PlayedBucket, self).put_new(*one) for one in late]

    def get(self, name: str) -> bytes | None:
        self.reads.append(name)
        return super().get(name)

    def get_range(self, name: str, offset: int, byte_count: int) -> bytes | None:
        self.reads.append(name)
        return super().get_range(name, offset, byte_count)

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        return iter(list(super().objects(prefix))[: self.lists])

    def containers(self) -> list[str]:
        """Names of all containers that are there."""
        found = super().objects("lives/")
        return [one.name for one in found if one.name.rpartition("/")[2].isdigit()]


def store_in(root: Path) -> tuple[BucketRecordStore, PlayedBucket]:
    """A broker's store in a bucket, as its life sees it."""
    bucket = PlayedBucket(root)
    return BucketRecordStore(bucket), bucket
