"""Snapshots of a partition as objects on the server: parts by name, and manifests that name them.

    <prefix>/begun                              records were made durable; until the first snapshot
    <prefix>/snapshots/00000000000000004711     JSON: position, meta, bytes and checksum of parts
    <prefix>/parts/<name>                       content as it was given, or sealed

A snapshot is there when its manifest is. The newest two are kept: if the newest turns out damaged,
the one before and the records since serve.

Room: journal. Knows names and bytes.
Holds: a part is durable before a manifest names it; only what was there at the opening, or put
since, is deleted: an owner that was overtaken and does not know it yet takes nothing from the next.
See: segments/snapshots.py, whose manifests these are; duty 10 of journal/interface.py.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import xxhash

from dejaqueue.errors import BadRequest, DejaQError, JournalDamaged
from dejaqueue.journal.encryption.cipher import Cipher, open_object, seal_object
from dejaqueue.journal.interface import SnapshotFile
from dejaqueue.journal.records.interface import RecordStore
from dejaqueue.journal.segments.snapshots import KEPT, Manifest, Part

log = logging.getLogger(__name__)

_TOGETHER, _TOGETHER_BYTES = 64, 8 << 20
"""So many parts, of so many bytes, are asked for with one call."""
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


class SnapshotObjects:
    """The snapshots of one partition. Safe to use from two threads.

    Args:
        cipher: encrypts parts; None = they are stored as they are.
    """

    def __init__(self, store: RecordStore, prefix: str, cipher: Cipher | None = None) -> None:
        self._store, self._cipher = store, cipher
        self._prefix = f"{prefix}/"
        self._manifest_prefix = f"{prefix}/snapshots/"
        self._part_prefix = f"{prefix}/parts/"
        self._mark = f"{prefix}/begun"
        self._lock = threading.Lock()
        self._contents: dict[str, bytes] = {}
        self._there: set[str] = set()  # objects that are known here
        self.manifests: list[Manifest] = []
        """Those that are kept, the newest last."""
        self.damaged: list[str] = []
        """What could not be used, in words."""
        self._load()

    def _load(self) -> None:
        self._there = set(self._store.object_names(self._prefix))
        names = sorted(name for name in self._there if name.startswith(self._manifest_prefix))
        found = self._store.get_objects(names)
        for name in reversed(names):
            try:
                content = found.get(name) or self._get(name)
                manifest = Manifest.decode(Path(name), memoryview(content))
                if not self.manifests:
                    self._contents = self._parts(manifest)
            except JournalDamaged as damage:
                self.damaged.append(str(damage))
                continue
            self.manifests.insert(0, manifest)

    def _get(self, name: str) -> bytes:
        content = self._store.get_object(name)
        if content is None:
            raise JournalDamaged(f"{name}: is missing")
        return content

    def _parts(self, manifest: Manifest) -> dict[str, bytes]:
        """All parts of a snapshot, several with each call. Raises JournalDamaged, Unavailable."""
        contents: dict[str, bytes] = {}
        for names in _together(manifest.parts):
            found = self._store.get_objects([self._part_prefix + name for name in names])
            for name in names:
                content, part = found.get(self._part_prefix + name), manifest.parts[name]
                if content is None or not _is_right(content, part):
                    content = self._verified(name, part)
                contents[name] = content
        return contents

    def _verified(self, name: str, part: Part) -> bytes:
        content = self._get(self._part_prefix + name)
        if not _is_right(content, part):
            raise JournalDamaged(f"{self._part_prefix}{name}: is not what was written")
        return content

    @property
    def has_begun(self) -> bool:
        """True if records were made durable here, whether or not they are there now."""
        return bool(self._there)

    def begin(self) -> None:
        """Note durably that there are records; nothing is done if that is known.

        Raises:
            ResourceExhausted, Unavailable.
        """
        with self._lock:
            if not self._there:
                self._store.put_object(self._mark, b"")
                self._there.add(self._mark)

    def newest(self) -> Manifest | None:
        """The newest whole snapshot."""
        with self._lock:
            return self.manifests[-1] if self.manifests else None

    @property
    def kept_position(self) -> int:
        """Entries up to here are in every snapshot kept: they will never be replayed again."""
        kept = self.manifests
        return kept[-KEPT].position if len(kept) >= KEPT else 0

    def is_newest(self) -> bool:
        """True if nobody has stored another snapshot since this was opened."""
        names = self._store.object_names(self._manifest_prefix)
        newest = self.newest()
        return names[-1:] == ([self._path(newest)] if newest is not None else [])

    def read(self, name: str) -> memoryview:
        """The content of a part of the newest snapshot, verified.

        Raises:
            JournalDamaged: it is not there or not what was written.
        """
        with self._lock:
            part = self.manifests[-1].parts.get(name) if self.manifests else None
            if part is None:
                raise JournalDamaged(f"{self._part_prefix}{name}: no part of the newest snapshot")
            # Handed out once, so that its memory goes when the reader has done with it.
            content = self._contents.pop(name, None)
            stored = self._verified(name, part) if content is None else content
        return memoryview(open_object(self._cipher, stored, self._part_prefix + name))

    def put(self, position: int, meta: str, files: Sequence[SnapshotFile]) -> None:
        """Store a snapshot durably, then forget those before the previous one.

        Raises:
            BadRequest: a name that no part may have, or content missing for a new one.
            ResourceExhausted, Unavailable: it was not stored; the ones before are as they were.
        """
        with self._lock:
            known = {name: part for kept in self.manifests for name, part in kept.parts.items()}
            parts = {file.name: self._put_part(file, known) for file in files}
            manifest = Manifest(position, 0, meta, parts)
            self._there.add(self._path(manifest))
            self._store.put_object(self._path(manifest), manifest.encode())
            self.manifests = [m for m in self.manifests if m.position != position]
            self.manifests.append(manifest)
            self._contents.clear()
            self._forget()

    def erase_older(self, check_owner: Callable[[], None]) -> None:
        """Delete whatever the snapshots that are kept do not need, whoever stored it.

        Args:
            check_owner: raises if somebody else may have stored snapshots meanwhile: they are
                known to nobody here, and stay.

        Raises:
            Fenced, Unavailable.
        """
        with self._lock:
            found = set(self._store.object_names(self._prefix))
            check_owner()  # the next owner appends before it stores
            kept = self._kept()
            self._store.drop_objects(sorted((self._there | found) - kept))
            self._there = kept

    def _kept(self) -> set[str]:
        kept = {self._path(manifest) for manifest in self.manifests}
        return kept | {self._part_prefix + name for m in self.manifests for name in m.parts}

    def _path(self, manifest: Manifest) -> str:
        return f"{self._manifest_prefix}{manifest.position:020d}"

    def _put_part(self, file: SnapshotFile, known: dict[str, Part]) -> Part:
        part = known.get(file.name)
        if part is not None:
            return part
        if file.content is None or not _NAME.fullmatch(file.name):
            raise BadRequest("snapshot.file", "a stored name, or a new one with content", file.name)
        self._there.add(self._part_prefix + file.name)
        stored = seal_object(self._cipher, file.content, self._part_prefix + file.name)
        self._store.put_object(self._part_prefix + file.name, stored)
        content = memoryview(stored)
        return Part(content.nbytes, xxhash.xxh3_64_hexdigest(content))

    def _forget(self) -> None:
        """Delete what the newest two do not need. What stays costs room, nothing else."""
        self.manifests = self.manifests[-KEPT:]
        kept = self._kept()
        try:
            self._store.drop_objects(sorted(self._there - kept))
            self._there = kept
        except DejaQError as failure:
            log.warning("older snapshots below %s stay: %s", self._part_prefix, failure)


def _is_right(content: bytes, part: Part) -> bool:
    """Whether it is what was written."""
    right = len(content) == part.byte_count
    return right and bool(xxhash.xxh3_64_hexdigest(content) == part.checksum)


def _together(parts: Mapping[str, Part]) -> Iterator[list[str]]:
    """Names of parts that are asked for together: a few megabytes, or one."""
    names: list[str] = []
    byte_count = 0
    for name, part in parts.items():
        if names and (byte_count + part.byte_count > _TOGETHER_BYTES or len(names) == _TOGETHER):
            yield names
            names, byte_count = [], 0
        names.append(name)
        byte_count += part.byte_count
    if names:
        yield names
