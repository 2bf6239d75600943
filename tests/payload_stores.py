"""A payload store that fails when a test wants it to, and what tests of payloads share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from dejaqueue.connections.bucket import Bucket, DirectoryBucket, StoredObject
from dejaqueue.errors import Unavailable
from dejaqueue.payloads.payload_store import PayloadStore


class FaultyBucket(Bucket):
    """A bucket in a directory.

    Attributes:
        is_away: every call fails.
        fails_get: whole objects cannot be read.
        before_put: called with the name of what is stored.
    """

    def __init__(self, root: Path) -> None:
        self._bucket = DirectoryBucket(root, "payloads")
        self.root, self.url = root, self._bucket.url
        self.is_away = self.fails_get = False
        self.before_put: Callable[[str], None] = lambda _: None
        self.calls = 0

    def _check(self) -> None:
        self.calls += 1
        if self.is_away:
            raise Unavailable("payloads: 503 Slow Down", 1_000)

    def put_new(self, name: str, content: bytes | memoryview) -> bool:
        self._check()
        return self._bucket.put_new(name, content)

    def put(self, name: str, content: bytes | memoryview) -> None:
        self.before_put(name)
        self._check()
        self._bucket.put(name, content)

    def get(self, name: str) -> bytes | None:
        self._check()
        if self.fails_get:
            raise Unavailable("payloads: 503 Slow Down", 1_000)
        return self._bucket.get(name)

    def get_range(self, name: str, offset: int, byte_count: int) -> bytes | None:
        self._check()
        return self._bucket.get_range(name, offset, byte_count)

    def has(self, name: str) -> bool:
        self._check()
        return self._bucket.has(name)

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        self._check()
        return self._bucket.objects(prefix)

    def delete(self, names: Iterable[str]) -> None:
        self._check()
        self._bucket.delete(names)

    def copy(self, names: Iterable[tuple[str, str]]) -> list[str]:
        self._check()
        return self._bucket.copy(names)

    @property
    def files(self) -> list[Path]:
        """What is stored."""
        return sorted(path for path in self.root.rglob("*") if path.is_file())


class Elapsed:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.us = 0

    def __call__(self) -> int:
        return self.us


def store_in(root: Path) -> tuple[PayloadStore, FaultyBucket, Elapsed]:
    """A store whose bucket fails, and whose time goes on, when a test says so."""
    bucket, elapsed = FaultyBucket(root), Elapsed()
    return PayloadStore(bucket, elapsed), bucket, elapsed
