"""The demo's processes: a real broker and real consumers, started, killed and stopped by their pid.

Room: cli. Standard library alone.
Holds: no process outlives the `with` that started it; every wait has an end.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import dejaqueue
from dejaqueue.errors import Unavailable

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0


def _start(arguments: list[str], log: IO[bytes], *, stdin: int) -> subprocess.Popen[str]:
    """Start a module of this very package, wherever it was imported from."""
    source = str(Path(dejaqueue.__file__).parent.parent)
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
        # Ctrl-C is for the demo alone, which then stops the others in order.
        start_new_session=True,
    )


class _Lines:
    """The lines that a process prints, read by a thread so that a wait for one can end."""

    def __init__(self, stream: IO[str], name: str) -> None:
        self._stream = stream
        self._queue: queue.Queue[str | None] = queue.Queue()
        self.last = ""
        self._thread = threading.Thread(target=self._read, name=f"lines-of-{name}", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._stream:
            self.last = line.strip()
            self._queue.put(self.last)
        self._queue.put(None)

    def first(self, seconds_max: float) -> str | None:
        """The next line; None if there is none by then or ever."""
        try:
            return self._queue.get(timeout=seconds_max)
        except queue.Empty:
            return None

    def close(self) -> None:
        self._thread.join()
        self._stream.close()


class BrokerProcess:
    """`dejaq serve` on a directory.

    Attributes:
        url: where it listens; stays the same over `kill` and `start`.
        http_url: where its console is; "" = nowhere.
    """

    def __init__(self, directory: Path, log_path: Path, options: Sequence[str] = ()) -> None:
        self._directory, self._log_path = directory, log_path
        self._options = list(options)
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self._lines: _Lines | None = None
        self.url = self.http_url = ""

    def start(self) -> None:
        """Start it and wait until it listens.

        Raises:
            Unavailable: it did not; the text ends with what it said.
        """
        options = ["--data", str(self._directory), "--port", str(self._port), "--http-port", "0"]
        options += self._options
        with self._log_path.open("ab") as log:
            process = _start(
                ["dejaqueue", "serve", *options, "--json"], log, stdin=subprocess.DEVNULL
            )
        assert process.stdout is not None
        self._process = process
        self._lines = _Lines(process.stdout, "broker")
        line = self._lines.first(START_SECONDS_MAX)
        if line is None:
            self.kill()
            said = self._log_path.read_text(encoding="utf-8", errors="replace").strip()
            raise Unavailable(f"the broker did not start: {said[-500:] or 'it said nothing'}")
        told = json.loads(line)
        self.url, self.http_url = told["url"], told.get("http_url") or ""
        self._port = int(self.url.rpartition(":")[2])

    @property
    def pid(self) -> int:
        """Number of its process. Raises Unavailable: there is none."""
        if self._process is None:
            raise Unavailable("the broker does not run")
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL: no warning, no goodbye."""
        if self._process is not None:
            self._process.kill()
            self._end()

    def stop(self) -> int:
        """SIGTERM, and wait; its exit status. Twice is fine."""
        if self._process is None:
            return 0
        process = self._process
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
        self._end()
        return process.returncode

    def _end(self) -> None:
        assert self._process is not None
        assert self._lines is not None
        self._process.wait()
        self._lines.close()
        self._process = self._lines = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class ConsumerProcess:
    """A consumer of the demo (consumer.py)."""

    def __init__(self, url: str, topic: str, out: Path, *, confirm: bool, log_path: Path) -> None:
        arguments = ["dejaqueue.cli.demo.consumer", "--url", url, "--topic", topic]
        arguments += ["--out", str(out), *(["--confirm"] if confirm else [])]
        with log_path.open("ab") as log:
            self._process = _start(arguments, log, stdin=subprocess.PIPE)
        assert self._process.stdout is not None
        self._lines = _Lines(self._process.stdout, "consumer")
        self._log_path = log_path
        self.out = out

    @property
    def count(self) -> int:
        """Deliveries so far, as it last said."""
        return int(self._lines.last) if self._lines.last.isdecimal() else 0

    def wait_ready(self) -> None:
        """Wait until it is about to consume. Raises Unavailable if it does not come to that."""
        if self._lines.first(START_SECONDS_MAX) is None:
            raise Unavailable(f"a consumer did not start: {self._said()}")

    def begin(self) -> None:
        """Let it consume."""
        assert self._process.stdin is not None
        self._process.stdin.write("begin\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """Ask it to stop, wait until its file is written. Raises Unavailable if it failed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._lines.close()
        if status != 0:
            raise Unavailable(f"a consumer ended with status {status}: {self._said()}")

    def kill(self) -> None:
        """End it at once; after `stop` this does nothing."""
        assert self._process.stdin is not None
        self._process.kill()
        self._process.wait()
        # Also of one that has ended by itself: its pipes are ours.
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._lines.close()

    def _said(self) -> str:
        said = self._log_path.read_text(encoding="utf-8", errors="replace").strip()
        return said[-500:] or "it said nothing"
