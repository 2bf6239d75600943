"""Copies of payloads beside the backups that need them.

    payloads/lists/<id>.json      what backup <id> needs: each object with its bytes and its SHA-256
    payloads/objects/<name>       an object of a payload store, as it is there; backups share it

An object has a name that no other content ever has, so one that is in the list of an earlier backup
is not copied again.

Room: backup. Any thread. Knows names and bytes, no references.
Holds: a list names objects that were stored before it; one that is read is what the list says, or
it is refused by its name.
See: broker/backup/backed_payloads.py, which fills it; docs/guides/backup.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Final, NamedTuple

from dejaqueue.connections.bucket import Bucket
from dejaqueue.errors import JournalDamaged

_LISTS: Final = "payloads/lists/"
_OBJECTS: Final = "payloads/objects/"
_SUFFIX: Final = ".json"
ORPHAN_MS: Final = 86_400_000
"""An object that no list names is deleted when it is so old: a list may be about to name it."""


class CopiedObject(NamedTuple):
    """An object as it was copied.

    Attributes:
        digest: SHA-256 of its bytes, in hexadecimal.
    """

    byte_count: int
    digest: str


class PayloadCopies:
    """The copies of an archive.

    Args:
        bucket: of the archive.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def backups(self) -> list[str]:
        """Ids of backups that have copies, the oldest first."""
        names = [one.name for one in self._bucket.objects(_LISTS)]
        return [name.removeprefix(_LISTS).removesuffix(_SUFFIX) for name in names]

    def needed(self, backup: str) -> dict[str, CopiedObject] | None:
        """What a backup needs, by name; None = it has no copies. Raises JournalDamaged."""
        name = f"{_LISTS}{backup}{_SUFFIX}"
        content = self._bucket.get(name)
        if content is None:
            return None
        try:
            values = json.loads(content)
            objects = {key: CopiedObject(*one) for key, one in values["objects"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as wrong:
            raise JournalDamaged(f"{name} is not what was written") from wrong
        if values.get("digest") != _digest(objects):
            raise JournalDamaged(f"{name} is not what was written")
        return objects

    def known(self) -> dict[str, CopiedObject]:
        """What any backup has copies of. A list that is damaged counts as none."""
        found: dict[str, CopiedObject] = {}
        for backup in self.backups():
            try:
                found |= self.needed(backup) or {}
            except JournalDamaged:  # `verify` names it
                continue
        return found

    def put(self, name: str, content: bytes) -> CopiedObject:
        """Store a copy of an object. Raises ResourceExhausted, Unavailable."""
        self._bucket.put(f"{_OBJECTS}{name}", content)
        return CopiedObject(len(content), hashlib.sha256(content).hexdigest())

    def sizes(self) -> dict[str, int]:
        """Bytes of each copy that is there, by name."""
        stored = self._bucket.objects(_OBJECTS)
        return {one.name.removeprefix(_OBJECTS): one.byte_count for one in stored}

    def put_list(self, backup: str, objects: dict[str, CopiedObject]) -> None:
        """Say that a backup has all its copies."""
        values = {"objects": objects, "digest": _digest(objects)}
        self._bucket.put(f"{_LISTS}{backup}{_SUFFIX}", json.dumps(values).encode())

    def get(self, name: str, expected: CopiedObject) -> bytes:
        """A copy. Raises JournalDamaged: it is missing, or is not what was copied; Unavailable."""
        content = self._bucket.get(f"{_OBJECTS}{name}")
        if content is None:
            raise JournalDamaged(f"{_OBJECTS}{name} is missing")
        if hashlib.sha256(content).hexdigest() != expected.digest:
            raise JournalDamaged(f"{_OBJECTS}{name} is not what was copied")
        return content

    def damage(self, backup: str, checked: set[str]) -> Iterator[str]:
        """What of the copies of a backup is missing or damaged, in words; needs no keys.

        Args:
            checked: names that were found whole; they are not read again, and are added to.
        """
        try:
            objects = self.needed(backup) or {}
        except JournalDamaged as damage:
            yield f"backup {backup}: {damage}"
            return
        for name, expected in objects.items():
            if name in checked:
                continue
            try:
                self.get(name, expected)
                checked.add(name)
            except JournalDamaged as damage:
                yield f"backup {backup}: {damage}"

    def sweep(self, backups: set[str], now_ms: int) -> int:
        """Delete lists of backups that are gone, and copies that no list names and that are older
        than ORPHAN_MS; how many copies. Raises JournalDamaged: a list cannot be read, so that none
        is deleted; Unavailable."""
        gone = [backup for backup in self.backups() if backup not in backups]
        self._bucket.delete([f"{_LISTS}{backup}{_SUFFIX}" for backup in gone])
        old_ms = now_ms - ORPHAN_MS
        stored = [one.name for one in self._bucket.objects(_OBJECTS) if one.stored_ms < old_ms]
        if not stored:
            return 0
        kept = {f"{_OBJECTS}{name}" for one in self.backups() for name in self.needed(one) or ()}
        orphans = [name for name in stored if name not in kept]
        self._bucket.delete(orphans)
        return len(orphans)


def _digest(objects: dict[str, CopiedObject]) -> str:
    text = json.dumps(sorted(objects.items()))
    return hashlib.sha256(text.encode()).hexdigest()
