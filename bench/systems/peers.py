"""The queues that `peers` compares: their servers, the programs of their clients, how they sync.

Room: bench. What each is told, as its users would; the clients are in bench/peers/ (Python) and
bench/clients/ (Go, Node).
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
from typing import Any, Literal

from bench.peers.peer import Queue
from bench.systems import compiled
from bench.systems.beanstalkd import BeanstalkdSystem
from bench.systems.dejaq import DejaqSystem
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

Language = Literal["python", "go", "node"]
QUEUE_PER_DELAY, ONE_QUEUE = "queue_per_delay", "one_queue"
DOQ_ADDRESS = "DOQ_ADDRESS"
"""Environment variable: host and port of a DOQ's gRPC, which somebody else has started."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A queue that can be asked, by one of its clients.

    Attributes:
        name: of its rows.
        server: which has to be started: `dejaq`, `dejaq_doq`, `rabbitmq`, `nats`, `postgresql`,
            `redis`, `beanstalkd`; `doq` is there already.
        module, variant: its client, in bench/peers or bench/clients/go.
        package: of its client; of Go's, the module.
        sync: when what it has confirmed is on disk, in words.
        patterns: its ways to delay, each measured; none = it has no way.
        language: of its client.
    """

    name: str
    server: str
    module: str
    variant: str
    package: str
    sync: str
    patterns: tuple[str, ...] = ("",)
    language: Language = "python"


RABBITMQ_PATTERNS = (QUEUE_PER_DELAY, ONE_QUEUE)
ALWAYS = "synced before each answer"
SYNC_QUORUM = "one node, its log synced before each confirm"
SYNC_CLASSIC = "synced before each confirm, some together"
SYNC_POSTGRESQL = "fsync, synchronous_commit on"
SYNC_NATS, SYNC_REDIS = "sync_interval always", "appendfsync always"
AMQP, PGX = "github.com/rabbitmq/amqp091-go", "github.com/jackc/pgx/v5"
GO_REDIS, GO_BEANSTALK = "github.com/redis/go-redis/v9", "github.com/beanstalkd/go-beanstalk"
KINDS = (
    Kind("dejaq", "dejaq", "dejaq", "", "", ALWAYS),
    Kind("dejaq_asyncio", "dejaq", "dejaq", "asyncio", "", ALWAYS),
    Kind("dejaq_go", "dejaq", "dejaq", "", "", ALWAYS, language="go"),
    Kind("dejaq_doq", "dejaq_doq", "doq", "", "grpcio", ALWAYS),
    Kind("doq", "doq", "doq", "", "grpcio", "as whoever started it told it"),
    Kind(
        *("rabbitmq_quorum", "rabbitmq", "rabbitmq", "quorum", "pika"),
        *(SYNC_QUORUM, RABBITMQ_PATTERNS),
    ),
    Kind(
        *("rabbitmq_quorum_go", "rabbitmq", "rabbitmq", "quorum", AMQP),
        *(SYNC_QUORUM, (QUEUE_PER_DELAY,), "go"),
    ),
    Kind(
        *("rabbitmq_classic", "rabbitmq", "rabbitmq", "classic", "pika"),
        *(SYNC_CLASSIC, RABBITMQ_PATTERNS),
    ),
    Kind(
        *("rabbitmq_classic_go", "rabbitmq", "rabbitmq", "classic", AMQP),
        *(SYNC_CLASSIC, (QUEUE_PER_DELAY,), "go"),
    ),
    Kind("jetstream", "nats", "jetstream", "", "nats-py", SYNC_NATS),
    Kind(
        *("jetstream_go", "nats", "jetstream", "", "github.com/nats-io/nats.go", SYNC_NATS),
        language="go",
    ),
    Kind("postgresql", "postgresql", "postgresql", "", "psycopg", SYNC_POSTGRESQL),
    Kind("postgresql_go", "postgresql", "postgresql", "", PGX, SYNC_POSTGRESQL, language="go"),
    Kind("redis_streams", "redis", "redis_streams", "", "redis", SYNC_REDIS, ()),
    Kind("redis_streams_go", "redis", "redis_streams", "", GO_REDIS, SYNC_REDIS, (), "go"),
    Kind("redis_sorted_set", "redis", "redis_sorted_set", "", "redis", SYNC_REDIS),
    Kind("redis_sorted_set_go", "redis", "redis_sorted_set", "", GO_REDIS, SYNC_REDIS, ("",), "go"),
    Kind("bullmq", "redis", "bullmq", "", "bullmq", SYNC_REDIS, language="node"),
    Kind("beanstalkd", "beanstalkd", "beanstalkd", "", "greenstalk", "-f 0"),
    Kind("beanstalkd_go", "beanstalkd", "beanstalkd", "", GO_BEANSTALK, "-f 0", language="go"),
    Kind("celery_redis", "redis", "celery", "", "celery", SYNC_REDIS),
    Kind("celery_rabbitmq", "rabbitmq", "celery", "", "celery", SYNC_CLASSIC),
)
NAMES = tuple(dict.fromkeys(name for kind in KINDS for name in (kind.name, kind.server)))
"""What may be asked for: a queue by its name, or all by a server."""
APART = ("pika", "greenstalk", "celery")
"""Clients that scripts/install_peers.sh installs apart from .venv."""
IMPORTED_AS = {"grpcio": "grpc", "nats-py": "nats"}


def available(names: tuple[str, ...] = NAMES) -> tuple[list[Kind], list[str]]:
    """Those of these names, or on these servers, that can be measured here; why others cannot."""
    kinds, left_out = [], []
    for kind in KINDS:
        if kind.name not in names and kind.server.partition("_")[0] not in names:
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
    if reason := _lack_of_client(kind):
        return reason
    if kind.server == "rabbitmq":
        return "" if Path(RABBITMQ).exists() else "the program rabbitmq-server is not installed"
    if kind.server == "beanstalkd":
        found = BeanstalkdSystem.version()
        return "" if found is not None else "the program beanstalkd is not installed"
    if kind.server == "doq":
        address = os.environ.get(DOQ_ADDRESS)
        return "" if address else f"no address of one in {DOQ_ADDRESS}, and no package has it"
    if kind.server.startswith("dejaq"):
        return ""
    missing = services.missing(kind.server)
    return f"{missing} is not installed" if missing else ""


def _lack_of_client(kind: Kind) -> str:
    if kind.language == "go":
        return compiled.lack_of_go()
    if kind.language == "node":
        return compiled.lack_of_node()
    if kind.package in APART:
        if kind.package not in worker_versions():
            return f"scripts/install_peers.sh has not installed {kind.package}"
    elif kind.package and find_spec(IMPORTED_AS.get(kind.package, kind.package)) is None:
        return f"the Python package {kind.package} is not installed"
    return ""


def versions(kinds: list[Kind]) -> dict[str, str]:
    """Of servers and clients, each with how it syncs."""
    found = {}
    for kind in kinds:
        texts = [_server_version(kind.server), _client_version(kind)]
        found[kind.name] = f"{' by '.join(text for text in texts if text)} ({kind.sync})"
    return found


def _client_version(kind: Kind) -> str:
    if kind.language == "go":
        return compiled.go_version(kind.package)
    if kind.language == "node":
        return compiled.node_version(kind.package)
    if kind.package in APART:
        return f"{kind.package} {worker_versions()[kind.package]}"
    return f"{kind.package} {version(kind.package)}" if kind.package else ""


def _server_version(server: str) -> str:
    if server == "doq":
        return ""
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
        }[server.partition("_")[0]]
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
    elif kind.server == "dejaq_doq":
        broker_with_doq = DejaqSystem(settings=("doq.enabled=true",))
        broker_with_doq.start(folder)
        try:
            yield broker_with_doq.doq_address, [broker_with_doq.pid()]
        finally:
            broker_with_doq.stop()
    elif kind.server == "doq":
        yield os.environ[DOQ_ADDRESS], []
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


def _command(kind: Kind, url: str) -> list[str]:
    """The program of a client."""
    if kind.language == "go":
        return [str(compiled.GO_PROGRAM), kind.module, kind.variant, url]
    if kind.language == "node":
        return ["node", str(compiled.NODE_PROGRAM), url]
    python = [sys.executable, "-W", "ignore", "-m", "bench.peers.load"]
    return [*python, kind.module, kind.variant, url]


class Program:
    """A program of a queue's client (bench/peers/load.py), which does what it is told."""

    def __init__(self, kind: Kind, url: str) -> None:
        env = environment() | compiled.NODE_ENVIRONMENT
        if kind.package in APART:
            env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], str(PEERS / "peers")])
        command = _command(kind, url)
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(
            command, env=env, cwd=ROOT, stdin=pipe, stdout=pipe, text=True
        )
        self._name = kind.name

    def wait(self) -> None:
        """Return when it has started. Raises ServerFailed: it does not."""
        if self._read() != "ready\n":
            self.kill()
            raise ServerFailed(f"the client of {self._name} did not start")

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
