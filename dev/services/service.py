"""A server program that was started here, and can be stopped, killed, paused and started again.

Room: dev.
Holds: no program is left behind when `stop` returns; a folder is removed with its server.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

from dejaqueue.cli.ports import free_port

START_SECONDS_MAX = 180.0
STOP_SECONDS_MAX = 30.0
_LOOK_SECONDS = 0.02


class ServiceFailed(RuntimeError):
    """A server did not start; the text has the end of its output."""


class Service(ABC):
    """One server with a folder of its own; made by `start` of this package.

    Attributes:
        name: as in `python -m dev.services NAME`.
        folder: where it works; made here, below DEJAQ_SERVICES_ROOT if that is set, removed by
            `stop`.
        port: that it listens on, the same after a restart.
        host: address that it listens on.
    """

    name: ClassVar[str]
    host: str = "127.0.0.1"
    stop_signal: ClassVar[int] = signal.SIGTERM
    start_seconds_max: ClassVar[float] = START_SECONDS_MAX
    """Until it answers."""

    def __init__(self, **settings: str) -> None:
        """Give it settings of its own, as the server calls them."""
        self.settings = settings
        # Not pytest's folder: another user, whom a server may need, cannot enter that.
        root = os.environ.get("DEJAQ_SERVICES_ROOT")
        self.folder = Path(tempfile.mkdtemp(prefix=f"dejaq-{self.name}-", dir=root)).resolve()
        self.port = free_port()
        self._child: subprocess.Popen[bytes] | None = None
        self._prepared = False

    # --- what a server says --------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def missing(cls) -> str | None:
        """What is not installed, in words; None if it can be started."""

    @property
    @abstractmethod
    def url(self) -> str:
        """How DejaQ is told of it."""

    @abstractmethod
    def prepare(self) -> None:
        """Make the folder ready for the first start."""

    @abstractmethod
    def command(self) -> list[str]:
        """Program and arguments."""

    @abstractmethod
    def is_ready(self) -> bool:
        """True once it answers."""

    def started(self) -> None:  # noqa: B027  most have nothing to do
        """Called once, after the first start: make a database, a user."""

    @property
    def user(self) -> str | None:
        """Whose process it is; None = the caller's."""
        return None

    # --- its life ------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start it, again after `kill` or `halt`, and return when it answers."""
        if not self._prepared:
            self.prepare()
        with (self.folder / "server.log").open("ab") as log:
            self._child = self.spawn(self.command(), stdout=log, stderr=log)
        deadline = time.monotonic() + self.start_seconds_max
        while not self.is_ready():
            if self._child.poll() is not None or time.monotonic() > deadline:
                text = self.log_text()[-3_000:]
                self.stop()
                raise ServiceFailed(f"{self.name} did not start:\n{text}")
            threading.Event().wait(_LOOK_SECONDS)
        if not self._prepared:
            self._prepared = True
            self.started()
        return self

    def spawn(self, command: list[str], **given: Any) -> subprocess.Popen[bytes]:
        """Start a program as the server's user, in its folder."""
        environment = os.environ | {"LC_ALL": "C", "HOME": str(self.folder)}
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for who started it
            **self._identity(),
            **given,
        )

    def run(self, command: list[str]) -> None:
        """Run a program of the server's to its end."""
        with (self.folder / "server.log").open("ab") as log:
            status = self.spawn(command, stdout=log, stderr=log).wait(START_SECONDS_MAX)
        if status:
            text = self.log_text()[-3_000:]
            self.stop()
            raise ServiceFailed(f"{command[0]} ended with status {status}:\n{text}")

    def own(self, path: Path) -> None:
        """Give a path to the server's user."""
        if self.user is not None:
            shutil.chown(path, self.user, pwd.getpwnam(self.user).pw_gid)

    def _identity(self) -> dict[str, Any]:
        if self.user is None:
            return {}
        return {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []}

    def log_text(self) -> str:
        """What it has printed so far."""
        return (self.folder / "server.log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        """Its process id; it must run."""
        assert self._child is not None
        return self._child.pid

    def kill(self) -> None:
        """End it and its children with SIGKILL, as a failing machine would; its folder stays."""
        children = self._family()[1:] if self._child is not None else []
        self._end(signal.SIGKILL)
        for pid in children:  # PostgreSQL's would answer what they have begun
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while any(_is_alive(pid) for pid in children) and time.monotonic() < deadline:
            threading.Event().wait(_LOOK_SECONDS)

    def halt(self) -> None:
        """End it in good order; its folder stays."""
        self._end(self.stop_signal)

    def pause(self) -> None:
        """Stop its process, and those it started: it is there, and silent."""
        for pid in self._family():
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        for pid in self._family():
            os.kill(pid, signal.SIGCONT)

    def _family(self) -> list[int]:
        """The process and its children, the process first."""
        found = [self.pid]
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(path.read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            if parent == self.pid:
                found.append(int(path.parent.name))
        return found

    def _end(self, number: int) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        if child.poll() is None:
            os.kill(child.pid, number)
            os.kill(child.pid, signal.SIGCONT)  # it may be paused
            try:
                child.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def stop(self) -> None:
        """End it and remove its folder; twice is fine."""
        self.halt()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _is_alive(pid: int) -> bool:
    """True unless it is gone, or waits only for its parent to hear of it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def program(name: str, *folders: str) -> str | None:
    """Where a program is: on the PATH, or in one of the folders (the last one that has it)."""
    found = shutil.which(name)
    for pattern in folders:
        root, _, rest = pattern.partition("*")
        places = sorted(Path(root).glob("*" + rest)) if rest or "*" in pattern else [Path(root)]
        for place in places:
            if (place / name).is_file():
                found = str(place / name)
    return found


def server_user(*names: str) -> str | None:
    """Whom to run a server as: the caller, or, where that is root, the first of these users."""
    if os.geteuid() != 0:
        return None
    for name in (*names, "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    return None


def is_listening(port: int) -> bool:
    """True if something accepts connections on a port of 127.0.0.1."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
