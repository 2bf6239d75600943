"""What `dejaq doctor` looks at where messages are kept: the file system, its room, and its syncs.

Room: cli. Writes one file of 4 KiB, which it removes.
See: docs/guides/choosing-a-journal.md, what a disk has to promise.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING

from dejaqueue.findings import Finding, fine, hurts, look

if TYPE_CHECKING:
    from dejaqueue.settings import BrokerSettings

SYNCS = 20
SLOW_MS = 20.0
"""A send waits for one sync: with more than this, 50 single sends a second and no more."""
_BLOCK_BYTES = 4_096
_FORGETS = ("tmpfs", "ramfs", "rootfs")
_IN_A_CONTAINER = ("overlay", "aufs")
_OVER_A_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs")


def check_disk(settings: BrokerSettings) -> Iterator[Finding]:
    """What there is to say of the journal's directory; nothing, where it is on a server."""
    from dejaqueue.broker.watching import check_room
    from dejaqueue.journal.interface import store_path

    url = settings.journal.url
    is_elsewhere = "://" in url.removeprefix("segment://")
    path = None if is_elsewhere else store_path(url)
    if path is None:
        if not is_elsewhere:
            text = "messages are in memory: they end with the broker"
            yield look("disk", text, "dejaq serve --data DIR")
        return
    path = path.absolute()
    there = next(place for place in (path, *path.parents) if place.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        text = f"{there} cannot be written by user {os.geteuid()}"
        yield hurts("disk", text, f"install -d -m 700 -o {os.geteuid()} {path}")
        return
    if there == path and path.stat().st_mode & 0o077:
        text = f"others on this machine may enter {path}: messages and keys are in it"
        yield look("directory", text, f"chmod 700 {path}")
    yield check_file_system(path, file_system_of(there))
    yield check_room(path, there, settings.journal.reserve_bytes)
    yield check_syncs(path, sync_times_ms(there))


def file_system_of(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The type of the file system that a path is on; "" where the system does not say."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    found, longest = "", -1
    for line in lines:
        fields, _, rest = line.partition(" - ")
        point = Path(fields.split()[4].encode().decode("unicode_escape"))
        if point in (path, *path.parents) and len(point.parts) >= longest:
            found, longest = rest.split()[0], len(point.parts)
    return found


def check_file_system(path: Path, kind: str) -> Finding:
    """Whether what is synced there is kept."""
    if kind in _FORGETS:
        text = f"{path} is in memory ({kind}): messages end with the machine"
        return hurts("file system", text, "--data with a directory on a disk")
    if kind in _IN_A_CONTAINER:
        text = f"{path} is in the container itself ({kind}): messages end with it"
        return hurts("file system", text, "mount a volume there")
    if kind in _OVER_A_NETWORK:
        text = f"{path} is on another machine ({kind}): each sync goes there and back"
        return look("file system", text, "a disk here, or three brokers with --cluster")
    return fine("file system", f"{path} is on {kind or 'an unknown file system'}")


def sync_times_ms(directory: Path, count: int = SYNCS) -> list[float]:
    """How long each of `count` syncs of 4 KiB took, milliseconds."""
    with tempfile.TemporaryFile(dir=directory) as file:
        times_ms = []
        for _ in range(count):
            os.pwrite(file.fileno(), os.urandom(_BLOCK_BYTES), 0)
            start_ns = perf_counter_ns()
            os.fdatasync(file.fileno())
            times_ms.append((perf_counter_ns() - start_ns) / 1e6)
    return times_ms


def check_syncs(path: Path, times_ms: list[float]) -> Finding:
    """Whether syncs are fast enough for sends that wait for one."""
    half, worst = statistics.median(times_ms), max(times_ms)
    shown = f"a sync of 4 KiB takes {half:.2f} ms (half of {len(times_ms)}), {worst:.2f} at most"
    if half > SLOW_MS:
        mend = f"a faster disk for {path}, or fewer and larger batches"
        return hurts("disk sync", f"{shown}: every send waits for one", mend)
    return fine("disk sync", shown)
