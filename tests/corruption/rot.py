"""Bit flips on what a stopped broker left: each is told, mended, or changes nothing.

A flip is *refused* if the broker says which file is damaged, *mended* if it says so and goes on
with all that there was (an older snapshot and the entries since), and *harmless* if state and rows
are what they were. Anything else is *wrong*: bytes that nobody sent, silence about a loss, and also
a broker that cuts off what was acknowledged and says so: a flipped bit is no torn append.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dejaqueue.errors import DejaQError, JournalDamaged
from dejaqueue.journal.memory import MemoryFileSystem
from tests.corruption.images import SEGMENT_BYTES, Started, look, start
from tests.crash.disk_copies import bytes_of, copied


class Outcome(Enum):
    """What came of a flip."""

    REFUSED = "refused"
    MENDED = "mended"
    HARMLESS = "harmless"
    WRONG = "wrong"


@dataclass
class Tally:
    """What came of all flips.

    Attributes:
        by_kind: of a file, how often what.
        wrong: the first that went wrong, in words.
        harmless: file and bytes of those that changed nothing.
    """

    by_kind: dict[str, Counter[Outcome]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    harmless: list[tuple[Path, int]] = field(default_factory=list)

    def add(self, path: Path, at: int, outcome: Outcome, words: str) -> None:
        """Count one."""
        self.by_kind.setdefault(kind_of(path), Counter())[outcome] += 1
        if outcome is Outcome.WRONG:
            self.wrong.append(f"{path}, byte {at}: {words}")
        elif outcome is Outcome.HARMLESS:
            self.harmless.append((path, at))

    def text(self) -> str:
        """A line for each kind of file."""
        lines = []
        for kind, counts in sorted(self.by_kind.items()):
            parts = ", ".join(f"{one.value} {counts[one]:,}" for one in Outcome if counts[one])
            lines.append(f"{kind}: {counts.total():,} flips; {parts}")
        return "\n".join([*lines, *self.wrong[:10]])


def kind_of(path: Path) -> str:
    """What a file or a record is."""
    if path.parts[0] == "records":
        return "replicated record"
    if path.parts[0] == "objects":
        return "replicated snapshot" if path.parts[1] == "topics" else "replicated document"
    if path.parent.name == "data-keys":
        return "data key"
    if path.parent.name == "parts":
        return "sealed run" if path.name.startswith("run-") else "snapshot part"
    return {".segment": "segment", ".manifest": "snapshot manifest"}.get(path.suffix, path.name)


class Image(Protocol):
    """What a broker left."""

    def contents(self) -> dict[Path, npt.NDArray[np.uint8]]:
        """All that has something in it, by name."""
        ...

    def start(self, path: Path | None = None, at: int = 0, bit: int = 0) -> Started:
        """A broker on a copy; with one bit flipped, if a path is given. Raises DejaQError."""
        ...


class FileImage:
    """Files on a disk."""

    def __init__(
        self,
        files: MemoryFileSystem,
        segment_bytes: int = SEGMENT_BYTES,
        *,
        is_encrypted: bool = False,
    ) -> None:
        self._files = files
        self._segment_bytes, self._is_encrypted = segment_bytes, is_encrypted

    def contents(self) -> dict[Path, npt.NDArray[np.uint8]]:
        """See Image."""
        known = self._files._contents
        paths = sorted(path for path, content in known.items() if content.byte_count)
        return {path: bytes_of(self._files, path) for path in paths}

    def start(self, path: Path | None = None, at: int = 0, bit: int = 0) -> Started:
        """See Image."""
        disk = copied(self._files)
        if path is not None:
            bytes_of(disk, path)[at] ^= 1 << bit
        return start(disk, self._segment_bytes, is_encrypted=self._is_encrypted)


class Rot:
    """Flips bits of an image, one at a time, and looks what a broker makes of it."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._whole = look(image.start())
        self.tally = Tally()

    def flip(self, path: Path, at: int, bit: int) -> Outcome:
        """Flip one bit."""
        outcome, words = self._outcome(path, at, bit)
        self.tally.add(path, at, outcome, words)
        return outcome

    def _outcome(self, path: Path, at: int, bit: int) -> tuple[Outcome, str]:
        try:
            started = self._image.start(path, at, bit)
            seen = look(started)
        except JournalDamaged as damage:
            return Outcome.REFUSED, str(damage)
        except DejaQError as other:
            return Outcome.WRONG, f"not called damage: {other!r}"
        told = _told(started)
        same = seen == self._whole
        if same and told:
            return Outcome.MENDED, told
        if same:
            return Outcome.HARMLESS, ""
        return Outcome.WRONG, f"another state, and the broker says {told!r}"


def _told(started: Started) -> str:
    """What the journals say about how they were found."""
    catalogue = started.broker.alone
    texts = [] if catalogue is None else list(catalogue.repairs)
    for runtime in map(started.broker.runtime, started.broker.serving()):
        for partition in runtime.partitions:
            texts += partition.core.journal.repairs
    return "; ".join(texts)


def spread_flips(
    image: Image, count: int, seed: int, *, only: str = ""
) -> Iterator[tuple[Path, int, int]]:
    """Flips over all there is; each kind of it gets its share, however large it is.

    Three of four hit a byte that is not zero: most of a new segment is room that nobody wrote.
    """
    random = np.random.default_rng(seed)
    kinds: dict[str, list[Path]] = {}
    contents = image.contents()
    for path in contents:
        if not only or kind_of(path) == only:
            kinds.setdefault(kind_of(path), []).append(path)
    names = sorted(kinds)
    written = {path: np.flatnonzero(content) for path, content in contents.items()}
    for number in range(count):
        paths = kinds[names[number % len(names)]]
        path = paths[int(random.integers(len(paths)))]
        size = len(contents[path])
        at = int(random.integers(size))
        if written[path].size and random.random() < 0.75:
            at = int(random.choice(written[path]))
        yield path, at, int(random.integers(8))
