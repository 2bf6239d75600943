"""The disk of a simulated machine: in memory, with power cuts, torn writes and failures.

Room: testing. On top of faulty_journal.py.
Holds: what was synced survives; what was not survives in part. A crash of the process alone loses
nothing that was written.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import numpy as np

from dejaqueue.journal.memory import MemoryFileSystem
from dejaqueue.journal.segments.store import DirectoryLock, SegmentStore
from dejaqueue.testing.faulty_journal import FaultyFileSystem
from dejaqueue.testing.simulation.world import World


class Died(BaseException):
    """The process ended here: nothing of it may catch this."""


class SimulatedDisk(FaultyFileSystem):
    """A disk that outlives the processes that use it.

    Attributes:
        dies_at: calls of write and sync until the process dies in the middle of one; None = never.
    """

    def __init__(self, world: World) -> None:
        super().__init__(MemoryFileSystem())
        self._world = world
        self.dies_at: int | None = None

    def heal(self) -> None:
        """Fail no more."""
        self.dies_at = None
        self._planned.clear()
        self._always.clear()

    def count(self, operation: str, path: Path) -> None:
        """Note a call; die if it is time to."""
        if self.dies_at is not None and operation in {"write", "sync", "rename"}:
            self.dies_at -= 1
            if self.dies_at <= 0:
                self.dies_at = None
                raise Died(operation)
        super().count(operation, path)

    def cut_power(self) -> None:
        """Lose what was not synced, in part."""
        generator = np.random.default_rng(self._world.between(0, 1 << 30))
        self.power_cut(generator, self._world.random.random())


class SimulatedStore(SegmentStore):
    """The journals on a simulated disk."""

    def __init__(self, disk: SimulatedDisk, segment_bytes: int = 64 << 10) -> None:
        super().__init__(
            Path(PurePosixPath("disk:")),
            segment_bytes=segment_bytes,
            reserve_bytes=0,
            file_system=disk,
        )

    def _new_identity(self) -> int:
        return 0

    def _take_lock(self) -> DirectoryLock | None:
        return None
