"""What tasks note: which one ran, in which process, and when; read back as an array.

Room: bench. One write of 24 bytes to a file that is only appended to: whole, from any process.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

FILE = "BENCH_NOTES"
"""Environment variable: the file."""
_LAYOUT = struct.Struct("<qqq")
_COLUMNS = 3
_descriptors: list[int] = []


def note(number: int) -> None:
    """Note that a task runs, with the process and the time in µs."""
    if not _descriptors:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        _descriptors.append(os.open(os.environ[FILE], flags, 0o600))
    os.write(_descriptors[0], _LAYOUT.pack(number, os.getpid(), time.time_ns() // 1_000))  # noqa: TID251


def read(path: Path) -> npt.NDArray[np.int64]:
    """What was noted: int64 array, shape (n, 3): number, process, µs; in order of the writes."""
    content = path.read_bytes() if path.exists() else b""
    whole = len(content) // _LAYOUT.size * _LAYOUT.size
    return np.frombuffer(content[:whole], dtype="<i8").reshape(-1, _COLUMNS)


def without_first_call(noted: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The notes without that of the sender's first call, which is number 0 as its first task is.

    With workers that run already it need not be the first one.

    >>> without_first_call(np.array([[3, 7, 5], [0, 7, 6], [0, 7, 8]])).tolist()
    [[3, 7, 5], [0, 7, 8]]
    """
    return np.delete(noted, np.flatnonzero(noted[:, 0] == 0)[:1], axis=0)


def count(path: Path) -> int:
    """How many were noted."""
    return path.stat().st_size // _LAYOUT.size if path.exists() else 0
