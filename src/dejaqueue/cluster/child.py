"""A server process beside the broker: started again when it dies, and never left behind.

Room: cluster.
Holds: the system ends the process when the thread that watches it ends, however the broker ends;
one that is found running all the same, by the file with its number, is ended before a new one
starts. What it writes goes line by line to whoever reads it.
See: jetstream.py.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from dejaqueue.clock import Clock, Wake
from dejaqueue.errors import Unavailable

log = logging.getLogger("dejaqueue.cluster")

FIRST_PAUSE_MS = 250
PAUSE_MS_MAX = 30_000
STEADY_MS = 60_000
"""A process that has lived so long is started again at once when it dies."""
STOP_S = 10.0

# PR_SET_PDEATHSIG survives exec. The parent is compared, in case it died before the call.
TRAMPOLINE = """
import ctypes, os, signal, sys
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGTERM, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class Child:
    """A process that is kept running.

    Attributes:
        starts: how often it was started.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[], Sequence[str]],
        pid_file: Path,
        on_line: Callable[[str], None],
        clock: Clock,
    ) -> None:
        """See `start`.

        Args:
            command: the program, with its whole path, and its arguments; asked at each start.
            on_line: called with each line that it writes, on the thread that watches it.
        """
        self._name, self._command, self._pid_file = name, command, pid_file
        self._on_line, self._clock = on_line, clock
        self._wake = Wake()
        self._stop = threading.Event()
        self._guard = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self.starts = self._began_ms = 0

    def start(self) -> None:
        """Start it, and again whenever it dies, until `stop`."""
        self._stop.clear()
        self._wake.clear()
        self._thread = threading.Thread(target=self._keep, name=f"{self._name}-keeper", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Number of the process, None while there is none."""
        with self._guard:
            process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def running_ms(self) -> int:
        """How long this process runs; 0 while there is none."""
        return self._clock.now_ms() - self._began_ms if self.pid is not None else 0

    def _keep(self) -> None:
        end_left_behind(self._pid_file, self._command()[0])
        pause_ms = FIRST_PAUSE_MS
        while not self._stop.is_set():
            began_ms = self._clock.now_ms()
            try:
                self._run_once()
            except OSError as error:
                log.error("%s cannot be started: %s", self._name, error)
            if self._stop.is_set():
                return
            lived_ms = self._clock.now_ms() - began_ms
            pause_ms = FIRST_PAUSE_MS if lived_ms > STEADY_MS else min(pause_ms * 2, PAUSE_MS_MAX)
            log.error("%s has ended after %d ms; again in %d ms", self._name, lived_ms, pause_ms)
            self._clock.wait_until(self._clock.now_us() + pause_ms * 1000, self._wake)

    def _run_once(self) -> None:
        command = list(self._command())
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", TRAMPOLINE, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # A key that ends the broker's group must not end the server before the broker.
            process_group=0,
            umask=0o077,
        )
        self._began_ms = self._clock.now_ms()
        with self._guard:
            self._process = process
            stopping = self._stop.is_set()
        self.starts += 1
        self._note(lambda: self._pid_file.write_text(str(process.pid)))
        if stopping:
            process.terminate()
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._on_line(line.rstrip("\n"))
        process.wait()

    def stop(self) -> None:
        """End it and wait until it has; twice is fine."""
        with self._guard:
            self._stop.set()
            process = self._process
        self._wake.ring()
        if process is not None and process.poll() is None:
            process.terminate()
            if not _ends(process.pid):
                process.kill()
            process.wait()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._note(lambda: self._pid_file.unlink(missing_ok=True))

    def _note(self, change: Callable[[], object]) -> None:
        """Change the file with its number. A disk that takes no writes must not keep anybody from
        watching the process, nor from ending it: it is missed only by a later start."""
        try:
            change()
        except OSError as error:
            log.warning("%s: its number cannot be noted: %s", self._name, error)


def end_left_behind(pid_file: Path, program: str) -> None:
    """End a process of an earlier start that still runs, if it is this program.

    Raises:
        Unavailable: it does not end.
    """
    try:
        pid = int(pid_file.read_text())
        running = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return
    if program.encode() not in running:
        return
    log.warning("ending %s of an earlier start, process %d", program, pid)
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(pid, sign)
        if _ends(pid):
            return
    raise Unavailable(f"process {pid} of an earlier start does not end")


def _ends(pid: int) -> bool:
    """Wait until a process has ended, for STOP_S at most; False if it has not. No polling."""
    try:
        waiting = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([waiting], [], [], STOP_S)[0])
    finally:
        os.close(waiting)
