"""`dejaq serve --processes N`: the parent of N brokers that divide the shards of one directory.

Each child is `dejaq serve` as in a cluster: a member, an owner of slots, with ports of its own.
The parent keeps the facts on which they agree, and the two addresses that they have in common.

Room: cli. Never reads or writes a message.
Holds: the directory is locked while the parent runs; a child that has ended is no member any more
before another is started in its place; children end with the parent, however it ends; where one is
refused because a standby took the place of this broker, all of them end.
See: parent.py, what a child makes of it; ../journal/processes.py, what they divide;
docs/adr/0048-processes-divide-a-directory.md.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click

from dejaqueue.cli.divided_directory import KEPT, directory_of, process_count, shards_of_new
from dejaqueue.cli.memory import BYTES_MIN, OF_MEMORY, memory_bytes
from dejaqueue.cli.output import print_json
from dejaqueue.cli.parent import VARIABLE
from dejaqueue.cli.systemd import READY, RELOADING, STOPPING, tell_systemd
from dejaqueue.clock import SteadyClock, Wake
from dejaqueue.cluster.ownership import COMPLETE
from dejaqueue.coordinator.facts_server import FactsServer
from dejaqueue.coordinator.kept_facts import KeptFacts
from dejaqueue.errors import BadRequest, NotActive
from dejaqueue.flight.shared_address import OPEN
from dejaqueue.journal.processes import prepare
from dejaqueue.settings import BrokerSettings

PAUSE_MS_FIRST: Final = 250
PAUSE_MS_MAX: Final = 30_000
STEADY_MS: Final = 60_000
"""A child that has lived so long is started again at once when it has died."""
WILDCARDS: Final = ("0.0.0.0", "::", "")
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

log = logging.getLogger("dejaqueue.serve")


class Processes:
    """The children, and what they have in common.

    Args:
        settings: as the command line, environment and file say.
        chosen: the command line's options, which children get as well.

    Attributes:
        names: of the children, as nodes.

    Raises:
        BadRequest: settings that do not fit several processes.
    """

    def __init__(self, settings: BrokerSettings, chosen: dict[str, Any]) -> None:
        self._settings = settings
        self._root = directory_of(settings)
        self._count = process_count(settings)
        _check(settings, self._count)
        self._arguments = _arguments(chosen)
        self.names = [f"process-{number}" for number in range(1, self._count + 1)]
        self._children: list[_Child] = []
        self._guard = threading.Lock()
        self._address = ""
        """The child that has the Flight address."""
        self._is_said = self._is_ending = False
        self._refused = ""
        """The child that said that another broker is the active one."""

    def run(self, *, as_json: bool) -> None:
        """Serve until a signal to stop. Raises Locked, Refused, JournalDamaged, Unavailable."""
        from dejaqueue.access.start_token import StartToken
        from dejaqueue.addresses import is_loopback
        from dejaqueue.cli.ports import free_port
        from dejaqueue.logs import set_up

        server, self._as_json = self._settings.server, as_json
        set_up(self._settings.log)
        # Children must not be ended by a signal that is meant for the parent and comes too early.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        with ExitStack() as ending:
            lock, shards = prepare(self._root, shards_of_new(self._count))
            ending.callback(lock.release)
            if self._count > shards:
                limit = f"at most {shards}, into which {self._root} is divided for good"
                raise BadRequest("server.processes", limit, self._count)
            self._facts = KeptFacts(self._root / "facts.json", KEPT)
            ending.callback(self._facts.close)
            self._facts_server = FactsServer(self._facts)
            ending.callback(self._facts_server.close)
            ending.callback(self._facts.open().watch(OPEN, self._say_once).close)
            self._http = ending.enter_context(_listening(server.host, server.http_port))
            self._port = server.port or free_port(server.host)
            if not is_loopback(server.host) and not self._facts.find("documents/keys"):
                token = StartToken(self._root)
                ending.callback(token.remove)
                log.info("the first API key is made with the start-up token in %s", token.path)
            self._children = [
                self._child(number, name, shards) for number, name in enumerate(self.names, 1)
            ]
            ending.callback(self._stop)
            for child in self._children:
                child.start()
            self._wait_for_the_end()
        if self._refused:
            raise NotActive(
                f"{self._refused} was refused, as another broker is the active one: its line above "
                "says which; all processes of this one have ended"
            )

    # --- children ---------------------------------------------------------------------------------

    def _child(self, number: int, name: str, shards: int) -> _Child:
        server, history = self._settings.server, self._settings.history.directory
        is_fixed = server.port and server.http_port
        memory_max = server.memory_bytes_max
        if memory_max < 0:
            memory_max = int(memory_bytes() * OF_MEMORY)
        overruling = {
            "journal.url": f"shared://{self._root}",
            "history.directory": str(Path(history or self._root / "history") / name),
            "server.processes": "",
            "server.port": server.port + 2 * number if is_fixed else 0,
            "server.http_port": server.http_port + 2 * number if is_fixed else 0,
            "server.memory_bytes_max": memory_max and max(memory_max // self._count, BYTES_MIN),
            "cluster.node": name,
            "cluster.slots": shards,
        }
        return _Child(
            name, self._command, overruling, self._on_ready, self._on_end, self._facts_server
        )

    def _command(self, overruling: dict[str, object]) -> tuple[list[str], dict[str, str], int]:
        """How a child is started: its command, its environment, and a socket that it inherits."""
        told = {
            "settings": overruling,
            "names": self.names,
            "port": self._port,
            "http_socket": self._http.fileno(),
        }
        environment = {k: v for k, v in os.environ.items() if k != "NOTIFY_SOCKET"}
        environment[VARIABLE] = json.dumps(told)
        command = [sys.executable, "-m", "dejaqueue", "serve", *self._arguments, "--json"]
        return command, environment, self._http.fileno()

    def _on_ready(self, child: _Child) -> None:
        with self._guard:
            if not self._address:
                self._enter(child.name)
        self._say_once()

    def _say_once(self) -> None:
        """Say where all listen, as soon as all do: each at its own address, and one at theirs."""
        with self._guard:
            is_first = (
                not self._is_said
                and all(one.where for one in self._children)
                and bool(self._facts.find(OPEN, whole=True))
            )
            self._is_said |= is_first
        if is_first:
            self._facts.put(COMPLETE, b"", None, None)
            self._say_where(as_json=self._as_json)

    def _on_end(self, child: _Child, status: int) -> bool:
        """It is dead: the others need not wait for its lease.

        Returns:
            Whether it may be started again: who was replaced by a standby is for ever.
        """
        if status == NotActive.exit_code:
            with self._guard:
                if not self._refused and not self._is_ending:
                    self._refused = child.name
                    os.kill(os.getpid(), signal.SIGTERM)  # `_wait_for_the_end` hears of it
            return False
        self._facts.put(COMPLETE, b"", None, None)
        self._facts.delete(f"members/{child.name}", None)
        with self._guard:
            if self._address == child.name:
                others = [one.name for one in self._children if one.where]
                self._enter(others[0] if others else "")
        return True

    def _enter(self, name: str) -> None:
        self._address = name
        self._facts.put("address", name.encode(), None, None)

    # --- life -------------------------------------------------------------------------------------

    def _say_where(self, *, as_json: bool) -> None:
        server = self._settings.server
        ending = "s" if server.tls_certificate else ""
        host, http_port = server.host, self._http.getsockname()[1]
        url = f"dejaq{ending}://{host}:{self._port}"
        http_url = f"http{ending}://{host}:{http_port}"
        processes = [{"pid": child.pid, **child.where} for child in self._children]
        if as_json:
            where = {"url": url, "http_url": http_url, "data": str(self._root)}
            print_json(where | {"processes": processes})
        else:
            click.echo(
                f"listening {url} ({http_url}/stats, data in {self._root}, "
                f"{len(processes)} processes)"
            )
        sys.stdout.flush()
        tell_systemd(READY, f"serving {url} with {len(processes)} processes")

    def _wait_for_the_end(self) -> None:
        while True:
            number = signal.sigwait(SIGNALS)
            if number != signal.SIGHUP:
                break
            tell_systemd(RELOADING, "reads its settings again")
            for child in self._children:
                child.send(signal.SIGHUP)
            tell_systemd(READY, "serving")
        with self._guard:
            self._is_ending = True
        tell_systemd(STOPPING, "stopping")
        log.info("stopping (once more to stop at once; nothing is lost)")
        for one in SIGNALS:
            signal.signal(one, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _stop(self) -> None:
        """Have all of them hand over to nobody, and end."""
        for child in self._children:
            child.stop()
        for child in self._children:
            child.wait()


class _Child:
    """A broker process that is kept running.

    Attributes:
        where: its own addresses; empty while it does not serve.
        pid: 0 = it does not run.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[dict[str, object]], tuple[list[str], dict[str, str], int]],
        overruling: dict[str, object],
        on_ready: Callable[[_Child], None],
        on_end: Callable[[_Child, int], bool],
        facts_server: FactsServer,
    ) -> None:
        self.name = name
        self.where: dict[str, str] = {}
        self._command, self._overruling = command, overruling
        self._on_ready, self._on_end = on_ready, on_end
        self._facts_server = facts_server
        self._guard = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._stopping = threading.Event()
        self._wake = Wake()
        self._clock = SteadyClock()
        self._thread = threading.Thread(target=self._keep, name=f"{name}-keeper", daemon=True)

    @property
    def pid(self) -> int:
        """Of the process; 0 = there is none."""
        process = self._process
        return 0 if process is None else process.pid

    def start(self) -> None:
        """Start it, and again whenever it ends, until `stop`."""
        self._thread.start()

    def send(self, number: signal.Signals) -> None:
        """Give it a signal, if it runs."""
        with self._guard:
            if self._process is not None:
                self._process.send_signal(number)

    def stop(self) -> None:
        """Have it end gracefully, and start it no more."""
        with self._guard:
            self._stopping.set()
            if self._process is not None:
                self._process.send_signal(signal.SIGTERM)
        self._wake.ring()

    def wait(self) -> None:
        """Return when it has ended."""
        if self._thread.is_alive():
            self._thread.join()

    def _keep(self) -> None:
        pause_ms, may_start = 0, True
        while not self._stopping.is_set():
            began_us = self._clock.now_us()
            try:
                status, may_start = self._run_once()
            except OSError as error:
                status = -1
                log.error("%s cannot be started: %s", self.name, error)
            if self._stopping.is_set() or not may_start:
                return
            lived_ms = (self._clock.now_us() - began_us) // 1_000
            steady = lived_ms > STEADY_MS
            pause_ms = 0 if steady else min(max(pause_ms * 2, PAUSE_MS_FIRST), PAUSE_MS_MAX)
            text = "%s has ended after %d ms with status %d; it is started again in %d ms"
            log.error(text, self.name, lived_ms, status, pause_ms)
            self._clock.wait_until(self._clock.now_us() + pause_ms * 1_000, self._wake)

    def _run_once(self) -> tuple[int, bool]:
        """Its exit status, and whether it may be started again."""
        end = self._facts_server.connect()
        number = end.fileno()
        facts = {"cluster.coordinator": f"inherited:{number}"}
        command, environment, http = self._command(self._overruling | facts)
        with end, self._guard:
            if self._stopping.is_set():
                return 0, False
            process = self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
                errors="replace",
                pass_fds=[number, http],
                # What a terminal sends to the parent's group is the parent's to pass on.
                process_group=0,
            )
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._hear(line)
        status = process.wait()
        with self._guard:
            self._process, self.where = None, {}
        return status, self._on_end(self, status)

    def _hear(self, line: str) -> None:
        try:
            told = json.loads(line)
            self.where = {"url": told["url"], "http_url": told["http_url"]}
        except (ValueError, KeyError, TypeError):
            return
        self._on_ready(self)


def _check(settings: BrokerSettings, count: int) -> None:
    """Raises BadRequest."""
    server, cluster = settings.server, settings.cluster
    if cluster.coordinator or cluster.nodes:
        limit = "none together with a cluster: its brokers are processes already"
        raise BadRequest("server.processes", limit, server.processes)
    if server.host in WILDCARDS and not cluster.advertise:
        limit = (
            "a name by which clients reach this machine, since processes have ports of their own"
        )
        raise BadRequest("cluster.advertise", limit, "none")
    if settings.doq.enabled:
        # Its calls are not passed on, and its port is not shared.
        raise BadRequest("doq.enabled", "false where several processes divide a directory", True)
    if find_spec("uvicorn") is None:
        raise BadRequest("server.processes", 'pip install "dejaqueue[http]" for it', count)
    firsts = (server.port, server.http_port) if server.port and server.http_port else ()
    ports = [port + 2 * number for port in firsts for number in range(count + 1)]
    if len(set(ports)) < len(ports) or max(ports, default=0) > 65_535:
        limit = f"a port that leaves room: {count} processes take every second one behind each"
        raise BadRequest("server.http_port", limit, server.http_port)


def _arguments(chosen: dict[str, Any]) -> list[str]:
    """The command line that made these options."""
    arguments = []
    for name, value in chosen.items():
        option = {"assignments": "--set", "file": "--config"}.get(name, f"--{name}")
        for one in value if name == "assignments" else () if value is None else (value,):
            arguments += [option.replace("_", "-"), str(one)]
    return arguments


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2_048)
    except OSError as error:
        raise BadRequest("server.http_port", f"a free port of {host} ({error})", port) from error
