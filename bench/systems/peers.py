"""The queues that `peers` compares: their servers, the programs of their clients, how they sync.

Room: bench. What each is told, as its users would; the clients are in bench/peers/.
Holds: every server is new, syncs as `sync` says, and is ended by its process id.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.peers.peer import Queue
from bench.systems.beanstalkd import BeanstalkdSystem
from bench.systems.servers import (
    ROOT,
    STOP_SECONDS_MAX,
    ServerFailed,
    environment,
    let_in,
    program_version,
)
from bench.systems.workers import PEERS, RABBITMQ, Broker
from bench.systems.workers import peer_versions as worker_versions
from dev import services

QUEUE_PER_DELAY, ONE_QUEUE = "queue_per_delay", "one_queue"


@dataclass(frozen=True, slots=True)
class Kind:
    """A queue that can be asked.

    Attributes:
        name: of its rows.
        server: which has to be started: `dejaq`, `rabbitmq`, `nats`, `postgresql`, `redis`,
            `beanstalkd`.
        module, variant: its client, in bench/peers.
        package: of its client.
        sync: when what it has confirmed is on disk, in words.
        patterns: its ways to delay, each measured; none = it has no way.
    """

    name: str
    server: str
    module: str
    variant: str
    package: str
    sync: str
    patterns: tuple[str, ...] = ("",)


RABBITMQ_PATTERNS = (QUEUE_PER_DELAY, ONE_QUEUE)
ALWAYS = "synced before each answer"
KINDS = (
    Kind("dejaq", "dejaq", "dejaq", "", "", ALWAYS),
    Kind("dejaq_asyncio", "dejaq", "dejaq", "asyncio", "", ALWAYS),
    Kind(
        *("rabbitmq_quorum", "rabbitmq", "rabbitmq", "quorum", "pika"),
        *("one node, its log synced before each confirm", RABBITMQ_PATTERNS),
    ),
    Kind(
        *("rabbitmq_classic", "rabbitmq", "rabbitmq", "classic", "pika"),
        *("synced before each confirm, some together", RABBITMQ_PATTERNS),
    ),
    Kind("jetstream", "nats", "jetstream", "", "nats-py", "sync_interval always"),
    Kind("postgresql", "postgresql", "postgresql", "", "psycopg", "fsync, synchronous_commit on"),
    Kind("redis_streams", "redis", "redis_streams", "", "redis", "appendfsync always", ()),
    Kind("redis_sorted_set", "redis", "redis_sorted_set", "", "redis", "appendfsync always"),
    Kind("beanstalkd", "beanstalkd", "beanstalkd", "", "greenstalk", "-f 0"),
)
APART = ("pika", "greenstalk")
"""Clients that scripts/install_peers.sh installs apart from .venv."""
IMPORTED_AS = {"nats-py": "nats"}


def available(names: tuple[str, ...] | None = None) -> tuple[list[Kind], list[str]]:
    """Those that can be measured here, of these names or of all, and why others cannot."""
    kinds, left_out = [], []
    for kind in KINDS:
        if names is not None and kind.name not in names:
            continue
        reason = _lack_of(kind)
        if reason:
            left_out.append(f"{kind.name}: {reason}")
            continue
        kinds.append(kind)
        if not kind.patterns:
            left_out.append(f"{kind.name}, delays: it has none")
    return kinds, left_out


def _lack_of(kind: Kind) -> str:
    """What is not installed; "" = nothing."""
    if kind.package in APART:
        if kind.package not in worker_versions():
            return f"scripts/install_peers.sh has not installed {kind.package}"
    elif kind.package and find_spec(IMPORTED_AS.get(kind.package, kind.package)) is None:
        return f"the Python package {kind.package} is not installed"
    if kind.server == "rabbitmq":
        return "" if Path(RABBITMQ).exists() else "the program rabbitmq-server is not installed"
    if kind.server == "beanstalkd":
        found = BeanstalkdSystem.version()
        return "" if found is not None else "the program beanstalkd is not installed"
    if kind.server == "dejaq":
        return ""
    missing = services.missing(kind.server)
    return f"{missing} is not installed" if missing else ""


def versions(kinds: list[Kind]) -> dict[str, str]:
    """Of servers and clients, each with how it syncs."""
    found = {}
    for kind in kinds:
        texts = [_server_version(kind.server)]
        if kind.package in APART:
            texts.append(f"{kind.package} {worker_versions()[kind.package]}")
        elif kind.package:
            texts.append(f"{kind.package} {version(kind.package)}")
        found[kind.name] = f"{' by '.join(text for text in texts if text)} ({kind.sync})"
    return found


def _server_version(server: str) -> str:
    if server == "rabbitmq":
        found = list(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
        return found[0].name.partition("-")[2] if found else ""
    if server == "postgresql":
        postgres = [*map(str, Path("/usr/lib/postgresql").glob("*/bin/postgres"))]
        command = [shutil.which("postgres") or (postgres or ["postgres"])[-1], "--version"]
    elif server == "nats":
        beside = shutil.which("nats-server", path=str(Path(sys.executable).parent))
        command = [beside or "nats-server", "-v"]
    else:
        command = {
            "redis": ["redis-server", "--version"],
            "beanstalkd": ["beanstalkd", "-v"],
            "dejaq": [sys.executable, "-m", "dejaqueue", "--version"],
        }[server]
    number = re.search(r"\d+(\.\d+)+", program_version(command) or "")
    return number.group() if number else ""


@contextmanager
def serving(kind: Kind, folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Start its server; answer where it is, and the ids of its processes; stop it afterwards."""
    if kind.server in {"rabbitmq", "redis", "dejaq"}:
        broker = Broker(kind.server, folder)
        try:
            yield broker.url, broker.pids
        finally:
            broker.stop()
    elif kind.server == "beanstalkd":
        system = BeanstalkdSystem()
        system.start(folder)
        try:
            yield system.url, [system.pid()]
        finally:
            system.stop()
    else:
        let_in(folder)
        os.environ["DEJAQ_SERVICES_ROOT"] = str(folder)
        with services.start(kind.server) as service:
            yield service.url, [service.pid]


class Program:
    """A program of a queue's client (bench/peers/load.py), which does what it is told."""

    def __init__(self, kind: Kind, url: str) -> None:
        env = environment()
        if kind.package in APART:
            env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], str(PEERS / "peers")])
        command = [sys.executable, "-W", "ignore", "-m", "bench.peers.load"]
        command += [kind.module, kind.variant, url]
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(
            command, env=env, cwd=ROOT, stdin=pipe, stdout=pipe, text=True
        )
        if self._read() != "ready\n":
            self.kill()
            raise ServerFailed(f"the client of {kind.name} did not start")

    def tell(self, do: str, queue: Queue | None = None, **values: object) -> None:
        """Have it begin something."""
        assert self._child.stdin is not None
        whole = {"do": do} | values | ({} if queue is None else {"queue": asdict(queue)})
        self._child.stdin.write(json.dumps(whole) + "\n")
        self._child.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """What that came to. Raises ServerFailed: the program has ended."""
        line = self._read()
        if not line:
            raise ServerFailed("a client ended before its answer")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, do: str, queue: Queue | None = None, **values: object) -> dict[str, Any]:
        """Have it do something."""
        self.tell(do, queue, **values)
        return self.answer()

    def end(self) -> None:
        """Let it end."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
        assert self._child.stdout is not None
        self._child.stdout.close()

    def kill(self) -> None:
        """End it."""
        self._child.kill()
        self._child.wait()

    def _read(self) -> str:
        assert self._child.stdout is not None
        return self._child.stdout.readline()
