"""A bucket: objects by name, each stored whole; in a directory, or in a store.

Room: connections. Knows names and bytes.
Holds: an object is durable and whole when `put_new` or `put` returns; of two who store a new one
under one name at the same time one is told that it is there already.
See: object_bucket.py for S3 and its like; bucket_urls.py; and who keeps something in one:
backup/archive.py, payloads/payload_store.py, journal/records/bucket/store.py.
"""

from __future__ import annotations

import errno
import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from dejaqueue.directories import PRIVATE_FILE, make_directory
from dejaqueue.errors import ResourceExhausted, Unavailable

_DRAFT: Final = ".draft-"
_NAMED_MAX: Final = 10_000
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class StoredObject(NamedTuple):
    """An object as a listing shows it.

    Attributes:
        stored_ms: when it was stored, UTC, by the store's clock.
    """

    name: str
    byte_count: int
    stored_ms: int


class Bucket(ABC):
    """Objects by name. Any thread.

    Attributes:
        url: where it is, without what could be secret.
        signs: whether there are URLs for its objects (`sign`).
    """

    url: str
    signs = False

    @abstractmethod
    def put_new(self, name: str, content: bytes | memoryview) -> bool:
        """Store an object durably; False if there is one of this name, which stays.

        Raises:
            ResourceExhausted: there is no room. Unavailable: whether it is there is not known.
        """

    @abstractmethod
    def put(self, name: str, content: bytes | memoryview) -> None:
        """Store an object durably, in the place of one of this name; it is as young as a new one.
        Raises as `put_new`."""

    def put_ahead(self, name: str, content: bytes | memoryview) -> None:
        """As `put`, of an object that nobody looks for before another one beside it was `put`: with
        that one, and not before, it is durable that it has this name."""
        self.put(name, content)

    @abstractmethod
    def get(self, name: str) -> bytes | None:
        """The content of an object; None if there is none. Raises Unavailable."""

    @abstractmethod
    def get_range(self, name: str, offset: int, byte_count: int) -> bytes | None:
        """As `get`, of a part of the content, as far as there is one; `offset` is within it."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether there is an object of this name. Raises Unavailable."""

    @abstractmethod
    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """Objects whose names begin with a prefix that ends in a slash, or with none; in the order
        of their names. Raises Unavailable."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; one that is not there is fine. Raises Unavailable."""

    @abstractmethod
    def copy(self, names: Iterable[tuple[str, str]]) -> list[str]:
        """Store objects under other names, too, durably, without reading them here.

        Args:
            names: of each the name it has, and the new one. One that is there already under the
                new name may be stored again.

        Returns:
            Names that no object has, of which there is none under the new name either.

        Raises:
            ResourceExhausted: there is no room. Unavailable: what is copied is not known.
        """

    def sign(self, method: str, names: Sequence[str], length_ms: int) -> list[str] | None:
        """URLs by which anybody may GET or PUT these objects for so long; None = there are none
        here."""
        return None

    def signed_headers(self, method: str) -> dict[str, str]:
        """Headers that a request with such a URL has to have, by name."""
        return {}


class DirectoryBucket(Bucket):
    """A bucket that is a directory of this machine, for its user alone.

    Args:
        user: what uses it, for errors.

    >>> import tempfile
    >>> bucket = DirectoryBucket(Path(tempfile.mkdtemp()))
    >>> bucket.put_new("pieces/a", b"1"), bucket.put_new("pieces/a", b"2"), bucket.get("pieces/a")
    (True, False, b'1')
    """

    def __init__(self, root: Path, user: str = "backup") -> None:
        self._root, self._user = root, user
        self.url = root.absolute().as_uri()
        # Others may write here at once, in this process and on other machines.
        self._draft_prefix = f"{_DRAFT}{os.urandom(8).hex()}-"
        self._numbers = itertools.count(1)
        self._named: set[Path] = set()
        """Directories of which it is durable that they are there."""

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as failure:
            if failure.errno in _FULL:
                raise ResourceExhausted(f"{self._user}: no room in {self._root}") from failure
            text = f"{self._user}: {self._root} cannot be used: {failure}"
            raise Unavailable(text, 1_000) from failure

    def put_new(self, name: str, content: bytes | memoryview) -> bool:
        """See Bucket.put_new."""
        path = self._root / name
        with self._translated():
            if path.exists():
                return False
            with self._draft(path, content) as draft:
                try:
                    os.link(draft, path)
                except FileExistsError:
                    return False
            self._sync_names(path.parent)
            return True

    def put(self, name: str, content: bytes | memoryview) -> None:
        """See Bucket.put."""
        path = self._root / name
        with self._translated(), self._draft(path, content) as draft:
            draft.replace(path)
            self._sync_names(path.parent)

    def put_ahead(self, name: str, content: bytes | memoryview) -> None:
        """See Bucket.put_ahead. To sync the directory took more than half of the time of a MiB."""
        path = self._root / name
        with self._translated(), self._draft(path, content) as draft:
            draft.replace(path)

    def _make_directory(self, directory: Path) -> None:
        missing = directory
        while not missing.is_dir() and missing != self._root.parent:
            self._named.discard(missing)
            missing = missing.parent
        if missing != directory:
            make_directory(directory)

    def _sync_names(self, directory: Path) -> None:
        """Make new names in it durable, and those of the directories above it that may be new."""
        _sync(directory)
        while directory not in self._named:
            # Whoever may use a directory may not always read the one it is in.
            with suppress(*([PermissionError] if directory == self._root else [])):
                _sync(directory.parent)
            if len(self._named) >= _NAMED_MAX:
                self._named.clear()
            self._named.add(directory)
            if directory == self._root:
                break
            directory = directory.parent

    @contextmanager
    def _draft(self, path: Path, content: bytes | memoryview) -> Iterator[Path]:
        """A file beside this one, whole; gone when the block ends."""
        self._make_directory(path.parent)
        draft = path.with_name(f"{self._draft_prefix}{next(self._numbers)}")
        try:
            _write(draft, content)
            yield draft
        finally:
            draft.unlink(missing_ok=True)

    def get(self, name: str) -> bytes | None:
        """See Bucket.get."""
        with self._translated():
            try:
                return (self._root / name).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def get_range(self, name: str, offset: int, byte_count: int) -> bytes | None:
        """See Bucket.get_range."""
        with self._translated():
            try:
                with (self._root / name).open("rb") as file:
                    file.seek(offset)
                    return file.read(byte_count)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def has(self, name: str) -> bool:
        """See Bucket.has."""
        with self._translated():
            return (self._root / name).is_file()

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """See Bucket.objects."""
        with self._translated():
            for directory, inner, files in os.walk(self._root / prefix):
                inner.sort()
                for name in sorted(one for one in files if not one.startswith(_DRAFT)):
                    path = Path(directory, name)
                    try:
                        facts = path.stat()
                    except FileNotFoundError:  # deleted since the directory was read
                        continue
                    named = path.relative_to(self._root).as_posix()
                    yield StoredObject(named, facts.st_size, facts.st_mtime_ns // 1_000_000)

    def delete(self, names: Iterable[str]) -> None:
        """See Bucket.delete."""
        with self._translated():
            for name in names:
                with suppress(FileNotFoundError):
                    (self._root / name).unlink()

    def copy(self, names: Iterable[tuple[str, str]]) -> list[str]:
        """See Bucket.copy. Both names are of one file: it is never changed where it is."""
        missing, directories = [], set()
        with self._translated():
            for name, new in names:
                path = self._root / new
                if path.parent not in directories:
                    self._make_directory(path.parent)
                    directories.add(path.parent)
                try:
                    os.link(self._root / name, path)
                except FileExistsError:
                    continue
                except FileNotFoundError:
                    if not path.exists():
                        missing.append(name)
            for directory in directories:
                self._sync_names(directory)
        return missing


def _write(path: Path, content: bytes | memoryview) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync(directory: Path) -> None:
    """Make new names in a directory durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
