"""Ends what a program has started when the program itself has ended, killed or not.

    from dev.reaper import start_reaper
    start_reaper()          at the start of a test run, a benchmark, a storm of kills

A mark in the environment is inherited by every process below, however deep, whatever its session
or its user. The reaper is a process of its own: it waits until the program has ended, looks through
the system for the mark and ends who has it. So nobody who starts a server, a JVM or a browser has
to think of it.

Room: dev. Standard library alone: it runs as a script, too.
Holds: nothing that bears the mark outlives the program by more than TERM_SECONDS and a moment; a
process without the mark that is no child of one with it is never touched.
See: tests/dev/test_reaper.py.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

MARK = "ENDS_WITH_PROCESS_"
TERM_SECONDS = 3.0
"""How long a process may take to stop in good order, before it is killed."""
GIVE_UP_SECONDS = 30.0
"""A process that the kernel cannot end (a dead disk) does not keep the reaper."""
_LOOK_SECONDS = 0.05


def start_reaper() -> None:
    """From now on, whatever this process starts ends with it. Twice is fine.

    Programs below may call it as well: each has a mark and a reaper of its own.
    """
    mark = MARK + str(os.getpid())
    if os.environ.get(mark) == _birth(os.getpid()):
        return
    environment_of_reaper = {"LC_ALL": "C"}  # without marks: the reaper of a parent leaves it alone
    # Opened here, so that it means this process even if that ends before the reaper runs.
    ending = os.pidfd_open(os.getpid())
    os.set_inheritable(ending, True)
    silent = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    # No Popen: that would warn at the end that the reaper still runs, as it has to.
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", __file__, str(ending), mark, _birth(os.getpid())],
        environment_of_reaper,
        file_actions=silent,
        setsid=True,  # neither Ctrl-C nor the end of a terminal reaches it
    )
    os.close(ending)
    os.environ[mark] = _birth(os.getpid())


def marks() -> dict[str, str]:
    """The marks of this process, for a child whose environment is made from nothing."""
    return {name: value for name, value in os.environ.items() if name.startswith(MARK)}


def _birth(pid: int) -> str:
    """When a process began, in ticks since boot: tells it from a later one with its number."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _find(mark: str) -> list[int]:
    """Living processes with this variable, and all below them."""
    wanted, found = b"\0" + mark.encode() + b"\0", set()
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            has_mark = wanted in b"\0" + (folder / "environ").read_bytes()
        except OSError:  # gone meanwhile, or not ours to look at
            continue
        if state == "Z":
            continue
        children.setdefault(int(parent), []).append(pid)
        if has_mark:
            found.add(pid)
    # A program that writes its title over its environment is known by its parent.
    below = list(found)
    while below:
        new = [child for child in children.get(below.pop(), []) if child not in found]
        found.update(new)
        below.extend(new)
    return sorted(found)


def _end_all(mark: str) -> None:
    """End whoever bears the mark; look again until there is nobody."""
    began = time.monotonic()
    asked: set[int] = set()
    while time.monotonic() < began + GIVE_UP_SECONDS:
        found = [pid for pid in _find(mark) if pid != os.getpid()]
        if not found:
            return
        must_end = time.monotonic() > began + TERM_SECONDS
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                if must_end:
                    os.kill(pid, signal.SIGKILL)
                elif pid not in asked:
                    os.kill(pid, signal.SIGTERM)
                    os.kill(pid, signal.SIGCONT)  # tests pause processes, too
        asked.update(found)
        threading.Event().wait(_LOOK_SECONDS)


def _main() -> None:
    ending, mark, birth = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    select.select([ending], [], [])
    _end_all(f"{mark}={birth}")


if __name__ == "__main__":
    _main()
