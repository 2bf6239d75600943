"""The command `dejaq` in processes that begin in a moment and can be killed.

One process has loaded the code and has no threads; each command is a fork of it. So a broker that
is killed, a restore that is killed, cost what they do and not a start of Python each.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dejaqueue.cli.main import main
from tests.disasters.planted import PLANTED, plant
from tests.patience import PATIENCE_SECONDS, until

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.disasters.preloaded"])


def _run(arguments: list[str], environment: dict[str, str], out: str, said: str) -> None:
    """The whole life of a command, in the fork."""
    os.setsid()
    for number, path in ((1, out), (2, said)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["dejaq", *arguments]
    plant(environment.get(PLANTED, ""))
    main()


class Command:
    """A command that runs, or has run.

    Args:
        arguments: what `dejaq` is told.
        environment: all of it.
        said: a file to which what it says to people, and logs, is added.
    """

    def __init__(self, arguments: list[str], environment: Mapping[str, str], said: Path) -> None:
        self.arguments = arguments
        self._said, self._from = said, said.stat().st_size if said.exists() else 0
        self._out = said.with_suffix(f".{os.urandom(4).hex()}.out")
        given = (arguments, dict(environment), str(self._out), str(said))
        self._process = _CONTEXT.Process(target=_run, args=given, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def out(self) -> str:
        """What it has printed."""
        return self._out.read_text() if self._out.exists() else ""

    @property
    def said(self) -> str:
        """What it has said to people."""
        text = self._said.read_bytes()[self._from :] if self._said.exists() else b""
        return text.decode(errors="replace")

    @property
    def has_ended(self) -> bool:
        return not self._process.is_alive()

    def status(self, seconds: float = PATIENCE_SECONDS) -> int | None:
        """Its exit status, negative = the signal that ended it; None = it still runs."""
        self._process.join(seconds)
        return self._process.exitcode

    def send(self, number: signal.Signals) -> None:
        """A signal; none if it has ended."""
        if not self.has_ended:
            with suppress(ProcessLookupError):  # it was killed in this moment, by a request
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL; returns when it has ended."""
        self.send(signal.SIGKILL)
        assert self.status() is not None, f"{self.arguments} was killed and goes on"

    def listens(self) -> dict[str, str]:
        """Where a broker serves, as soon as it does; empty = it ended instead."""
        until(lambda: "\n" in self.out or self.has_ended, f"{self.arguments} listens")
        found: dict[str, str] = json.loads(self.out) if "\n" in self.out else {}
        return found
