"""A broker's own copy of the API keys of its cluster, in its data directory.

Room: cluster.
Holds: it is whole or as it was, and for this user alone. It is no authority: what it says is put
together with what the cluster says, so that a document that was lost or forged while this broker
was stopped neither opens the cluster nor brings back what was revoked.
See: access/key_ring.py, `open`; shared_keys.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dejaqueue.access.key_ring import Change, KeyRing
from dejaqueue.access.seal import Seal
from dejaqueue.clock import SystemClock
from dejaqueue.cluster.secret import FILE as SECRET
from dejaqueue.cluster.secret import kept_secret, read_secret
from dejaqueue.directories import make_directory
from dejaqueue.errors import Unavailable
from dejaqueue.journal.segments.files import FileSystem, replace_file
from dejaqueue.journal.segments.store import DirectoryLock


class KeyCopy:
    """Documents (key_ring.Documents) as files of a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def _path(self, name: str) -> Path:
        return self._directory / f"cluster-{name}.json"

    def load_document(self, name: str) -> str | None:
        """What is kept, None at first. Raises Unavailable."""
        path = self._path(name)
        try:
            return path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        except OSError as failure:
            raise Unavailable(f"{path} could not be read: {failure}") from failure

    def change_document(self, name: str, change: Change) -> None:
        """Keep what `change` makes of it. Raises Unavailable."""
        text = change(self.load_document(name))
        if text is None:
            return
        try:
            make_directory(self._directory)
            replace_file(FileSystem(), self._path(name), text.encode(), private=True)
        except OSError as failure:
            raise Unavailable(f"{self._path(name)} could not be kept: {failure}") from failure


def is_of_cluster(directory: Path) -> bool:
    """True for the data directory of a broker that keeps its journals with others'."""
    return any((directory / name).exists() for name in (SECRET, "jetstream", "cluster-keys.json"))


@contextmanager
def opened_copy(directory: Path, secret_file: str) -> Iterator[KeyRing]:
    """The keys in the copy of a broker that is stopped, to be changed.

    What is changed holds in the cluster when that broker is back: then it is put together with what
    the others know.

    Args:
        secret_file: of the cluster; "" = its secret is kept in the directory.

    Raises:
        Locked: the broker runs. JournalDamaged: the secret is another one. BadRequest, Refused.
    """
    secret = read_secret(secret_file) if secret_file else kept_secret(directory)
    make_directory(directory / "mirror")
    lock = DirectoryLock(directory / "mirror")
    try:
        ring = KeyRing(SystemClock())
        ring.open(KeyCopy(directory), Seal(secret))
        yield ring
    finally:
        lock.release()
