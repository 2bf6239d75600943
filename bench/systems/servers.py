"""Server programs that the harness starts for itself, and stops by their own process id.

Room: bench. The only place that starts programs.
Holds: no fixed port, no program left behind, no folder left behind.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0


class ServerFailed(RuntimeError):
    """A server did not start; the text has the end of its output."""


class Server:
    """One running server program with a folder of its own.

    Args:
        folder: where it works; made here, removed by `stop`.
        command: program and arguments.
        is_ready: called until it answers True.
    """

    def __init__(self, folder: Path, command: list[str], is_ready: Callable[[], bool]) -> None:
        self.folder = folder
        self._log = (folder / "server.log").open("wb")
        self._child = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        self._wait(command[0], is_ready)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def log_text(self) -> str:
        """What it has printed so far."""
        return (self.folder / "server.log").read_text(errors="replace")

    def stop(self, *, keep_folder: bool = False) -> None:
        """Ask it to end, wait, kill it if it does not; then remove its folder."""
        if self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        self._log.close()
        if not keep_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL, as a machine that fails; its folder stays."""
        self._child.kill()
        self._child.wait()
        self._log.close()

    def _wait(self, name: str, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self._child.poll() is not None:
                break
            if is_ready():
                return
            time.sleep(0.01)
        text = self.log_text()[-2_000:]
        self.stop()
        raise ServerFailed(f"{name} did not start:\n{text}")


SOURCE = "BENCH_SOURCE"
"""Environment variable: the folder of the packages to measure; this tree's unless it is set."""


def environment() -> dict[str, str]:
    """The environment of a program: Python finds the measured source, from any folder.

    It keeps the bytecode that it made, as an installation has it.
    """
    source = os.environ.get(SOURCE) or str(ROOT / "src")
    paths = [source, str(ROOT), os.environ.get("PYTHONPATH", "")]
    found = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    return found


def start_helper(module: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a module of the harness as a program, with pipes; wait until it prints `ready`."""
    return start_program([sys.executable, "-m", module, *(str(argument) for argument in arguments)])


def start_program(command: list[str]) -> subprocess.Popen[str]:
    """Start a program with pipes; wait until it prints `ready`. Raises ServerFailed."""
    child = subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    if child.stdout.readline() != "ready\n":
        child.kill()
        told = f"{shlex.join(command)} did not start: it ended with status {child.wait()}"
        raise ServerFailed(told)
    return child


def end_program(child: subprocess.Popen[str]) -> None:
    """Tell a program with pipes that there is nothing more to do; kill it if it does not end."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.close()
    try:
        child.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    child.stdout.close()


def run_program(command: list[str]) -> None:
    """Run a program to its end. Raises ServerFailed, with the end of what it printed."""
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        told = (done.stdout + done.stderr)[-2_000:]
        raise ServerFailed(f"{shlex.join(command)} failed:\n{told}")


def is_listening(port: int) -> bool:
    """True if something accepts connections on a port of 127.0.0.1."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def new_folder(root: Path, name: str) -> Path:
    """A new empty folder below `root`."""
    root.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=root)).resolve()


def let_in(path: Path) -> None:
    """Servers that run as another user have to get to their folders."""
    for folder in (path, *path.parents):
        if os.geteuid() == 0 and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o001)


def program_version(command: list[str]) -> str | None:
    """First line that a program prints, None if it is not installed."""
    if shutil.which(command[0]) is None:
        return None
    found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    return (found.stdout or found.stderr).strip().partition("\n")[0]
