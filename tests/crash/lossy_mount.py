"""Mounts a lossy disk (lossy_disk.py), where this machine can; and cuts its power."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import dejaqueue
from tests.patience import PATIENCE_SECONDS


def missing() -> str:
    """What this machine lacks; "" = nothing."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse"
    if importlib.util.find_spec("mfusepy") is None:
        return "the package mfusepy"
    if ctypes.util.find_library("fuse3") is None or shutil.which("fusermount3") is None:
        return "fuse3"
    return ""


class LossyMount:
    """A lossy disk at a directory.

    Attributes:
        at: where it is mounted.
    """

    def __init__(self, place: Path) -> None:
        self._back, self.at = place / "back", place / "disk"
        self._log = place / "disk.log"
        self._back.mkdir(parents=True)
        self.at.mkdir()
        self._process: subprocess.Popen[str] | None = None

    def mount(self, *, journaled: bool = False) -> None:
        """Mount what is there. Raises OSError if it can't be.

        Args:
            journaled: see volatile.py.
        """
        script = Path(__file__).with_name("lossy_disk.py")
        paths = [str(Path(dejaqueue.__file__).parents[1]), str(Path(__file__).parents[2])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(script), str(self._back), str(self.at)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,
            )
        for _ in range(PATIENCE_SECONDS * 20):
            if os.path.ismount(self.at):
                self.ask(f"journaled {int(journaled)}")
                return
            if self._process.poll() is not None:
                break
            threading.Event().wait(0.05)
        text = self._log.read_text()
        self.close()
        raise OSError(f"the lossy disk is not mounted: {text}")

    def ask(self, command: str) -> str:
        """Give a command and return the answer."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(command + "\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    def cut_power(self, seed: int, share: float) -> int:
        """Cut the power; how many writes and names were not durable. Unmount, then mount again."""
        return int(self.ask(f"cut {seed} {share}"))

    def close(self) -> None:
        """Unmount. Twice is fine."""
        process, self._process = self._process, None
        if process is None:
            return
        subprocess.run(["umount", "-l", str(self.at)], check=False, capture_output=True)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
