"""Redis as a durable timeline: a sorted set by due time, a hash of payloads, leases by script.

Room: bench.
Holds: `appendonly yes, appendfsync always`: a reply is on disk. A leased message is in `leased`
under the end of its lease until it is acked, so that a crash of the consumer loses nothing.

What was tried for the fastest form, 300,000 messages, two cores, messages per second:

| enqueue, 1,000 at a time | |
| --- | --- |
| redis-py pipeline of 1,000 ZADD + HSET | 84 K |
| the same, packed by hand | 110 K |
| a script with all members as arguments | 195 K |
| a script with packed arguments | 230 K |
| MULTI, one ZADD and one HSET of 1,000, EXEC | 255 K |
| **the same with four batches in flight** | **350 to 390 K** |
| the same from two or four threads | 310 to 330 K |

A pipeline of single commands is read 16 KiB at a time and synced after each, and its commands are
parsed one by one: one command with a thousand members is what makes Redis fast. Lease and ack: two
leases in flight, each sent together with the ack of the one before: 300 K (one in flight: 275 K).
`io-threads 2` was slower on two cores. Persistence by snapshots and rewriting of the append-only
file are off, as both only cost time here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import redis
import redis.asyncio

from bench.load import BATCH_ROWS, Int64s, Load, far_load, past_load
from bench.systems.servers import Server, is_listening, new_folder, program_version
from bench.systems.system import Measured, Plan, Stopwatch, System, batches
from dejaqueue.cli.ports import free_port
from dejaqueue.clock import SystemClock

LEASE_MS = 30_000
ENQUEUE_IN_FLIGHT = 4
LEASES_IN_FLIGHT = 2
PROGRAM = "redis-server"

LEASE_SCRIPT = """
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
local count = #ids
if count == 0 then return {{}, {}} end
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, count - 1)
local leased = {}
for i = 1, count do leased[2 * i - 1] = ARGV[3]; leased[2 * i] = ids[i] end
redis.call('ZADD', KEYS[2], unpack(leased))
return {ids, redis.call('HMGET', KEYS[3], unpack(ids))}
"""
"""KEYS due, leased, payloads; ARGV now, how many, end of the lease. Answers ids and payloads."""

ACK_SCRIPT = """
local count = redis.call('ZREM', KEYS[1], unpack(ARGV))
redis.call('HDEL', KEYS[2], unpack(ARGV))
return count
"""
"""KEYS leased, payloads; ARGV ids. Answers how many were leased."""

SEND_SCRIPT = """
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
return redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
"""
"""KEYS due, payloads; ARGV id, due, payload: one message."""

DUE, LEASED, PAYLOADS = b"due", b"leased", b"payloads"
ENQUEUE_REPLIES = 4  # MULTI, two times QUEUED, EXEC


class RedisSystem(System):
    """One Redis server and one client connection with several batches in flight."""

    name = "redis"

    def __init__(self) -> None:
        self._server: Server | None = None
        self._port = 0
        self._clock = SystemClock()

    @staticmethod
    def version() -> str | None:
        """What is installed; None if it is not."""
        return program_version([PROGRAM, "--version"])

    def start(self, folder: Path) -> None:
        """Start a server on a free port and connect."""
        self._port = port = free_port()
        settings = {
            "bind": "127.0.0.1",
            "port": str(port),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "set-proc-title": "no",  # by its environment the reaper knows it
            "auto-aof-rewrite-percentage": "0",
        }
        command = [PROGRAM, *chain.from_iterable((f"--{k}", v) for k, v in settings.items())]
        self._server = Server(new_folder(folder, self.name), command, lambda: is_listening(port))
        self._client = redis.Redis(port=port)
        self._wire = self._client.connection_pool.get_connection()
        scripts = (LEASE_SCRIPT, ACK_SCRIPT, SEND_SCRIPT)
        self._lease, self._ack, self._send = (self._client.script_load(s) for s in scripts)

    def stop(self) -> None:
        """Disconnect, stop the server, remove its files."""
        if self._server is not None:
            self._client.close()
            self._wire.disconnect()  # type: ignore[no-untyped-call]
            self._server.stop()
            self._server = None

    def pid(self) -> int:
        """Process id of the server."""
        assert self._server is not None
        return self._server.pid

    def cases(self) -> dict[str, Callable[[Plan, int], Measured]]:
        """What it can do of `throughput`."""
        return {"enqueue": self.enqueue, "lease_ack": self.lease_ack, "single": self.single}

    def enqueue(self, plan: Plan, seed: int) -> Measured:
        """Batches of 1,000 from one producer, due at random times ahead."""
        self._client.flushall()
        load = far_load(plan.rows, self._clock.now_ms(), seed)
        return self.fill(load, plan.seconds)

    def lease_ack(self, plan: Plan, seed: int) -> Measured:
        """Lease and ack all that is due, 1,000 at a time, from one consumer."""
        self._client.flushall()
        filled = self.fill(past_load(plan.rows, self._clock.now_ms(), seed), plan.seconds)
        watch = Stopwatch(plan.seconds)
        acked = self._drain(watch)
        measured = Measured(acked, watch.seconds())
        # More, if a run before was cut short by its time; fewer is a loss.
        if not watch.is_over() and acked < filled.rows:
            raise AssertionError(f"redis: acked {acked} of {filled.rows}")
        return measured

    def single(self, plan: Plan, seed: int) -> Measured:
        """Producers with a connection each, one message per call, by redis-py's asyncio client."""
        self._client.flushall()
        load = far_load(plan.rows, self._clock.now_ms(), seed)
        return asyncio.run(self._send_singles(load, plan))

    def fill(self, load: Load, seconds_max: float) -> Measured:
        """Send a load in batches of 1,000 until it is sent or the time is up."""
        ids, dues, payloads = _texts(load.rows), _texts_of(load.dues_ms), load.payloads()
        parts = batches(load)
        watch = Stopwatch(seconds_max)
        in_flight = sent = 0
        for part in parts:
            if watch.is_over():
                break
            scores = chain.from_iterable(zip(dues[part], ids[part], strict=True))
            fields = chain.from_iterable(zip(ids[part], payloads[part], strict=True))
            self._write(
                [("MULTI",), ("ZADD", DUE, *scores), ("HSET", PAYLOADS, *fields), ("EXEC",)]
            )
            sent += part.stop - part.start
            in_flight += 1
            if in_flight == ENQUEUE_IN_FLIGHT:
                self._read(ENQUEUE_REPLIES)
                in_flight -= 1
        self._read(ENQUEUE_REPLIES * in_flight)
        return Measured(sent, watch.seconds())

    def lease_batch(self) -> tuple[list[bytes], list[bytes]]:
        """Lease up to 1,000 due messages in one round trip: ids and payloads."""
        self._write([self._lease_command()])
        ids, payloads = self._wire.read_response()
        return ids, payloads

    def ack_batch(self, ids: list[bytes]) -> int:
        """Ack leased messages in one round trip; how many were still leased."""
        self._write([("EVALSHA", self._ack, 2, LEASED, PAYLOADS, *ids)])
        count: int = self._wire.read_response()
        return count

    def _drain(self, watch: Stopwatch) -> int:
        """Keep LEASES_IN_FLIGHT leases in flight, each with an ack; return what was acked."""
        acked = 0
        expected: list[bool] = []  # of each call in flight: does an ack's reply come first?
        for _ in range(LEASES_IN_FLIGHT):
            self._write([self._lease_command()])
            expected.append(False)
        while expected:
            if expected.pop(0):
                acked += self._wire.read_response()
            ids, _ = self._wire.read_response()
            if not ids:
                continue
            ack = ("EVALSHA", self._ack, 2, LEASED, PAYLOADS, *ids)
            if watch.is_over():
                self._write([ack])
                # The replies still due come in order: those of earlier calls first.
                for with_ack in expected:
                    acked += self._wire.read_response() if with_ack else 0
                    self._wire.read_response()
                return int(acked + self._wire.read_response())
            self._write([ack, self._lease_command()])
            expected.append(True)
        return acked

    async def _send_singles(self, load: Load, plan: Plan) -> Measured:
        payloads, dues = load.payloads(), load.dues_ms.tolist()
        client = redis.asyncio.Redis(port=self._port, max_connections=plan.senders)
        sent = 0
        rows = iter(range(load.rows))
        watch = Stopwatch(plan.seconds)

        async def sender() -> None:
            nonlocal sent
            async with client.client() as own:  # a connection of its own
                for row in rows:
                    await own.evalsha(
                        self._send, 2, DUE, PAYLOADS, str(row), str(dues[row]), payloads[row]
                    )
                    sent += 1
                    if watch.is_over():
                        return

        await asyncio.gather(*(sender() for _ in range(plan.senders)))
        measured = Measured(sent, watch.seconds())
        await client.aclose()
        return measured

    def _lease_command(self) -> tuple[Any, ...]:
        now_ms = self._clock.now_ms()
        keys = (DUE, LEASED, PAYLOADS)
        return ("EVALSHA", self._lease, 3, *keys, now_ms, BATCH_ROWS, now_ms + LEASE_MS)

    def _write(self, commands: list[tuple[Any, ...]]) -> None:
        packed = self._wire.pack_commands(commands)  # type: ignore[no-untyped-call]
        self._wire.send_packed_command(packed)  # type: ignore[no-untyped-call]

    def _read(self, count: int) -> None:
        for _ in range(count):
            self._wire.read_response()


def _texts(rows: int) -> list[bytes]:
    return [b"%d" % row for row in range(rows)]


def _texts_of(numbers: Int64s) -> list[bytes]:
    return [b"%d" % number for number in numbers.tolist()]
