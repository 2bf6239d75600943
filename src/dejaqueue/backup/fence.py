"""Fence: the one object of an archive that says which standby took a broker's place.

    fences/<store>      JSON: the fields of Fence; stored on condition that there is none

Room: backup. Any thread.
Holds: of several standbys that are promoted at once, one stores the fence, and the others read
whose it is; nobody deletes it, so a broker that comes back after months reads it, too.
See: log_pieces.py, `fence`, which ends a chain; broker/standby/standby.py, who stores it;
broker/backup/archiver.py, who meets it; docs/adr/0084-a-standby-follows-the-archive.md.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from dejaqueue.connections.bucket import Bucket
from dejaqueue.errors import JournalDamaged
from dejaqueue.times import show_instant

PREFIX: Final = "fences/"


@dataclass(frozen=True, slots=True)
class Fence:
    """Which standby took the place of a broker.

    Attributes:
        store: of which journals the broker was, as in manifests.
        standby: the standby's id.
        at_ms: when it was promoted, UTC.
        where: where it serves, in words for people.

    >>> Fence("9f", "a1", 0, "dejaq://b:7464").told()
    'standby a1 (dejaq://b:7464) was promoted at 1970-01-01T00:00:00.000Z'
    """

    store: str
    standby: str
    at_ms: int
    where: str

    def to_text(self) -> str:
        """As it is stored."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_text(text: str | bytes) -> Fence:
        """The fence of `to_text`. Raises JournalDamaged."""
        try:
            values: dict[str, Any] = json.loads(text)
            return Fence(**values)
        except (ValueError, TypeError) as wrong:
            raise JournalDamaged(f"a fence is not what was stored ({wrong!r})") from wrong

    def told(self) -> str:
        """What happened, in words."""
        return f"standby {self.standby} ({self.where}) was promoted at {show_instant(self.at_ms)}"


def _path(store: str) -> str:
    return f"{PREFIX}{store}"


def read_fence(bucket: Bucket, store: str) -> Fence | None:
    """The fence of a store of journals; None = its broker is the active one.

    Raises:
        Unavailable, JournalDamaged.
    """
    stored = bucket.get(_path(store))
    return None if stored is None else Fence.from_text(stored)


def put_fence(bucket: Bucket, fence: Fence) -> Fence:
    """Store a fence, unless there is one; the one that is there then.

    Raises:
        Unavailable, ResourceExhausted: whether it was stored is not known; the same call again
            tells. JournalDamaged.
    """
    if bucket.put_new(_path(fence.store), fence.to_text().encode()):
        return fence
    found = read_fence(bucket, fence.store)
    if found is None:
        raise JournalDamaged(f"{_path(fence.store)}: was there, and is not any more")
    return found
