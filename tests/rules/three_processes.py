"""`dejaq serve --processes 3`, whose clocks are moved together by hand (controlled.py)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import dejaqueue
from dejaqueue.client.flight_transport import FlightTransport
from dejaqueue.errors import DejaQError, Elsewhere, Unavailable
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.patience import PATIENCE_SECONDS, until
from tests.rules.controlled import CONTROL, ELAPSED

COUNT = 3
NAMES = [f"process-{number}" for number in range(1, COUNT + 1)]


class _Line:
    """The way to one process, a line each way."""

    def __init__(self, place: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(place))
        except OSError:
            self._socket.close()
            raise
        self._socket.settimeout(PATIENCE_SECONDS)
        self._file = self._socket.makefile("rwb")

    def tell(self, asked: dict[str, Any]) -> None:
        self._file.write(json.dumps(asked).encode() + b"\n")
        self._file.flush()

    def answer(self) -> list[str] | None:
        """None: the process has ended."""
        line = self._file.readline()
        return json.loads(line) if line else None

    def close(self) -> None:
        with contextlib.suppress(OSError):  # of what could not be written
            self._file.close()
        self._socket.close()


class _ToldClock(VirtualClock):
    """What a test moves; the processes are told."""

    def __init__(self, told: Callable[[int], None]) -> None:
        super().__init__()
        self._told = told

    def advance(self, by: timedelta | None = None, *, ms: int = 0, us: int = 0) -> None:
        assert by is None
        assert not us
        super().advance(ms=ms)
        self._told(ms)


class ThreeProcesses:
    """Processes that divide a directory, asked where their topics are not.

    Args:
        dispatch: settings of it.
    """

    look_inside: Callable[[str], Any] | None = None

    def __init__(self, dispatch: dict[str, int]) -> None:
        self.clock = _ToldClock(self._move)
        self._elapsed_ms = 0
        self._arrived: list[str] = []
        self._folder = tempfile.TemporaryDirectory(prefix="dejaq-rules-")
        self._place = Path(self._folder.name)
        self._note_time()
        roots = Path(dejaqueue.__file__).parents[1], Path(__file__).parents[2]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, roots)),
            CONTROL: str(self._place),
            "DEJAQ_JOURNAL__RESERVE_BYTES": str(1 << 20),
            "DEJAQ_JOURNAL__SEGMENT_BYTES": str(1 << 20),
        }
        environment |= {f"DEJAQ_DISPATCH__{n.upper()}": str(v) for n, v in dispatch.items()}
        words = ["serve", "--json", "--processes", str(COUNT), "--port", "0", "--http-port", "0"]
        command = [sys.executable, "-m", "tests.rules.controlled", *words]
        with (self._place / "log").open("wb") as log:
            self._parent = subprocess.Popen(
                [*command, "--data", str(self._place / "data")],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._parent.stdout is not None
        line = self._parent.stdout.readline()
        assert line, (self._place / "log").read_text()
        self._url = json.loads(line)["url"]
        self._asking = FlightTransport(self._url)
        self._sockets: dict[int, _Line] = {}
        until(lambda: len(self._processes()) == COUNT, "each process can be told the time")

    def _note_time(self) -> None:
        (self._place / ELAPSED).write_text(str(self._elapsed_ms))

    def _call(self, action: str, **body: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._asking.action(action, body).result(PATIENCE_SECONDS)
        return answer

    # --- what processes are told ------------------------------------------------------------------

    def _processes(self) -> list[int]:
        """Those that can be told something now."""
        for place in self._place.glob("*.socket"):
            pid = int(place.stem)
            if pid not in self._sockets:
                try:
                    self._sockets[pid] = _Line(place)
                except OSError:  # it has ended, or does not listen yet
                    continue
        return list(self._sockets)

    def _tell(self, **asked: Any) -> list[str]:
        answers: list[str] = []
        told = []
        for pid in self._processes():
            with contextlib.suppress(OSError):
                self._sockets[pid].tell(asked)
                told.append(pid)
        for pid in told:
            answer = self._sockets[pid].answer()
            if answer is None:
                self._sockets.pop(pid).close()
            else:
                answers += answer
        return answers

    # --- what a fixture asks ----------------------------------------------------------------------

    def _members(self) -> dict[str, str]:
        return {one["node"]: one["url"] for one in self._call("cluster")["nodes"]}

    def _owners(self, topic: str) -> list[str]:
        return [one["node"] for one in self._call("cluster", topic=topic)["topics"]]

    def url_apart(self, topic: str) -> str:
        """Of a process that does not serve a topic; of any, if all do."""
        owners = self._owners(topic) if topic else []
        members = self._members()
        return next((url for name, url in members.items() if name not in owners), self._url)

    def settle_down(self) -> None:
        """Return when all that is to be done at this time is done."""
        self._tell(do="settle")

    def advance(self, ms: int) -> None:
        """Move the time of all of them."""
        self.clock.advance(ms=ms)

    def _move(self, ms: int) -> None:
        self._elapsed_ms += ms
        self._note_time()
        self._tell(do="advance", ms=ms)

    def arrival(self, seconds: float) -> DejaQError | None:
        """Wait for a parcel of letters; the error if it did not arrive."""
        found: list[str] = []

        def has_come() -> bool:
            found.extend(self._tell(do="arrivals"))
            return bool(found)

        if not self._arrived:
            until(has_come, "a parcel of letters", seconds)
            self._arrived = found
        name = self._arrived.pop(0)
        if not name:
            return None
        return Elsewhere(name) if name == "Elsewhere" else Unavailable(name)

    def clean(self) -> None:
        """Forget what a test has left."""
        self._tell(do="arrivals")
        self._arrived = []

    def hand_over(self, topic: str) -> None:
        """Whoever serves a topic is stopped, and comes back: others have it meanwhile."""
        self._end(topic, signal.SIGTERM)

    def kill(self, topic: str) -> None:
        """Whoever serves a topic is killed, and comes back."""
        self._end(topic, signal.SIGKILL)

    def _end(self, topic: str, number: signal.Signals) -> None:
        owners = self._owners(topic)
        pid = self._pid(owners[0])
        os.kill(pid, number)
        before = self._sockets.pop(pid, None)
        if before is not None:
            before.close()
        until(lambda: not Path(f"/proc/{pid}").exists(), f"{owners[0]} has ended")
        (self._place / f"{pid}.socket").unlink(missing_ok=True)

        def is_back() -> bool:
            try:
                return (
                    len(self._processes()) == COUNT
                    and sorted(self._members()) == NAMES
                    and self._owners(topic) == owners
                )
            except Unavailable:
                return False

        until(is_back, f"{owners[0]} serves again")

    def _pid(self, name: str) -> int:
        found = [
            int(place.name)
            for place in Path("/proc").iterdir()
            if place.name.isdigit() and self._is_child(place, name)
        ]
        assert len(found) == 1, f"{name}: {found}"
        return found[0]

    def _is_child(self, place: Path, name: str) -> bool:
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            told = (place / "environ").read_bytes()
        except OSError:
            return False
        return parent == self._parent.pid and f'"cluster.node": "{name}"'.encode() in told

    def stop(self) -> None:
        """End all of them."""
        self._asking.close()
        for connection in self._sockets.values():
            connection.close()
        self._parent.terminate()
        try:
            self._parent.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._parent.kill()
            self._parent.communicate()
        self._folder.cleanup()
