"""A cluster of real brokers with JetStream beside each: `dejaq serve --cluster`."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import dejaqueue
from dejaqueue import Client
from dejaqueue.cli.ports import free_port
from tests.crash.broker_process import BrokerProcess
from tests.patience import PATIENCE_SECONDS


class EmbeddedCluster:
    """Brokers by name; each is started with itself and those that are there then."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self._directory, self._settings = directory, settings
        self.places: dict[str, str] = {}
        self.brokers: dict[str, BrokerProcess] = {}

    def start(self, *names: str) -> None:
        """Start these, at once, and return when all listen."""
        self.make(*names)
        failures: list[BaseException] = []

        def run(name: str) -> None:
            try:
                self.brokers[name].start()
            except BaseException as error:  # noqa: BLE001 - shown below
                failures.append(error)

        threads = [threading.Thread(target=run, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        assert not failures, failures

    def make(self, *names: str) -> None:
        """Make these, and start none; they know each other, and those that are there."""
        for name in names:
            self.places[name] = f"{name}=127.0.0.1:{free_port(count=2)}"
        for name in names:
            self.brokers[name] = BrokerProcess(
                self._directory / name,
                self._directory / f"{name}.log",
                cluster__node=name,
                cluster__nodes=",".join(self.places.values()),
                **self._settings,
            )

    @property
    def url(self) -> str:
        """All brokers."""
        return "dejaq://" + ",".join(f"127.0.0.1:{one.port}" for one in self.brokers.values())

    def http_url(self, name: str) -> str:
        """Where one broker's HTTP port is."""
        return f"http://127.0.0.1:{self.brokers[name].http_port}"

    def owner(self, topic: str) -> str:
        """Name of the node that serves a topic, "" = nobody."""
        with Client(self.url) as client:
            [found] = client.cluster(topic)["topics"]
        node: str = found["node"]
        return node

    def command(self, *words: str, at: str) -> subprocess.CompletedProcess[str]:
        """`dejaq cluster …` asked of one broker."""
        return subprocess.run(
            [sys.executable, "-m", "dejaqueue", "cluster", *words, "--url", self.brokers[at].url],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
            env=os.environ | {"PYTHONPATH": str(Path(dejaqueue.__file__).parents[1])},
        )

    def log(self, name: str) -> str:
        """What a broker wrote."""
        return (self._directory / f"{name}.log").read_text()

    def stop(self) -> None:
        """Kill all of them; their servers end with them."""
        for broker in self.brokers.values():
            broker.kill()
