"""What a figure was measured on: processor, memory, kernel, file system, versions, commit.

Room: bench. Reads /proc and asks git; writes nothing.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dejaqueue.clock import SystemClock

PACKAGES = ("pyarrow", "numpy", "redis", "hiredis")


def facts(folder: Path) -> dict[str, Any]:
    """The facts of this machine and this moment, for measurements that write to `folder`."""
    clock = SystemClock()
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "file_system": file_system(folder),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "date": datetime.fromtimestamp(clock.now_ms() / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def file_system(folder: Path) -> str:
    """Type of the file system that holds a folder, as the kernel names it."""
    best, kind = "", "unknown"
    resolved = str(folder.resolve())
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, this_kind, *_ = line.split()
        inside = resolved == mount or resolved.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, this_kind
    return kind


def memory_bytes(pid: int) -> dict[str, int]:
    """Resident memory of a process: `rss`, of which `anonymous` and `file` (mapped pages)."""
    found = {"rss": 0, "anonymous": 0, "file": 0}
    fields = {"VmRSS": "rss", "RssAnon": "anonymous", "RssFile": "file"}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in fields:
            found[fields[name]] = int(rest.split()[0]) * 1024
    return found


def written_bytes(pid: int) -> int:
    """Bytes that a process has had written to disks, by the kernel's count."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "write_bytes":
            return int(value)
    return 0


def processor_seconds(pid: int) -> float:
    """Processor time of another process with the children that it has, and of this one with the
    children that it waited for."""
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    ticks = 0
    for one in (pid, *_children_of(pid)):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return own + ticks / os.sysconf("SC_CLK_TCK")


def family_seconds(pids: Iterable[int]) -> float:
    """Processor time of processes, with all that they have started, whether it has ended or not.

    What has ended counts once it was waited for.
    """
    ticks, seen, left = 0, set[int](), list(pids)
    while left:
        pid = left.pop()
        if pid in seen:
            continue
        seen.add(pid)
        with suppress(OSError):  # it has ended since it was listed
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])
            left += _children_of(pid)
    return ticks / os.sysconf("SC_CLK_TCK")


def _children_of(pid: int) -> list[int]:
    """Processes that any of its threads has started."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has ended since it was listed
            found += map(int, (thread / "children").read_text().split())
    return found


class OtherWork:
    """How much of the machine other programs used since this object was made.

    Programs of ours count as ours once they have ended and were waited for.
    """

    def __init__(self) -> None:
        self._busy, self._own = _busy_seconds(), _own_seconds()
        self._start = time.perf_counter()

    def percent(self) -> float:
        """Share of all cores' time, in percent; kernel threads and a busy host are in it too."""
        spent = _busy_seconds() - self._busy - (_own_seconds() - self._own)
        whole = (time.perf_counter() - self._start) * (os.cpu_count() or 1)
        return round(max(0.0, 100 * spent / whole), 1)


def _busy_seconds() -> float:
    """Time that all cores were busy, or were wanted and not given, since the start."""
    first = Path("/proc/stat").read_text().partition("\n")[0]
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / float(os.sysconf("SC_CLK_TCK"))


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used."""
    # The name in parentheses may hold spaces: count fields from behind it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


MEASURED = ("bench/results", "docs/benchmarks.md", "README.md")
"""What a run writes: the next question of the same run is still measured at a clean commit."""


def _commit() -> str:
    """The commit, with `-dirty` behind it if anything but figures was changed since."""
    root = Path(__file__).resolve().parent.parent
    apart = [f":!{path}" for path in MEASURED]
    try:
        name = _git(root, "rev-parse", "--short=12", "HEAD")
        changed = _git(root, "status", "--porcelain", "--", ".", *apart)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{name}-dirty" if changed else name


def _git(root: Path, *words: str) -> str:
    found = subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, timeout=10, check=True
    )
    return found.stdout.strip()
