"""A real broker in a process of its own, to be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import dejaqueue
from tests.patience import PATIENCE_SECONDS

_SERVE = """
import faulthandler, runpy, signal
faulthandler.register(signal.SIGUSR1)  # who waits for whom: see stall.py
runpy.run_module("dejaqueue", run_name="__main__", alter_sys=True)
"""


class BrokerProcess:
    """`dejaq serve` on a directory, or a server's URL; starts again on the same port.

    Attributes:
        code: what it runs from its next start on; where `dejaqueue` is.
    """

    def __init__(self, data: Path | str, log: Path, **settings: object) -> None:
        self._data = data
        self._log_path = log
        self._log: IO[bytes] | None = None
        self.code = Path(dejaqueue.__file__).parents[1]  # the code under test, installed or not
        self._environment = os.environ | {
            f"DEJAQ_{name.upper()}": str(value) for name, value in settings.items()
        }
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        self.http_port = 0
        self.is_up = False

    @property
    def data(self) -> Path | str:
        return self._data

    @property
    def environment(self) -> dict[str, str]:
        """With its settings, for commands."""
        return self._environment | {"PYTHONPATH": str(self.code)}

    @property
    def url(self) -> str:
        return f"dejaq://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Return when it listens."""
        command = [sys.executable, "-c", _SERVE, "serve", "--json"]
        command += ["--data", str(self._data), "--port", str(self.port), "--http-port", "0"]
        self._log = self._log_path.open("ab")
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=self.environment,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.kill()
            raise AssertionError(f"the broker did not start: {self._log_path.read_text()}")
        where = json.loads(line)
        self.port = int(where["url"].rpartition(":")[2])
        self.http_port = int(where["http_url"].rpartition(":")[2])
        self.is_up = True

    def log_text(self) -> str:
        """What it has logged so far, over all its lives."""
        return self._log_path.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is said."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM: graceful. Returns the exit status."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        self.is_up = False
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            status = process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE_SECONDS)
            raise
        finally:
            assert process.stdout is not None
            process.stdout.close()
            if self._log is not None:
                self._log.close()
        return status

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid


@contextmanager
def pausable(directory: Path) -> Iterator[BrokerProcess]:
    """A broker that may be paused when it is not needed any more."""
    process = BrokerProcess(directory / "data", directory / "broker.log")
    process.start()
    try:
        yield process
    finally:
        os.kill(process.pid, signal.SIGCONT)
        process.kill()
