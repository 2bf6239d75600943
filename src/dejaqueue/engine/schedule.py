"""The cron entries of a partition: what each is, when it fires next, and what it made last.

Room: engine; pure. Knows nothing of expressions and zones: the times come in with the commands.
Holds: an entry's times change only by a command, and those of its firing by the very command that
    brings the message in: that is what makes each firing happen exactly once (rule 17).
See: commands.py (PutEntries, DropEntries, Enqueue.firings); broker/cron.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dejaqueue.engine.commands import Firing

NEVER = -1


@dataclass(slots=True)
class Planned:
    """A cron entry.

    Attributes:
        spec: what the broker knows of it; not looked into.
        next_ms: the time that it fires for next, -1 = never.
        wake_ms: when the broker has to see to that, -1 = never.
        last_sequence: the message that it made last, -1 = none yet.
    """

    spec: str
    next_ms: int
    wake_ms: int
    last_sequence: int = -1


class Schedule:
    """Entries by name, and by when they are to be looked at.

    Attributes:
        by_name: in the order they were made.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Planned] = {}
        self._names: dict[int, dict[str, None]] = {}
        self._instants: list[int] = []

    def __len__(self) -> int:
        return len(self.by_name)

    def put(self, name: str, spec: str, next_ms: int, wake_ms: int) -> None:
        """Make or change an entry; it keeps its place and its last message. Cost: O(log n)."""
        planned = self.by_name.get(name)
        if planned is None:
            self.by_name[name] = Planned(spec, next_ms, wake_ms)
        else:
            self._unlist(name, planned.wake_ms)
            planned.spec, planned.next_ms, planned.wake_ms = spec, next_ms, wake_ms
        self._list(name, wake_ms)

    def drop(self, name: str) -> bool:
        """Forget an entry; False if there is none of that name."""
        planned = self.by_name.pop(name, None)
        if planned is None:
            return False
        self._unlist(name, planned.wake_ms)
        return True

    def fired(self, firing: Firing, first_sequence: int) -> None:
        """An entry is fired; the rows of its command are messages from `first_sequence` on."""
        name, next_ms, wake_ms, row = firing
        planned = self.by_name.get(name)
        if planned is None:
            return
        self._unlist(name, planned.wake_ms)
        planned.next_ms, planned.wake_ms = next_ms, wake_ms
        if row >= 0:
            planned.last_sequence = first_sequence + row
        self._list(name, wake_ms)

    def next_wake_ms(self) -> int | None:
        """When the first entry is to be looked at; None if none is."""
        self._forget_empty()
        return self._instants[0] if self._instants else None

    def due(self, until_ms: int, limit: int) -> list[str]:
        """Up to `limit` entries that are to be looked at by then, the first first."""
        names: list[str] = []
        seen: list[int] = []
        self._forget_empty()
        while self._instants and self._instants[0] <= until_ms and len(names) < limit:
            instant = heapq.heappop(self._instants)
            seen.append(instant)
            for name in self._names[instant]:
                if len(names) == limit:
                    break
                names.append(name)
            self._forget_empty()
        for instant in seen:
            heapq.heappush(self._instants, instant)
        return names

    def to_values(self) -> list[list[object]]:
        """All entries as JSON values."""
        return [
            [name, planned.spec, planned.next_ms, planned.wake_ms, planned.last_sequence]
            for name, planned in self.by_name.items()
        ]

    @staticmethod
    def from_values(values: Iterable[tuple[Any, ...]]) -> Schedule:
        """The entries that `to_values` gave."""
        schedule = Schedule()
        for name, spec, next_ms, wake_ms, last_sequence in values:
            schedule.put(str(name), str(spec), int(next_ms), int(wake_ms))
            schedule.by_name[str(name)].last_sequence = int(last_sequence)
        return schedule

    def is_whole(self) -> bool:
        """True if every entry is listed at its time, and nothing else is."""
        listed = sorted(self._listed())
        wanted = sorted(
            (planned.wake_ms, name)
            for name, planned in self.by_name.items()
            if planned.wake_ms != NEVER
        )
        return listed == wanted and set(self._names) <= set(self._instants)

    def _listed(self) -> Iterator[tuple[int, str]]:
        for instant, names in self._names.items():
            for name in names:
                yield instant, name

    def _list(self, name: str, wake_ms: int) -> None:
        if wake_ms == NEVER:
            return
        names = self._names.get(wake_ms)
        if names is None:
            names = self._names[wake_ms] = {}
            heapq.heappush(self._instants, wake_ms)
        names[name] = None

    def _unlist(self, name: str, wake_ms: int) -> None:
        if wake_ms != NEVER:
            del self._names[wake_ms][name]  # an instant without names goes when it is the first

    def _forget_empty(self) -> None:
        while self._instants and not self._names[self._instants[0]]:
            del self._names[heapq.heappop(self._instants)]
