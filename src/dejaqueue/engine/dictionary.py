"""Dictionary: texts of messages (groups, tags, senders) as small numbers, which are used again.

Room: engine; pure, memory only.
Holds: code 0 is the empty text; a text has one code while a live message has it; which code a new
    text gets depends on the commands alone.
See: table.py, whose rows hold codes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from dejaqueue.engine.arrays import Int32s, Int64s, Words

_SWEEP_MIN = 1_024

Forget: TypeAlias = Callable[[Int64s], Int64s]
"""Codes that no live message has -> those that nobody else needs to remember."""


def of_runs(runs: Sequence[tuple[str, int]]) -> Words:
    """Texts and how many rows in a row have each, as a dictionary of those that are used.

    >>> of_runs([("b", 2), ("a", 1), ("b", 1)]).names
    ('b', 'a')
    """
    counts = np.array([count for _, count in runs], dtype=np.int64)
    places: dict[str, int] = {}
    codes = [places.setdefault(name, len(places)) for name, count in runs if count]
    return Words(tuple(places), np.repeat(np.array(codes, dtype=np.int32), counts[counts > 0]))


def to_runs(words: Words) -> list[tuple[str, int]]:
    """What `of_runs` takes. Cost: O(rows), O(runs) objects."""
    indices = words.indices
    if len(words.names) == 1:
        return [(words.names[0], indices.size)] if indices.size else []
    starts = np.flatnonzero(np.diff(indices, prepend=np.int32(-1)))
    counts = np.diff(starts, append=indices.size)
    return [
        (words.names[index], count)
        for index, count in zip(indices[starts].tolist(), counts.tolist(), strict=True)
    ]


class Dictionary:
    """Names and codes.

    Attributes:
        names: name by code; "" also for codes that are free.
        lives: live messages by code, shape (at least len(names),); that of code 0 means nothing.
            Senders are not counted: `forget` looks for them when one has to go.
        version: rises whenever a code gets another name.
        fresh: codes that got a name since somebody cleared this.
    """

    def __init__(self) -> None:
        self.names: list[str] = [""]
        self.lives: Int64s = np.zeros(16, dtype=np.int64)
        self._by_name: dict[str, int] = {"": 0}
        self._free: list[int] = []
        self._sweep_at = _SWEEP_MIN
        self.version = 0
        self.fresh: list[int] = []

    def __len__(self) -> int:
        return len(self.names)

    def code(self, name: str) -> int:
        """The code of a name, -1 if it has none."""
        return self._by_name.get(name, -1)

    def codes(self, words: Words, forget: Forget | None = None) -> Int32s:
        """The code of each row, shape (n,); names that are new get one."""
        return self.codes_of(words.names, forget)[words.indices]

    def codes_of(self, names: tuple[str, ...], forget: Forget | None = None) -> Int32s:
        """The code of each name; those that are new get one."""
        by_name = self._by_name
        codes = [by_name.get(name, -1) for name in names]
        if -1 in codes:
            if not self._free and len(self.names) >= self._sweep_at:
                self.sweep(forget)
            codes = [by_name[name] if name in by_name else self._add(name) for name in names]
        return np.array(codes, dtype=np.int32)

    def _add(self, name: str) -> int:
        self.version += 1
        if self._free:
            code = self._free.pop()
            self.names[code] = name
        else:
            code = len(self.names)
            self.names.append(name)
            if code == self.lives.size:
                self.lives = np.concatenate([self.lives, np.zeros(code, dtype=np.int64)])
        self._by_name[name] = code
        self.fresh.append(code)
        return code

    def sweep(self, forget: Forget | None = None) -> None:
        """Free the codes of names that no live message has."""
        names = self.names
        codes = np.flatnonzero(self.lives[: len(names)] == 0)
        codes = codes[[bool(names[code]) for code in codes.tolist()]]
        if forget is not None and codes.size:
            codes = forget(codes)
        for code in codes.tolist():
            del self._by_name[names[code]]
            names[code] = ""
        # Sorted, so that the lowest free code is the next one, in every replay.
        self._free = sorted([*self._free, *codes.tolist()], reverse=True)
        self._sweep_at = max(_SWEEP_MIN, 2 * len(self._by_name))

    def come(self, codes: Int32s) -> None:
        """Messages of these codes, one for each row, came in."""
        np.add.at(self.lives, codes, 1)

    def go(self, codes: Int32s) -> None:
        """Messages of these codes, one for each row, are done."""
        np.subtract.at(self.lives, codes, 1)

    def counts(self) -> tuple[list[str], Int64s]:
        """Names that live messages have, but for the empty one, and how many have each."""
        lives = self.lives[: len(self.names)]
        codes = np.flatnonzero(lives[1:] > 0) + 1
        return [self.names[code] for code in codes.tolist()], lives[codes]

    def to_values(self) -> list[Any]:
        """What a snapshot stores; live counts are the table's."""
        return [self.names, self._free, self._sweep_at]

    @staticmethod
    def from_values(values: list[Any]) -> Dictionary:
        """The dictionary of `to_values`, without live counts. Raises ValueError, TypeError."""
        dictionary = Dictionary()
        dictionary.names = [str(name) for name in values[0]]
        dictionary._free = [int(code) for code in values[1]]
        dictionary._sweep_at = int(values[2])
        dictionary._by_name = {name: code for code, name in enumerate(dictionary.names) if name}
        dictionary._by_name[""] = 0
        dictionary.lives = np.zeros(max(16, len(dictionary.names)), dtype=np.int64)
        return dictionary
