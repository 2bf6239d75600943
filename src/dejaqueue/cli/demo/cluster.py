"""Three brokers of one cluster on this machine, for the demo: one is killed, one is put to sleep.

Room: cli.
Holds: no process outlives the `with` that started it.
See: processes.py; the guide docs/guides/cluster.md does the same by hand.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from dejaqueue.cli.demo.processes import BrokerProcess
from dejaqueue.cli.ports import free_port
from dejaqueue.errors import Unavailable

NODES = ("a", "b", "c")
SLEEP_SECONDS = 10.0
AWAY_SECONDS = 3.0
"""How long the killed broker stays away."""


class ClusterProcesses:
    """Three `dejaq serve --cluster …`.

    Attributes:
        url: of all three.
    """

    def __init__(self, directory: Path, logs: Path) -> None:
        from dejaqueue.cluster.secret import FILE, make_secret

        places = ",".join(f"{node}=127.0.0.1:{free_port(count=2)}" for node in NODES)
        make_secret(directory / FILE)
        named = ["--set", f"cluster.secret_file={directory / FILE}"]
        self._brokers = {
            node: BrokerProcess(
                directory / node,
                logs / f"broker-{node}.log",
                ["--cluster", places, "--node", node, *named],
            )
            for node in NODES
        }
        self._stack = ExitStack()
        self.url = ""

    def __enter__(self) -> Self:
        failures: list[Unavailable] = []

        def start(broker: BrokerProcess) -> None:
            try:
                broker.start()
            except Unavailable as failure:
                failures.append(failure)

        # Together: each waits until most of them are there.
        threads = [
            threading.Thread(target=start, args=(broker,)) for broker in self._brokers.values()
        ]
        for broker in self._brokers.values():
            self._stack.callback(broker.stop)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            self._stack.close()
            raise failures[0]
        addresses = [broker.url.partition("://")[2] for broker in self._brokers.values()]
        self.url = "dejaq://" + ",".join(addresses)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _owner(self, topic: str) -> str:
        """Node that serves a topic."""
        from dejaqueue import Client

        with Client(self.url) as client:
            for served in client.cluster(topic)["topics"]:
                if served["node"]:
                    return str(served["node"])
        raise Unavailable(f"topic {topic} has no owner")

    def kill_owner(self, topic: str) -> str:
        """SIGKILL to the broker that serves a topic, and start it again a little later."""
        node = self._owner(topic)
        broker = self._brokers[node]
        broker.kill()
        threading.Event().wait(AWAY_SECONDS)
        broker.start()
        return f"broker {node}, which served the topic, was killed with SIGKILL and is back"

    def put_owner_to_sleep(self, topic: str) -> str:
        """SIGSTOP to the broker that serves a topic, and SIGCONT ten seconds later."""
        node = self._owner(topic)
        pid = self._brokers[node].pid
        os.kill(pid, signal.SIGSTOP)
        threading.Event().wait(SLEEP_SECONDS)
        os.kill(pid, signal.SIGCONT)
        return f"broker {node}, which served the topic, slept for {SLEEP_SECONDS:.0f} s"
