"""A bucket in memory that tests see into: how many requests it got, and how long each took."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator

from dejaqueue.connections.bucket import Bucket, StoredObject
from dejaqueue.errors import Unavailable


class MemoryBucket(Bucket):
    """Objects of this process.

    Args:
        answer_ms: each request takes so long.

    Attributes:
        requests: how many came, by the verb.
        is_away: every request fails.
        ignores_condition: as a store that was never told of it.
    """

    url = "memory"

    def __init__(self, answer_ms: int = 0) -> None:
        self.requests: Counter[str] = Counter()
        self.is_away = self.ignores_condition = False
        self.content: dict[str, bytes] = {}
        self._answer_ms = answer_ms
        self._guard = threading.Lock()

    def _ask(self, verb: str) -> None:
        with self._guard:
            self.requests[verb] += 1
        if self._answer_ms:
            threading.Event().wait(self._answer_ms / 1_000)  # as long as a real one takes
        if self.is_away:
            raise Unavailable("the bucket is away")

    def put_new(self, name: str, content: bytes | memoryview) -> bool:
        self._ask("put")
        with self._guard:
            if name in self.content and not self.ignores_condition:
                return False
            self.content[name] = bytes(content)
            return True

    def put(self, name: str, content: bytes | memoryview) -> None:
        self._ask("put")
        with self._guard:
            self.content[name] = bytes(content)

    def get(self, name: str) -> bytes | None:
        self._ask("get")
        return self.content.get(name)

    def get_range(self, name: str, offset: int, byte_count: int) -> bytes | None:
        self._ask("get")
        content = self.content.get(name)
        return None if content is None else content[offset : offset + byte_count]

    def has(self, name: str) -> bool:
        self._ask("get")
        return name in self.content

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        self._ask("list")
        with self._guard:
            found = sorted(self.content.items())
        yield from (StoredObject(n, len(c), 0) for n, c in found if n.startswith(prefix))

    def delete(self, names: Iterable[str]) -> None:
        self._ask("delete")
        with self._guard:
            for name in names:
                self.content.pop(name, None)

    def copy(self, names: Iterable[tuple[str, str]]) -> list[str]:
        raise NotImplementedError
