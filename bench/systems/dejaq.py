"""DejaQ as its users run it: `dejaq serve` on a directory, and the public client.

Room: bench. The only file that imports the client.
Holds: nothing here that a user cannot do; every message that counts is durable (`acks=all`), and
every ack that counts was confirmed.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.load import BATCH_ROWS, PAYLOAD_BYTES, Load, far_load, past_load
from bench.systems.servers import Server, new_folder, start_helper
from bench.systems.system import Measured, Plan, Stopwatch, System, batches
from dejaqueue import AsyncClient, Client, __version__
from dejaqueue.clock import SystemClock

LISTENING = re.compile(r"dejaq://[\w.:-]+")
DOQ_LISTENING = re.compile(r"DOQ's gRPC at ([\w.]+:\d+)")
HTTP_LISTENING = re.compile(r"http://[\w.:-]+")
PREFETCH_ROWS = 16_000
FILL_ROWS = 8_000
SENDER_PROCESSES = 4
SILENCE_MS = 5_000
"""A consumer that gets nothing for so long has all there is."""

SCHEMA = pa.schema(
    [pa.field("payload", pa.binary(), nullable=False), pa.field("due", pa.int64(), nullable=False)]
)


class DejaqSystem(System):
    """One broker in a process of its own, and one client.

    Args:
        journal: URL of where messages are kept; None = a directory of its own.
        settings: of the broker, each `group.name=value`.
    """

    name = "dejaq"

    def __init__(self, journal: str | None = None, settings: Sequence[str] = ()) -> None:
        self._journal, self._settings = journal, settings
        self._server: Server | None = None
        self._folder: Path | None = None
        self._topics = 0
        self.url = ""
        self.http_url = ""
        self.clock = SystemClock()

    @staticmethod
    def version() -> str | None:
        """The version of this source."""
        return __version__

    def start(self, folder: Path) -> None:
        """Start a broker on any free port and connect."""
        self._folder = new_folder(folder, self.name)
        self._serve()

    def restart(self) -> float:
        """Stop the broker gracefully and start it again; seconds from start to listening."""
        assert self._server is not None
        self.client.close()
        self._server.stop(keep_folder=True)
        start = time.perf_counter()
        self._serve()
        return time.perf_counter() - start

    def stop(self) -> None:
        """Disconnect, stop the broker, remove its files."""
        if self._server is not None:
            self.client.close()
            self._server.stop()
            self._server = None

    def crash(self) -> None:
        """SIGKILL to the broker, as a machine that fails."""
        assert self._server is not None
        self.client.close()
        self._server.kill()

    def pid(self) -> int:
        """Process id of the broker."""
        assert self._server is not None
        return self._server.pid

    def cases(self) -> dict[str, Callable[[Plan, int], Measured]]:
        """What it can do of `throughput`."""
        return {
            "enqueue": self.enqueue,
            "enqueue_from_bytes": self.enqueue_from_bytes,
            "enqueue_one_call_each": self.enqueue_one_call_each,
            "lease_ack": self.lease_ack,
            "lease_ack_to_bytes": self.lease_ack_to_bytes,
            "ack_one_by_one": self.ack_one_by_one,
            "single": self.single,
            "single_asyncio": self.single_asyncio,
            "single_4_programs": self.single_programs,
        }

    def new_topic(self, **settings: Any) -> str:
        """Create a topic that nothing is in."""
        self._topics += 1
        name = f"topic-{self._topics}"
        self.client.create_topic(name, **settings)
        return name

    def enqueue(self, plan: Plan, seed: int) -> Measured:
        """A `producer()`, `send_batch` after `send_batch` of 1,000; it keeps several on the way."""
        load = far_load(plan.rows, self.clock.now_ms(), seed)
        return self.fill(self.new_topic(), load, plan.seconds)

    def enqueue_from_bytes(self, plan: Plan, seed: int) -> Measured:
        """The same from lists of Python bytes and ints, which are made into columns on the way."""
        load = far_load(plan.rows, self.clock.now_ms(), seed)
        payloads, dues_ms = load.payloads(), load.dues_ms.tolist()

        def columns(part: slice) -> pa.RecordBatch:
            arrays = [pa.array(payloads[part], pa.binary()), pa.array(dues_ms[part], pa.int64())]
            return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

        return self.send(self.new_topic(), batches(load), columns, plan.seconds)

    def enqueue_one_call_each(self, plan: Plan, seed: int) -> Measured:
        """A call of `send_batch` for each 1,000, one after the other: no batch overlaps another."""
        topic = self.new_topic()
        load = far_load(plan.rows, self.clock.now_ms(), seed)
        ready = [record_batch(load, part) for part in batches(load)]
        sent = 0
        watch = Stopwatch(plan.seconds)
        for batch in ready:
            if watch.is_over():
                break
            self.client.send_batch(topic, batch).raise_for_status()
            sent += batch.num_rows
        return Measured(sent, watch.seconds())

    def lease_ack(self, plan: Plan, seed: int) -> Measured:
        """One consumer of batches of 1,000, each acked as a whole."""
        topic = self.new_topic()
        filled = self.fill(topic, past_load(plan.rows, self.clock.now_ms(), seed), plan.seconds)
        return self.drain(topic, filled.rows, plan.seconds)

    def lease_ack_to_bytes(self, plan: Plan, seed: int) -> Measured:
        """The same, with every payload made into a Python bytes object."""
        topic = self.new_topic()
        filled = self.fill(topic, past_load(plan.rows, self.clock.now_ms(), seed), plan.seconds)
        return self.drain(topic, filled.rows, plan.seconds, to_bytes=True)

    def ack_one_by_one(self, plan: Plan, seed: int) -> Measured:
        """One consumer that acks each message by itself, until all acks are confirmed."""
        topic = self.new_topic()
        filled = self.fill(topic, past_load(plan.rows, self.clock.now_ms(), seed), plan.seconds)
        acked = 0
        watch = Stopwatch(plan.seconds)
        with self.client.consume(topic, prefetch=PREFETCH_ROWS, idle_ms=SILENCE_MS) as consumer:
            for message in consumer:
                message.ack()
                acked += 1
                if acked >= filled.rows or watch.is_over():
                    break
        return Measured(acked, watch.seconds())

    def single(self, plan: Plan, seed: int) -> Measured:
        """Threads that share one client, `send` after `send`."""
        load = far_load(plan.rows, self.clock.now_ms(), seed)
        return send_singles(self.client, self.new_topic(), load, plan.senders, plan.seconds)

    def single_asyncio(self, plan: Plan, seed: int) -> Measured:
        """Coroutines that share one asynchronous client."""
        load = far_load(plan.rows, self.clock.now_ms(), seed)
        return asyncio.run(self._send_singles(self.new_topic(), load, plan))

    def single_programs(self, plan: Plan, seed: int) -> Measured:
        """Four programs with a client each, which as many threads as make 64 share."""
        topic = self.new_topic()
        threads = max(1, plan.senders // SENDER_PROCESSES)
        arguments = (self.url, topic, threads, plan.seconds, plan.rows, seed)
        children = [start_helper("bench.sender", *arguments) for _ in range(SENDER_PROCESSES)]
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        answers = [child.communicate()[0].split() for child in children]
        sent = sum(int(count) for count, _ in answers)
        return Measured(sent, max(float(seconds) for _, seconds in answers))

    def fill(
        self,
        topic: str,
        load: Load,
        seconds_max: float,
        batch_rows: int = BATCH_ROWS,
        **columns: pa.Array,
    ) -> Measured:
        """Send a load in batches until it is sent or the time is up; `columns`: more, by name."""
        parts = batches(load, batch_rows)

        def batch_of(part: slice) -> pa.RecordBatch:
            batch = record_batch(load, part)
            for name, column in columns.items():
                batch = batch.append_column(name, column[part])
            return batch

        return self.send(topic, parts, batch_of, seconds_max)

    def drain(
        self,
        topic: str,
        rows: int,
        seconds_max: float,
        *,
        to_bytes: bool = False,
        left: int = 0,
        look: Callable[[pa.RecordBatch], None] | None = None,
    ) -> Measured:
        """Consume and ack `rows` messages, until all acks are confirmed or the time is up.

        Args:
            topic: whose messages.
            rows: how many are due.
            seconds_max: end after so long.
            to_bytes: make Python bytes of the payloads.
            left: how many the topic must have afterwards, if the time was not up.
            look: called with each batch.
        """
        acked = 0
        watch = Stopwatch(seconds_max)
        consumed = self.client.consume_batches(
            topic, batch_rows=BATCH_ROWS, prefetch=PREFETCH_ROWS, idle_ms=SILENCE_MS
        )
        for batch in consumed:
            if to_bytes:
                batch.batch.column("payload").to_pylist()
            if look is not None:
                look(batch.batch)
            acked += len(batch)
            # The last ack is waited for; acks are settled in order, so all before it are done.
            is_last = acked >= rows or watch.is_over()
            batch.ack(wait=is_last)
            if is_last:
                break
        seconds = watch.seconds()
        if seconds < seconds_max:
            self.check_left(topic, left)
        return Measured(acked, seconds)

    def check_left(self, topic: str, left: int = 0) -> None:
        """Raise AssertionError if the broker does not count so many messages."""
        counted = self.count_live(topic)
        if counted != left:
            raise AssertionError(f"dejaq: {topic} has {counted} messages instead of {left}")

    def count_live(self, topic: str) -> int:
        """How many live messages the broker counts in a topic."""
        stats = self.client.stats(topic)
        return int(stats["scheduled"] + stats["leased"])

    def send(
        self,
        topic: str,
        parts: list[slice],
        columns: Callable[[slice], pa.RecordBatch],
        seconds_max: float,
    ) -> Measured:
        """Send the batches that `columns` makes of each part, until the time is up."""
        sent = 0
        watch = Stopwatch(seconds_max)

        def unsent() -> Iterator[pa.RecordBatch]:
            for part in parts:
                if watch.is_over():
                    return
                yield columns(part)

        with self.client.producer(topic) as producer:
            answers = [producer.send_batch(batch) for batch in unsent()]
            for answer in answers:
                result = answer.result()
                result.raise_for_status()
                sent += len(result)
            return Measured(sent, watch.seconds())

    async def _send_singles(self, topic: str, load: Load, plan: Plan) -> Measured:
        payloads, dues_ms = load.payloads(), load.dues_ms.tolist()
        rows = iter(range(load.rows))
        sent = 0
        async with AsyncClient(self.url) as client:
            await client.send(topic, payloads[0], due=dues_ms[0])
            watch = Stopwatch(plan.seconds)

            async def sender() -> None:
                nonlocal sent
                for row in rows:
                    await client.send(topic, payloads[row], due=dues_ms[row])
                    sent += 1
                    if watch.is_over():
                        return

            await asyncio.gather(*(sender() for _ in range(plan.senders)))
            return Measured(sent, watch.seconds())

    def _serve(self) -> None:
        assert self._folder is not None
        folder = self._folder
        command = [sys.executable, "-m", "dejaqueue", "serve"]
        command += ["--data", self._journal or str(folder / "data"), "--port", "0"]
        if self._journal is not None:
            command += ["--set", f"journal.mirror={folder / 'mirror'}"]
        for setting in self._settings:
            command += ["--set", setting]

        def is_listening() -> bool:
            return LISTENING.search((folder / "server.log").read_text()) is not None

        self._server = Server(folder, command, is_listening)
        found = LISTENING.search(self._server.log_text())
        assert found is not None
        self.url = found.group()
        over_http = HTTP_LISTENING.search(self._server.log_text())
        self.http_url = "" if over_http is None else over_http.group()
        self.client = Client(self.url)

    @property
    def doq_address(self) -> str:
        """Host and port of its gRPC in DOQ's manner; it was started with that."""
        assert self._server is not None
        found = DOQ_LISTENING.search(self._server.log_text())
        assert found is not None
        return found[1]


def send_singles(
    client: Client, topic: str, load: Load, threads: int, seconds_max: float
) -> Measured:
    """Threads that share a client send one message per call, until the time is up."""
    payloads, dues_ms = load.payloads(), load.dues_ms.tolist()
    counts = [0] * threads
    client.send(topic, payloads[0], due=dues_ms[0])
    begin = threading.Barrier(threads + 1)
    watch = Stopwatch(seconds_max)

    def sender(index: int) -> None:
        begin.wait()
        sent = 0
        for row in range(index, load.rows, threads):
            client.send(topic, payloads[row], due=dues_ms[row])
            sent += 1
            if watch.is_over():
                break
        counts[index] = sent

    running = [threading.Thread(target=sender, args=(index,)) for index in range(threads)]
    for thread in running:
        thread.start()
    watch = Stopwatch(seconds_max)
    begin.wait()
    for thread in running:
        thread.join()
    return Measured(sum(counts), watch.seconds())


def record_batch(load: Load, part: slice) -> pa.RecordBatch:
    """Columns of a part of the load, without a copy."""
    rows, size = part.stop - part.start, PAYLOAD_BYTES
    block = pa.py_buffer(load.block).slice(part.start * size, rows * size)
    offsets = pa.py_buffer(np.arange(0, (rows + 1) * size, size, dtype=np.int32))
    payloads = pa.Array.from_buffers(pa.binary(), rows, [None, offsets, block])
    return pa.RecordBatch.from_arrays([payloads, pa.array(load.dues_ms[part])], schema=SCHEMA)
