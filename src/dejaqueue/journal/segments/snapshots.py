"""Snapshots of a partition: parts stored once by name, and manifests that make them visible.

    <partition>/00000000000000004711.manifest   JSON: position, the log's position of that entry,
                                                meta, and per part bytes and checksum
    <partition>/parts/<name>                    content as it was given, or sealed
    <partition>.begun                           there were snapshots in that directory

A snapshot is there when its manifest is (written beside, synced, renamed, directory synced). The
newest two are kept: if the newest turns out damaged, the one before and the entries since serve.

Room: journal. Knows names and bytes.
Holds: a part is durable before a manifest names it; parts named by neither manifest are deleted.
See: duty 10 of journal/interface.py.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import xxhash

from dejaqueue.errors import BadRequest, JournalDamaged
from dejaqueue.journal.encryption.cipher import Cipher, open_object, seal_object
from dejaqueue.journal.interface import Snapshot, SnapshotFile
from dejaqueue.journal.sealed_text import open_text, seal_text
from dejaqueue.journal.segments.files import FileSystem, read_file, replace_file, write_file

KEPT: Final = 2
_SUFFIX: Final = ".manifest"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True, slots=True)
class Part:
    """A stored part of a snapshot."""

    byte_count: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What makes a snapshot.

    Attributes:
        log_position: position of its entry in the log that the partition shares.
    """

    position: int
    log_position: int
    meta: str
    parts: dict[str, Part]

    def encode(self) -> bytes:
        """The bytes of a manifest file."""
        parts = {name: [part.byte_count, part.checksum] for name, part in self.parts.items()}
        facts = {"position": self.position, "log": self.log_position}
        return seal_text(json.dumps(facts | {"meta": self.meta, "parts": parts}))

    @staticmethod
    def decode(path: Path, content: memoryview) -> Manifest:
        """The manifest of a file.

        Raises:
            JournalDamaged: it is not what was written.
        """
        facts: dict[str, Any] = json.loads(open_text(path, content))
        parts = {name: Part(*part) for name, part in facts["parts"].items()}
        return Manifest(facts["position"], facts["log"], facts["meta"], parts)


class SnapshotFiles:
    """The snapshots of one partition. Safe to use from two threads.

    Args:
        cipher: encrypts parts; None = they are stored as they are.
        owner: what the partition is called in what is encrypted.
    """

    def __init__(
        self, files: FileSystem, directory: Path, cipher: Cipher | None = None, owner: str = ""
    ) -> None:
        self._files, self._directory = files, directory
        self._cipher, self._owner = cipher, owner
        self._parts = directory / "parts"
        self._lock = threading.Lock()
        self._manifests: list[Manifest] = []
        self._contents: dict[str, memoryview] = {}
        self.damaged: list[str] = []
        """What could not be used, in words."""
        self._begun = directory.with_name(f"{directory.name}.begun")
        self._has_begun = self._begun.name in files.names(directory.parent)
        self._load()

    def _load(self) -> None:
        """Find the newest whole snapshots; the first one verified serves."""
        names = [n for n in self._files.names(self._directory) if n.endswith(_SUFFIX)]
        for name in reversed(names):
            path = self._directory / name
            try:
                manifest = Manifest.decode(path, read_file(self._files, path))
                if not self._manifests:
                    for part, facts in manifest.parts.items():
                        self._contents[part] = self._verified(part, facts)
            except (JournalDamaged, FileNotFoundError) as damage:
                self.damaged.append(str(damage))
                self._contents.clear()
                continue
            self._manifests.insert(0, manifest)

    def _verified(self, name: str, part: Part) -> memoryview:
        path = self._parts / name
        content = read_file(self._files, path)
        if len(content) != part.byte_count or xxhash.xxh3_64_hexdigest(content) != part.checksum:
            raise JournalDamaged(f"{path}, offset 0: a snapshot's part is not what was written")
        return content

    @property
    def is_lost(self) -> bool:
        """True if there was a snapshot, and none is there."""
        return self._has_begun and not self._manifests

    @property
    def log_position(self) -> int:
        """The log's position of the newest one's entry, 0 if there is none."""
        return self._manifests[-1].log_position if self._manifests else 0

    @property
    def position(self) -> int:
        """Position of the newest snapshot, 0 if there is none."""
        return self._manifests[-1].position if self._manifests else 0

    @property
    def kept_position(self) -> int:
        """Entries up to here are in every snapshot kept: they will never be replayed again."""
        kept = self._manifests
        return kept[-KEPT].position if len(kept) >= KEPT else 0

    def latest(self) -> Snapshot | None:
        """The newest whole snapshot."""
        with self._lock:
            if not self._manifests:
                return None
            manifest = self._manifests[-1]
            return Snapshot(manifest.position, manifest.meta, tuple(manifest.parts))

    def read(self, name: str) -> memoryview:
        """The content of a part of the newest snapshot, verified.

        Raises:
            JournalDamaged: it is not there or not what was written.
        """
        with self._lock:
            part = self._manifests[-1].parts.get(name) if self._manifests else None
            if part is None:
                raise JournalDamaged(f"{self._parts / name}: no part of the newest snapshot")
            # Handed out once, so that its pages go when the reader has done with them.
            content = self._contents.pop(name, None)
            stored = self._verified(name, part) if content is None else content
        return memoryview(open_object(self._cipher, stored, self._sealed_name(name)))

    def _sealed_name(self, part: str) -> str:
        return f"{self._owner}/{part}"

    def _note(self) -> None:
        """Note beside the directory that there are snapshots: it may be lost as a whole."""
        if not self._has_begun:
            self._files.open(self._begun, create=True).close()
            self._files.sync_directory(self._begun.parent)
            self._has_begun = True

    def put(
        self, position: int, meta: str, files: Sequence[SnapshotFile], log_position: int
    ) -> None:
        """Store a snapshot durably, then forget those before the previous one.

        Raises:
            BadRequest: a name that no part may have, or content missing for a new one.
            OSError: it was not stored; the ones before are as they were.
        """
        with self._lock:
            if not self._manifests:
                self._files.make_directory(self._parts)
            known = {name: part for kept in self._manifests for name, part in kept.parts.items()}
            parts = {file.name: self._store(file, known) for file in files}
            self._files.sync_directory(self._parts)
            manifest = Manifest(position, log_position, meta, parts)
            replace_file(self._files, self._path(manifest), manifest.encode())
            self._note()
            self._manifests = [m for m in self._manifests if m.position != position]
            self._manifests.append(manifest)
            self._contents.clear()  # maps of the start; whoever still reads one keeps it alive
            self._forget()

    def _path(self, manifest: Manifest) -> Path:
        return self._directory / f"{manifest.position:020d}{_SUFFIX}"

    def _store(self, file: SnapshotFile, known: dict[str, Part]) -> Part:
        part = known.get(file.name)
        if part is not None:
            return part
        if file.content is None or not _NAME.fullmatch(file.name):
            raise BadRequest("snapshot.file", "a stored name, or a new one with content", file.name)
        stored = seal_object(self._cipher, file.content, self._sealed_name(file.name))
        write_file(self._files, self._parts / file.name, stored)
        content = memoryview(stored)
        return Part(content.nbytes, xxhash.xxh3_64_hexdigest(content))

    def _forget(self) -> None:
        """Delete what the newest two do not need. A file that stays costs room, nothing else."""
        self._manifests = self._manifests[-KEPT:]
        kept = {self._path(manifest).name for manifest in self._manifests} | {self._parts.name}
        named = {name for manifest in self._manifests for name in manifest.parts}
        for directory, needed in ((self._directory, kept), (self._parts, named)):
            for name in self._files.names(directory):
                if name not in needed:
                    try:
                        self._files.unlink(directory / name)
                    except OSError as failure:
                        self.damaged.append(f"{directory / name} was not deleted: {failure}")
