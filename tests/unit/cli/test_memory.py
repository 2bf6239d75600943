"""How much memory a broker may take: what the machine and its control groups say.

Covered: the figure, what is set in a process. Not covered: bombs at a broker (tests/hostile).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dejaqueue.cli.memory import BYTES_MIN, memory_bytes

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
GIB = 1 << 30


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_control_groups_it_is_the_machines(tmp_path: Path) -> None:
    assert memory_bytes(tmp_path, tmp_path / "none") == MACHINE


@pytest.mark.parametrize(
    ("lines", "file"),
    [
        ("0::/a/b\n", "a/b/memory.max"),
        ("0::/a/b\n", "a/memory.max"),
        ("0::/\n", "memory.max"),
        ("3:cpu,memory:/a\n1:cpu:/b\n", "memory/a/memory.limit_in_bytes"),
        ("3:memory:/gone/with/the/namespace\n", "memory/memory.limit_in_bytes"),
    ],
)
def test_the_least_limit_of_the_groups_counts(tmp_path: Path, lines: str, file: str) -> None:
    put(tmp_path / "own", lines)
    put(tmp_path / "memory.max", "max\n")
    put(tmp_path / "b/memory.limit_in_bytes", "1\n")
    put(tmp_path / file, f"{GIB // 2}\n")
    assert memory_bytes(tmp_path, tmp_path / "own") == min(MACHINE, GIB // 2)


_LOOK = """
import json, resource, sys, threading
from pathlib import Path
from dejaqueue.cli.memory import bound_memory, split_pools
assert "pyarrow" not in sys.modules
bound_memory(int(sys.argv[1]))
split_pools()
import pyarrow as pa
def tries(pool, size):
    try:
        return pa.allocate_buffer(size, memory_pool=pool).size
    except MemoryError:
        return 0
def reserved():
    [line] = [l for l in Path("/proc/self/status").read_text().splitlines() if "VmData" in l]
    return int(line.split()[1])
before, bell = reserved(), threading.Event()
threads = [threading.Thread(target=bell.wait) for _ in range(20)]
for thread in threads: thread.start()
stacks = reserved() - before
bell.set()
flight = pa.mimalloc_memory_pool()
print(json.dumps({
    "limit": resource.getrlimit(resource.RLIMIT_DATA)[0],
    "flight": [bool(tries(flight, size << 20)) for size in (1, 30, 31, 32, 64)],
    "own": bool(tries(None, 64 << 20)),
    "stack_kb": stacks // 20,
}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="bounds are Linux's")
@pytest.mark.parametrize("bytes_max", [-1, 0, GIB])
def test_what_flight_unpacks_comes_in_pieces_that_have_an_end(bytes_max: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOOK, str(bytes_max)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found = json.loads(done.stdout)
    wanted = {-1: max(int(memory_bytes() * 0.8), BYTES_MIN), 0: -1, GIB: GIB}[bytes_max]
    assert found["limit"] == wanted
    assert found["flight"] == [True, True, True, False, False]
    assert found["own"]
    assert found["stack_kb"] < 2_000 or bytes_max == 0
