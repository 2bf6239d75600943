"""How much memory `dejaq serve` may take, and how much a message may have Arrow take at once.

Room: cli; `dejaq serve` alone runs it, before Arrow is loaded: it concerns the whole process.
Holds: what Flight unpacks comes out of a pool that has an end, in pieces that have one; nothing
else is allocated there, so that whoever fills it takes memory from nobody but senders like him.
See: settings.py, `memory_bytes_max`; flight/produce.py, where a batch without memory is refused.

Arrow's Flight server unpacks a compressed batch before anybody can look at it, and takes no option
that bounds it. But its C++ code allocates from Arrow's default pool, which is mimalloc, and
mimalloc takes options from the environment: how much it reserves, that it takes no more, and the
largest piece that it gives. What Python asks Arrow for can come from another pool.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from importlib.metadata import version
from pathlib import Path

from dejaqueue import limits

OF_MEMORY = 0.8
"""What is left is for the system's cache of the journal's files."""
BYTES_MIN = 512 << 20
"""With less, a broker does not start."""
_POOL_PART = 4
_POOL_BYTES_MAX = 8 << 30
_OWN_BYTES = 5 << 20
"""What mimalloc adds before it looks at a size: it has eight sizes for each doubling."""
_STACK_BYTES = 1 << 20
"""Python's threads have as much where the C library is musl; gRPC's need less."""
_PYARROW_MIN = 26
"""Its mimalloc (3.4) has all three options, and was tried."""
_ATTRIBUTES_BYTES = 64
"""More than a pthread_attr_t has."""


def bound_memory(bytes_max: int) -> None:
    """Bound the memory of this process, before Arrow is loaded.

    Args:
        bytes_max: `server.memory_bytes_max`: -1 = OF_MEMORY of what there is, 0 = no bound.
    """
    if sys.platform != "linux":
        return
    there_is = memory_bytes()
    if bytes_max < 0:
        bytes_max = max(int(there_is * OF_MEMORY), BYTES_MIN)
    if bytes_max:
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        bound = bytes_max if most == resource.RLIM_INFINITY else min(bytes_max, most)
        resource.setrlimit(resource.RLIMIT_DATA, (bound, most))
        _keep_stacks_small()
    if int(version("pyarrow").split(".")[0]) >= _PYARROW_MIN:
        part = min(bytes_max or there_is, there_is) // _POOL_PART
        os.environ.update(pool_options(part) | os.environ)


def split_pools() -> None:
    """Have Python's calls of Arrow allocate beside the bounded pool. After `bound_memory`."""
    import pyarrow as pa

    try:
        pa.set_memory_pool(pa.jemalloc_memory_pool())
    except NotImplementedError:  # this build has none
        pa.set_memory_pool(pa.system_memory_pool())


def memory_bytes(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Memory that this process may have: the machine's, or less if its control group says so."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _limit_files(root, own):
        try:
            found = min(found, int(path.read_text()))
        except (OSError, ValueError):  # there is none, or it says "max"
            continue
    return found


def _limit_files(root: Path, own: Path) -> list[Path]:
    """Limits of the control group and of those above it, of both versions."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    paths = []
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root / "memory" if controllers else root
        file = "memory.limit_in_bytes" if controllers else "memory.max"
        place = base / name.strip("/")
        paths += [
            folder / file for folder in (place, *place.parents) if base in (folder, *folder.parents)
        ]
    return paths


def pool_options(byte_count: int) -> dict[str, str]:
    """What the environment has to say so that Flight unpacks into a pool of this size."""
    return {
        "ARROW_DEFAULT_MEMORY_POOL": "mimalloc",
        "MIMALLOC_RESERVE_OS_MEMORY": str(min(byte_count, _POOL_BYTES_MAX)),
        "MIMALLOC_DISALLOW_OS_ALLOC": "1",
        "MIMALLOC_ARENA_MAX_OBJECT_SIZE": str(limits.UNPACKED_BYTES_MAX + _OWN_BYTES),
    }


def _keep_stacks_small() -> None:
    """Each thread reserves its stack, 8 MiB as a rule, which counts as memory it has."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "pthread_setattr_default_np"):
        return
    attributes = ctypes.create_string_buffer(_ATTRIBUTES_BYTES)
    library.pthread_attr_init(attributes)
    library.pthread_attr_setstacksize(attributes, ctypes.c_size_t(_STACK_BYTES))
    library.pthread_setattr_default_np(attributes)
    library.pthread_attr_destroy(attributes)
