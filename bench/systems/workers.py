"""The task queues that `workers` compares: their servers, and the commands of their workers.

Room: bench. What each is told, as its users would; the programs are in bench/workers/.
Holds: two worker processes each; servers and workers are ended by their process ids.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import distributions
from itertools import chain
from pathlib import Path
from typing import Any

from bench.systems.dejaq import DejaqSystem
from bench.systems.servers import (
    ROOT,
    Server,
    environment,
    is_listening,
    new_folder,
    program_version,
)
from bench.workers import notes
from dejaqueue.cli.ports import free_port

PEERS = ROOT / "bench" / "out"
"""Where scripts/install_peers.sh puts the peers' packages, in folders."""
RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"
PROCESSES, THREADS, LOOP_TASKS = 2, 8, 100
STOP_SECONDS_MAX = 20.0


@dataclass(frozen=True, slots=True)
class Kind:
    """A task queue on a broker.

    Attributes:
        name: of its rows.
        package: which must be installed; "" = it comes with DejaQ.
        broker: `dejaq`, `redis` or `rabbitmq`.
        module: the program, in bench/workers.
        pools: what it runs tasks on: `threads`, `prefork`, `single`, `asyncio`.
    """

    name: str
    package: str
    broker: str
    module: str
    pools: tuple[str, ...]


KINDS = (
    Kind("dejaq", "", "dejaq", "dejaq_app", ("threads", "asyncio")),
    Kind("celery_dejaq", "celery", "dejaq", "celery_app", ("threads", "prefork")),
    Kind("celery_redis", "celery", "redis", "celery_app", ("threads", "prefork")),
    Kind("celery_rabbitmq", "celery", "rabbitmq", "celery_app", ("threads", "prefork")),
    Kind("dramatiq", "dramatiq", "redis", "dramatiq_app", ("threads",)),
    Kind("huey", "huey", "redis", "huey_app", ("threads",)),
    Kind("rq", "rq", "redis", "rq_app", ("single",)),
    Kind("arq", "arq", "redis", "arq_app", ("asyncio",)),
)


def peer_versions() -> dict[str, str]:
    """What is installed of the peers' packages, by name."""
    found = distributions(path=[str(PEERS / "arq"), str(PEERS / "peers")])
    return {one.metadata["Name"].lower(): one.version for one in found}


def available() -> tuple[list[Kind], list[str]]:
    """Those that can be measured here, and why others cannot."""
    installed, kinds, left_out = peer_versions(), [], []
    missing = {
        "redis": program_version(["redis-server", "--version"]) is None,
        "rabbitmq": not Path(RABBITMQ).exists(),
        "dejaq": False,
    }
    for kind in KINDS:
        if kind.package and kind.package not in installed:
            left_out.append(
                f"{kind.name}: scripts/install_peers.sh has not installed {kind.package}"
            )
        elif missing[kind.broker]:
            left_out.append(f"{kind.name}: the program of {kind.broker} is not installed")
        else:
            kinds.append(kind)
    return kinds, left_out


class Broker:
    """A new broker of a kind, with nothing in it."""

    def __init__(self, name: str, folder: Path) -> None:
        self._dejaq: DejaqSystem | None = None
        self._servers: list[Server] = []
        if name == "dejaq":
            self._dejaq = DejaqSystem()
            self._dejaq.start(folder)
            self.url = self._dejaq.url
        elif name == "redis":
            self.url = self._start_redis(new_folder(folder, name))
        else:
            self.url = self._start_rabbitmq(folder)

    def _start_redis(self, folder: Path) -> str:
        port = free_port()
        settings = {
            "bind": "127.0.0.1",
            "port": str(port),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "set-proc-title": "no",  # by its environment the reaper knows it
        }
        command = ["redis-server", *chain.from_iterable((f"--{k}", v) for k, v in settings.items())]
        self._servers.append(Server(folder, command, lambda: is_listening(port)))
        return f"redis://127.0.0.1:{port}/0"

    def _start_rabbitmq(self, folder: Path) -> str:
        port, epmd, dist = free_port(), free_port(), free_port()
        place = new_folder(folder, "rabbitmq")
        values = {
            "ERL_EPMD_PORT": epmd,
            "HOME": place,
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": port,
            "RABBITMQ_DIST_PORT": dist,
            "RABBITMQ_MNESIA_BASE": place / "data",
            "RABBITMQ_LOG_BASE": place / "log",
            "RABBITMQ_ENABLED_PLUGINS_FILE": place / "plugins",
            "RABBITMQ_CONFIG_FILE": place / "rabbitmq",
            "RABBITMQ_PID_FILE": place / "pid",
        }
        env = [f"{name}={value}" for name, value in values.items()]
        # Its name server first, as a program of ours: RabbitMQ would leave one behind.
        names = ["epmd", "-port", str(epmd), "-address", "127.0.0.1"]
        self._servers.append(Server(new_folder(folder, "epmd"), names, lambda: is_listening(epmd)))
        command = ["env", *env, RABBITMQ]
        self._servers.append(Server(place, command, lambda: is_listening(port)))
        return f"amqp://guest:guest@127.0.0.1:{port}//"

    @property
    def pids(self) -> list[int]:
        """Process ids of its programs."""
        own = [] if self._dejaq is None else [self._dejaq.pid()]
        return own + [server.pid for server in self._servers]

    @property
    def client(self) -> Any:
        """DejaQ's client."""
        assert self._dejaq is not None
        return self._dejaq.client

    def stop(self) -> None:
        """Stop its programs, remove its files."""
        if self._dejaq is not None:
            self._dejaq.stop()
        for server in reversed(self._servers):
            server.stop()
        self._servers.clear()


class Workers:
    """The two worker processes of a kind, and its programs that send.

    Args:
        folder: for their logs and notes.
    """

    def __init__(self, kind: Kind, url: str, folder: Path) -> None:
        self.kind = kind
        self.folder = new_folder(folder, f"{kind.name}-workers")
        self.notes = self.folder / "notes"
        self._environment = environment() | {"BENCH_URL": url, notes.FILE: str(self.notes)}
        if kind.package:
            # Before what .venv has: they want other versions.
            paths = [
                str(PEERS / ("arq" if kind.name == "arq" else "peers")),
                self._environment["PYTHONPATH"],
            ]
            self._environment["PYTHONPATH"] = os.pathsep.join(paths)
        self.processes: list[subprocess.Popen[bytes]] = []

    def send(
        self, task: str, rows: int, seconds: float, senders: int, **due: int
    ) -> dict[str, Any]:
        """Send tasks from a program of their own: `sent`, and in how many `seconds`."""
        said: dict[str, Any] = {"module": f"bench.workers.{self.kind.module}"}
        said |= {"task": task, "rows": rows, "seconds": seconds, "senders": senders} | due
        found = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "bench.workers.send", json.dumps(said)],
            env=self._environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            timeout=300,
            check=True,
        )
        answer: dict[str, Any] = json.loads(found.stdout)
        return answer

    def start(self, pool: str, *options: str) -> None:
        """Start two processes."""
        for command in self.commands(pool, *options):
            with (self.folder / "workers.log").open("ab") as log:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, "-W", "ignore", *command],
                        env=self._environment,
                        cwd=ROOT,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )

    def commands(self, pool: str, *options: str) -> list[list[str]]:
        """The programs to start for two worker processes."""
        module = f"bench.workers.{self.kind.module}"
        if self.kind.module == "dejaq_app":
            count = LOOP_TASKS if pool == "asyncio" else THREADS
            common = ["--processes", str(PROCESSES), "-c", str(count), "--pool", pool, *options]
            return [["-m", "dejaqueue", "worker", f"{module}:app", *common]]
        if self.kind.module == "celery_app":
            celery = ["-m", "celery", "-A", f"{module}:app", "worker", "-l", "WARNING"]
            celery += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
            if pool == "prefork":
                return [[*celery, "-c", str(PROCESSES)]]
            threads = ["-P", "threads", "-c", str(THREADS)]
            return [[*celery, *threads, "-n", f"{n}@%h"] for n in range(PROCESSES)]
        if self.kind.module == "dramatiq_app":
            return [["-m", "dramatiq", module, "-p", str(PROCESSES), "-t", str(THREADS)]]
        if self.kind.module == "huey_app":
            huey = ["-m", "huey.bin.huey_consumer", f"{module}.app", "-w", str(THREADS), "-q"]
            return [huey] * PROCESSES
        return [["-m", module]] * PROCESSES

    def stop(self) -> None:
        """SIGTERM, and SIGKILL to the group of whoever stays."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS_MAX)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.processes.clear()

    def children(self) -> list[int]:
        """Process ids of what the first of them has started."""
        pid = self.processes[0].pid
        path = Path(f"/proc/{pid}/task/{pid}/children")
        return [int(child) for child in path.read_text().split()] if path.exists() else []

    def kill(self) -> None:
        """SIGKILL the first of them alone, and wait for it; what it has started lives on."""
        process = self.processes.pop(0)
        process.kill()
        process.wait()

    def remove(self) -> None:
        """Remove logs and notes."""
        shutil.rmtree(self.folder, ignore_errors=True)
