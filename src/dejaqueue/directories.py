"""Directories and files that are for the broker's own user alone.

Room: vocabulary; imports nothing of the project.
Holds: what is made here nobody else can enter or read, whatever the umask; what was there before is
left as it is, since whoever made it may have meant it so, and is told of.
See: docs/guides/security.md, "The data directory".
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

PRIVATE_DIRECTORY = 0o700
PRIVATE_FILE = 0o600

log = logging.getLogger("dejaqueue.directories")


def make_directory(path: Path) -> None:
    """Make a directory, and those above it that are missing, all for this user alone."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for one in reversed(missing):
        one.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)


def make_file(path: Path) -> None:
    """Make an empty file for this user alone, unless there is one.

    A file that is there is not even opened: closing it would end SQLite's locks on it, which belong
    to the process and not to whoever took them.
    """
    try:
        os.mknod(path, stat.S_IFREG | PRIVATE_FILE)
    except FileExistsError:
        return
    except PermissionError:  # not every system lets every user make files in this way
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE))


def warn_if_open(path: Path) -> None:
    """Say so if others than its owner can enter a directory that has been there."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return
    if mode & 0o077:
        log.warning(
            "others on this machine may enter %s (mode %04o): messages and keys are in it; "
            "`chmod 700 %s` unless that is meant",
            path,
            mode,
            path,
        )
