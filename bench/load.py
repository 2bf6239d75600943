"""The messages that are measured: the same random payloads and due times for every system.

Room: bench. Makes them before the clock starts.
Holds: equal seeds give equal messages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

PAYLOAD_BYTES = 100
BATCH_ROWS = 1_000
DAY_MS = 86_400_000
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Load:
    """Messages to send.

    Attributes:
        block: the payloads one behind the other, each PAYLOAD_BYTES long.
        dues_ms: int64 array, shape (rows,).
    """

    block: bytes
    dues_ms: Int64s

    @property
    def rows(self) -> int:
        """How many messages."""
        return len(self.dues_ms)

    def payloads(self) -> list[bytes]:
        """The payloads as Python bytes, for clients that want them so."""
        size = PAYLOAD_BYTES
        return [self.block[at : at + size] for at in range(0, len(self.block), size)]


def random_load(rows: int, from_ms: int, to_ms: int, seed: int) -> Load:
    """Messages of random bytes, due at random times in [from_ms, to_ms)."""
    random = np.random.default_rng(seed)
    return Load(random.bytes(rows * PAYLOAD_BYTES), random.integers(from_ms, to_ms, rows))


def even_load(rows: int, from_ms: int, per_second: int, seed: int) -> Load:
    """Messages of random bytes, due one after the other at an even rate from `from_ms` on."""
    random = np.random.default_rng(seed)
    dues_ms = from_ms + np.arange(rows, dtype=np.int64) * 1_000 // per_second
    return Load(random.bytes(rows * PAYLOAD_BYTES), dues_ms)


def far_load(rows: int, now_ms: int, seed: int) -> Load:
    """Random due times from one hour ahead to a day after that: none comes due while measuring."""
    return random_load(rows, now_ms + HOUR_MS, now_ms + HOUR_MS + DAY_MS, seed)


def past_load(rows: int, now_ms: int, seed: int) -> Load:
    """Random due times over the day before: all are due."""
    return random_load(rows, now_ms - DAY_MS, now_ms - 1_000, seed)
