"""`python -m tests.rules.controlled serve …`: dejaq, whose time is moved by a test, over a socket.

A broker of it, and each process that it starts, listens at a Unix socket in the directory that
CONTROL names, and does what a line there says: `{"do": "advance", "ms": 5}`, `{"do": "settle"}`,
`{"do": "arrivals"}`. Their clocks begin where the file `elapsed_ms` in it says.
"""

from __future__ import annotations

import json
import os
import queue
import runpy
import socket
import threading
from pathlib import Path
from typing import Any

import dejaqueue.access.quotas as quotas_module
import dejaqueue.broker.broker as broker_module
import dejaqueue.cli.processes as processes_module
import dejaqueue.cluster.node as node_module
from dejaqueue.broker.broker import Broker
from dejaqueue.cli.processes import Processes
from dejaqueue.errors import DejaQError
from dejaqueue.settings import BrokerSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.rules.broker_fixture import noting, settle
from tests.rules.one_clock import OneClock

CONTROL = "RULES_CONTROL"
"""The variable with the directory; no setting of the broker."""
ELAPSED = "elapsed_ms"


class Controlled:
    """What is asked of one process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._clock = VirtualClock()
        self._clock.advance(ms=int((directory / ELAPSED).read_text()))
        self._arrivals: queue.SimpleQueue[DejaQError | None] = queue.SimpleQueue()
        self._broker: Broker | None = None

    def clock(self, _settings: BrokerSettings) -> VirtualClock:
        """In place of the machine's."""
        return self._clock

    def begin(self, broker: Broker) -> None:
        """A broker has been started: listen."""
        self._broker = broker
        broker.carrier.carry = noting(broker.carrier.carry, self._arrivals)  # type: ignore[method-assign]
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(self._directory / f"{os.getpid()}.socket"))
        listening.listen()
        threading.Thread(target=self._listen, args=(listening,), daemon=True).start()

    def _listen(self, listening: socket.socket) -> None:
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rwb") as lines:
            for line in lines:
                answer = self._do(json.loads(line))
                lines.write(json.dumps(answer).encode() + b"\n")
                lines.flush()

    def _do(self, asked: dict[str, Any]) -> list[str]:
        assert self._broker is not None
        arrived: list[str] = []
        if asked["do"] == "advance":
            self._clock.advance(ms=asked["ms"])
        elif asked["do"] == "settle":
            settle(self._broker)
        elif asked["do"] == "arrivals":
            while not self._arrivals.empty():
                error = self._arrivals.get()
                arrived.append("" if error is None else type(error).__name__)
        return arrived


def _control() -> None:
    controlled = Controlled(Path(os.environ[CONTROL]))
    start, command = Broker.start, Processes._command

    def started(broker: Broker) -> None:
        start(broker)
        controlled.begin(broker)

    def own_command(
        processes: Processes, overruling: dict[str, object]
    ) -> tuple[list[str], dict[str, str], int]:
        words, environment, inherited = command(processes, overruling)
        return (
            ["tests.rules.controlled" if w == "dejaqueue" else w for w in words],
            environment,
            inherited,
        )

    for owner, name, own in (
        (Broker, "start", started),
        (Processes, "_command", own_command),
        (broker_module, "broker_clock", controlled.clock),
        # A test ends a process again and again; the pauses before a start would grow to 30 seconds.
        (processes_module, "PAUSE_MS_MAX", processes_module.PAUSE_MS_FIRST),
        # It would not end: the clock stands still while a test closes what it has.
        (quotas_module, "CLOSING_PAUSE_MS", 0),
        (node_module, "ClockComparison", OneClock),
    ):
        setattr(owner, name, own)


if __name__ == "__main__":
    _control()
    runpy.run_module("dejaqueue", run_name="__main__", alter_sys=True)
