"""beanstalkd: jobs with a delay, pipelined by hundreds over one connection.

Room: bench. Speaks beanstalkd's text protocol itself, as no client on PyPI pipelines.
Holds: a job counts when the server has answered INSERTED or DELETED; with `-f 0` that is on disk.

Due times become delays in whole seconds, the only ones that beanstalkd knows.
"""

from __future__ import annotations

import re
import selectors
import socket
from collections.abc import Callable
from pathlib import Path

from bench.load import Load, far_load, past_load
from bench.systems.servers import Server, is_listening, new_folder, program_version
from bench.systems.system import Measured, Plan, Stopwatch, System
from dejaqueue.cli.ports import free_port
from dejaqueue.clock import SystemClock

PROGRAM = "beanstalkd"
PIPELINE = 500  # 100, 500 and 1,000 measured within 10 % of each other
IN_FLIGHT = 2
LEASE_SECONDS = 120
RECEIVE_BYTES = 1 << 18
LINE_END = b"\r\n"


class Connection:
    """One connection: sends commands without waiting, then reads that many answers."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def send(self, commands: bytes) -> None:
        """Send commands."""
        self.socket.sendall(commands)

    def read_lines(self, count: int, word: bytes) -> None:
        """Read answers of one line each; each must begin with `word`."""
        received = self._rest
        while received.count(LINE_END) < count:
            received += self._receive()
        lines = received.split(LINE_END, count)
        self._rest = lines.pop()
        wrong = [line for line in lines if not line.startswith(word)]
        if wrong:
            raise AssertionError(f"beanstalkd answered {wrong[0]!r} instead of {word!r}")

    def read_reserved(self, count: int) -> list[bytes]:
        """Read answers to `count` reserve commands; ids, fewer if nothing more is ready."""
        ids: list[bytes] = []
        received, at, answers = self._rest, 0, 0
        while answers < count:
            found = RESERVED.match(received, at)
            if found is None:
                received, at = received[at:] + self._receive(), 0
                continue
            if found.group(1) is not None:
                ids.append(found.group(1))
            at, answers = found.end(), answers + 1
        self._rest = received[at:]
        return ids

    def close(self) -> None:
        """Close it."""
        self.socket.close()

    def _receive(self) -> bytes:
        received = self.socket.recv(RECEIVE_BYTES)
        if not received:
            raise AssertionError("beanstalkd closed the connection")
        return received


RESERVED = re.compile(rb"RESERVED (\d+) 100\r\n.{100}\r\n|TIMED_OUT\r\n", re.DOTALL)


class BeanstalkdSystem(System):
    """One beanstalkd server with a binlog, synced on every write."""

    name = "beanstalkd"
    sync_ms = 0

    def __init__(self) -> None:
        self._server: Server | None = None
        self._port = 0
        self._clock = SystemClock()

    @staticmethod
    def version() -> str | None:
        """What is installed; None if it is not."""
        return program_version([PROGRAM, "-v"])

    def start(self, folder: Path) -> None:
        """Start a server on a free port and connect."""
        self._port = port = free_port()
        own = new_folder(folder, self.name)
        binlog = own / "binlog"
        binlog.mkdir()
        where = ["-l", "127.0.0.1", "-p", str(port), "-b", str(binlog)]
        command = [PROGRAM, *where, "-f", str(self.sync_ms)]
        self._server = Server(own, command, lambda: is_listening(port))
        self._wire = Connection(port)

    def stop(self) -> None:
        """Disconnect, stop the server, remove its files."""
        if self._server is not None:
            self._wire.close()
            self._server.stop()
            self._server = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"beanstalk://127.0.0.1:{self._port}"

    def pid(self) -> int:
        """Process id of the server."""
        assert self._server is not None
        return self._server.pid

    def cases(self) -> dict[str, Callable[[Plan, int], Measured]]:
        """What it can do of `throughput`."""
        return {"enqueue": self.enqueue, "lease_ack": self.lease_ack, "single": self.single}

    def enqueue(self, plan: Plan, seed: int) -> Measured:
        """Pipelined puts from one producer, due at random times ahead."""
        self._use(b"ahead")
        return self._fill(far_load(plan.rows, self._clock.now_ms(), seed), plan.seconds)

    def lease_ack(self, plan: Plan, seed: int) -> Measured:
        """Reserve and delete all that is due, pipelined, from one consumer."""
        self._use(b"due")
        filled = self._fill(past_load(plan.rows, self._clock.now_ms(), seed), plan.seconds)
        watch = Stopwatch(plan.seconds)
        acked = 0
        reserve = b"reserve-with-timeout 0\r\n" * PIPELINE
        self._wire.send(reserve)
        ids = self._wire.read_reserved(PIPELINE)
        while ids:
            more = not watch.is_over() and len(ids) == PIPELINE
            deletes = b"".join([b"delete %b\r\n" % one for one in ids])
            self._wire.send(deletes + reserve if more else deletes)
            self._wire.read_lines(len(ids), b"DELETED")
            acked += len(ids)
            ids = self._wire.read_reserved(PIPELINE) if more else []
        measured = Measured(acked, watch.seconds())
        # More than this turn filled, if the turn before ran out of time.
        if not watch.is_over() and acked < filled.rows:
            raise AssertionError(f"beanstalkd: acked {acked} of {filled.rows}")
        return measured

    def single(self, plan: Plan, seed: int) -> Measured:
        """Producers with a connection each, one put per call.

        One loop over all sockets drives them: threads would cost the server's core time, and this
        is the fastest that 64 waiting producers can be.
        """
        load = far_load(plan.rows, self._clock.now_ms(), seed)
        puts = iter(_puts(load, self._clock.now_ms()))
        wires = [socket.create_connection(("127.0.0.1", self._port)) for _ in range(plan.senders)]
        with selectors.DefaultSelector() as ready:
            watch = Stopwatch(plan.seconds)
            for wire in wires:
                wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                wire.sendall(next(puts))
                ready.register(wire, selectors.EVENT_READ)
            sent, waiting = 0, len(wires)
            while waiting:
                for key, _ in ready.select():
                    wire = key.fileobj  # type: ignore[assignment]
                    if not wire.recv(4096).startswith(b"INSERTED"):
                        raise AssertionError("beanstalkd did not insert")
                    sent += 1
                    put = None if watch.is_over() else next(puts, None)
                    if put is None:
                        waiting -= 1
                    else:
                        wire.sendall(put)
            measured = Measured(sent, watch.seconds())
        for wire in wires:
            wire.close()
        return measured

    def _use(self, name: bytes) -> None:
        self._wire.send(b"use %b\r\nwatch %b\r\n" % (name, name))
        self._wire.read_lines(1, b"USING")
        self._wire.read_lines(1, b"WATCHING")

    def _fill(self, load: Load, seconds_max: float) -> Measured:
        puts = _puts(load, self._clock.now_ms())
        watch = Stopwatch(seconds_max)
        in_flight: list[int] = []
        sent = 0
        for at in range(0, load.rows, PIPELINE):
            if watch.is_over():
                break
            part = puts[at : at + PIPELINE]
            self._wire.send(b"".join(part))
            in_flight.append(len(part))
            sent += len(part)
            if len(in_flight) == IN_FLIGHT:
                self._wire.read_lines(in_flight.pop(0), b"INSERTED")
        for count in in_flight:
            self._wire.read_lines(count, b"INSERTED")
        return Measured(sent, watch.seconds())


class BeanstalkdDefault(BeanstalkdSystem):
    """One beanstalkd server as it is by default: the binlog is synced every 50 ms."""

    sync_ms = 50

    def cases(self) -> dict[str, Callable[[Plan, int], Measured]]:
        """The same cases, under names of their own: a reply is not yet on disk."""
        return {f"{name}_not_durable": case for name, case in super().cases().items()}


def _puts(load: Load, now_ms: int) -> list[bytes]:
    """The put command of every message, made before the clock starts."""
    delays = [max(0, (due_ms - now_ms + 999) // 1000) for due_ms in load.dues_ms.tolist()]
    head = b"put 0 %%d %d 100\r\n%%b\r\n" % LEASE_SECONDS
    return [head % pair for pair in zip(delays, load.payloads(), strict=True)]
