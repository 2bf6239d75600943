"""Watches a program's source files, so that a worker in development runs what was saved last.

Room: tasks.worker. Looks at times of files; for development alone.
Holds: folders that begin with a dot, and those of installed packages, are not looked at.
See: `dejaq worker --reload`.
"""

from __future__ import annotations

import os
from pathlib import Path

from dejaqueue.tasks.worker.board import now_us

LOOK_US = 500_000
_LEFT_OUT = {"__pycache__", "node_modules", "site-packages", "venv"}


class SourceWatch:
    """The Python files below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._times = self._look()
        self._looked_us = now_us()

    def has_changed(self) -> bool:
        """True if a file is newer, new or gone since this was asked last; looks twice a second."""
        if now_us() - self._looked_us < LOOK_US:
            return False
        times, self._looked_us = self._look(), now_us()
        changed = times != self._times
        self._times = times
        return changed

    def _look(self) -> dict[str, int]:
        times: dict[str, int] = {}
        for folder, folders, files in os.walk(self._folder):
            folders[:] = [one for one in folders if one not in _LEFT_OUT and one[0] != "."]
            for name in files:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    try:
                        times[path] = os.stat(path).st_mtime_ns
                    except OSError:
                        continue  # it is gone already
        return times
