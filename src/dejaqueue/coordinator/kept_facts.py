"""Facts in memory of which some outlive the process: they are in a file, too.

    facts = KeptFacts(Path("facts.json"), ("documents/", "cluster/"))

Room: coordinator.
Holds: what is kept is durable before the call returns; a file that cannot be written changes
nothing; who is a member and who owns what is in memory alone, so that a full disk ends no
membership.
See: in_process.py; facts_server.py, for other processes.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from pathlib import Path

from dejaqueue.clock import Clock
from dejaqueue.coordinator.in_process import FactsCopy, Kept, ProcessFacts
from dejaqueue.coordinator.interface import Fact
from dejaqueue.directories import PRIVATE_FILE
from dejaqueue.errors import JournalDamaged, Unavailable


class KeptFacts(ProcessFacts):
    """Facts of this process, and of those that it serves.

    Args:
        path: of the file; None = nothing is kept.
        prefixes: of the keys that are.

    Raises:
        JournalDamaged: the file is not what was written. Unavailable: it cannot be read.
    """

    def __init__(
        self, path: Path | None, prefixes: tuple[str, ...], clock: Clock | None = None
    ) -> None:
        super().__init__(clock)
        self._path, self._prefixes = path, prefixes
        if path is not None:
            self.restore(_read(path))

    def put(self, key: str, value: bytes, revision: int | None, ttl_ms: int | None) -> int:
        """See ProcessFacts.put. Raises Unavailable, too: it cannot be kept, and is not changed."""
        with self._lock:
            before = self.copy()
            stored = super().put(key, value, revision, ttl_ms)
            self._keep(key, before)
            return stored

    def delete(self, key: str, revision: int | None) -> bool:
        """See ProcessFacts.delete. Raises Unavailable, too: it cannot be kept; nothing changed."""
        with self._lock:
            before = self.copy()
            was_there = super().delete(key, revision)
            if was_there:
                self._keep(key, before)
            return was_there

    def _keep(self, key: str, before: FactsCopy) -> None:
        if self._path is None or not key.startswith(self._prefixes):
            return
        kept = {
            fact.key: [fact.revision, base64.b64encode(fact.value).decode()]
            for prefix in self._prefixes
            for fact in self.find(prefix)
        }
        try:
            _write(self._path, json.dumps([self.copy().revision, kept]).encode())
        except OSError as failure:
            self.restore(before)
            raise Unavailable(f"{self._path} cannot be written: {failure}") from failure


def _read(path: Path) -> FactsCopy:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return FactsCopy(0, {})
    except OSError as failure:
        raise Unavailable(f"{path} cannot be read: {failure}") from failure
    try:
        checksum, _, text = content.partition(b"\n")
        if int(checksum) != zlib.crc32(text):
            raise JournalDamaged(f"{path}: the checksum is another one")
        revision, kept = json.loads(text)
        facts = {
            key: Kept(Fact(key, base64.b64decode(value), number))
            for key, (number, value) in kept.items()
        }
    except (ValueError, TypeError) as wrong:
        raise JournalDamaged(f"{path}: {wrong}") from wrong
    return FactsCopy(revision, facts)


def _write(path: Path, text: bytes) -> None:
    """Replace a file durably, whole or not at all."""
    draft = path.with_name(f"{path.name}.draft")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
    with os.fdopen(handle, "wb") as file:
        file.write(b"%d\n" % zlib.crc32(text) + text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
