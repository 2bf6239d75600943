"""`python -m tests.crash.storm --backend redis --cycles 100`: what `make crash` runs.

A real broker under load on one kind of journal; the broker, its server, or both are killed with
SIGKILL, again and again. Then everything is drained, and rules 1 to 6 are judged.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from dev.reaper import start_reaper
from dev.services import missing, start
from dev.services.service import Service
from tests.crash.broker_process import BrokerProcess
from tests.crash.test_broker_kill import check_under_load

SERVERS = {
    "postgresql": "postgresql",
    "mariadb": "mariadb",
    "redis": "redis",
    "jetstream": "nats",
    "cassandra": "cassandra",
}
BACKENDS = ("segment", "sqlite", *SERVERS)


class Storm:
    """A broker and what it stands on, and who was killed how often."""

    def __init__(self, broker: BrokerProcess, server: Service | None) -> None:
        self._broker, self._server = broker, server
        self.killed: Counter[str] = Counter()
        self.starts_server = False

    def strike(self, _turn: int) -> None:
        """Kill somebody, and start it again."""
        victims = ["broker"] if self._server is None else ["broker", "broker", "server", "both"]
        victim = random.choice(victims)
        self.killed[victim] += 1
        if victim != "server":
            self._broker.kill()
        if victim != "broker" and self._server is not None:
            self.starts_server = True
            self._server.kill()
            self._server.start()
            self.starts_server = False
        if victim != "server":
            self._broker.start()


@contextlib.contextmanager
def storm_on(backend: str, place: Path) -> Iterator[tuple[BrokerProcess, Storm]]:
    """A broker on a backend. Small segments, so that they roll and snapshots are taken."""
    small = {"journal__segment_bytes": 1 << 18, "journal__snapshot_entries": 150}
    with contextlib.ExitStack() as opened:
        server: Service | None = None
        data: Path | str = place / "data"
        if backend == "sqlite":
            data = f"sqlite:///{place}/journal.db"
        elif backend != "segment":
            server = opened.enter_context(start(SERVERS[backend]))
            data = server.url
        more = {} if backend == "segment" else {"journal__mirror": place / "mirror"}
        broker = BrokerProcess(data, place / "broker.log", **small, **more)
        broker.start()
        opened.callback(broker.kill)
        yield broker, Storm(broker, server)


def main() -> int:
    """Run; 1 if a rule was broken."""
    start_reaper()
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=BACKENDS, default="segment")
    parser.add_argument("--cycles", type=int, default=100)
    options = parser.parse_args()
    lacking = missing(SERVERS[options.backend]) if options.backend in SERVERS else None
    if lacking:
        print(f"{options.backend}: not installed: {lacking}")
        return int(os.environ.get("REQUIRE_ALL") == "1")
    logging.disable(logging.WARNING)  # clients that lose their broker say so each time
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="dejaq-storm-") as place,
        storm_on(options.backend, Path(place)) as (broker, storm),
    ):
        try:
            check_under_load(broker, options.cycles, storm.strike, lambda: storm.starts_server)
        except AssertionError as wrong:
            print(f"{options.backend}: {wrong}")
            print(broker.log_text()[-5_000:])
            return 1
        finally:
            killed = ", ".join(f"{who} {count}" for who, count in sorted(storm.killed.items()))
            took = time.monotonic() - began
            print(f"{options.backend}: {options.cycles} cycles ({killed}) in {took:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
