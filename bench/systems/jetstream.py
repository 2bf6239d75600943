"""NATS JetStream: one stream on disk, and a durable pull consumer for each group.

Room: bench.
Holds: `sync_interval: always`: an ack of a publish is on disk. A message that a consumer has
fetched is pending until it is acked; a group's acks are sent, and the last batch's are waited for.

Messages are published one by one, as nats-py has no other way that keeps acks, with 1,000 of them
in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import nats.errors
from nats.js.api import AckPolicy, ConsumerConfig, StorageType, StreamConfig

from bench.load import BATCH_ROWS, Load
from bench.systems.servers import Server, is_listening, new_folder
from bench.systems.system import Measured, Stopwatch, batches
from dejaqueue.cli.ports import free_port
from dejaqueue.cluster.jetstream import find_program
from dejaqueue.errors import Refused

STREAM, SUBJECT = "bench", "bench.rows"
IN_FLIGHT = 1_000
ANSWER_SECONDS = 30
FETCH_SECONDS = 5
SHORT_SECONDS = 0.1
"""So long a fetch waits for what is being sent."""


class JetStreamGroups:
    """One server with one stream."""

    name = "jetstream"

    @staticmethod
    def left_out() -> str:
        """Why it cannot be measured here; "" = it can."""
        try:
            find_program("")
        except Refused:
            return "jetstream: the program nats-server is not installed"
        return ""

    def start(self, folder: Path) -> None:
        """Start a server on a free port."""
        self._port = port = free_port()
        place = new_folder(folder, self.name)
        (place / "nats.conf").write_text(
            f'listen: "127.0.0.1:{port}"\n'
            f'jetstream {{ store_dir: "{place / "data"}", sync_interval: always }}\n'
        )
        command = [find_program(""), "-c", str(place / "nats.conf")]
        self._server: Server | None = Server(place, command, lambda: is_listening(port))

    def stop(self) -> None:
        """Stop the server, remove its files."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def run(self, group_count: int, load: Load, seconds_max: float) -> tuple[Measured, Measured]:
        """Send a load to so many groups, then have each of them fetch and ack all of it."""
        return asyncio.run(self._run(group_count, load, seconds_max))

    def through(self, load: Load, seconds_max: float) -> Measured:
        """Send for half of the time, fetch and ack beside it with one group: what was acked."""
        return asyncio.run(self._through(load, seconds_max))

    async def _run(
        self, group_count: int, load: Load, seconds_max: float
    ) -> tuple[Measured, Measured]:
        async with self._stream(group_count) as (stream, groups):
            sent = await _fill(stream, load, seconds_max)
            watch = Stopwatch(seconds_max)
            counts = await asyncio.gather(*(_drain(one, [sent.rows], watch) for one in groups))
            return sent, Measured(sum(counts), watch.seconds())

    async def _through(self, load: Load, seconds_max: float) -> Measured:
        async with self._stream(1) as (stream, groups):
            sent: list[int] = []
            watch = Stopwatch(seconds_max)
            drained = asyncio.create_task(_drain(groups[0], sent, watch))
            sent.append((await _fill(stream, load, seconds_max / 2)).rows)
            return Measured(await drained, watch.seconds())

    @asynccontextmanager
    async def _stream(self, group_count: int) -> AsyncIterator[tuple[Any, list[Any]]]:
        """A stream that nothing is in, and so many groups of it."""
        client = await nats.connect(f"nats://127.0.0.1:{self._port}")
        stream = client.jetstream(timeout=ANSWER_SECONDS, publish_async_max_pending=IN_FLIGHT)
        try:
            await stream.add_stream(
                StreamConfig(STREAM, subjects=[SUBJECT], storage=StorageType.FILE)
            )
            yield (
                stream,
                [
                    await stream.pull_subscribe(
                        SUBJECT,
                        f"group-{number}",
                        STREAM,
                        ConsumerConfig(
                            ack_policy=AckPolicy.EXPLICIT, max_ack_pending=10 * BATCH_ROWS
                        ),
                    )
                    for number in range(group_count)
                ],
            )
            await stream.delete_stream(STREAM)
        finally:
            await client.close()


async def _fill(stream: Any, load: Load, seconds_max: float) -> Measured:
    payloads = load.payloads()
    watch = Stopwatch(seconds_max)
    sent = 0
    for part in batches(load):
        if watch.is_over():
            break
        for payload in payloads[part]:
            await stream.publish_async(SUBJECT, payload, wait_stall=FETCH_SECONDS)
        sent += part.stop - part.start
    await stream.publish_async_completed()
    return Measured(sent, watch.seconds())


async def _drain(group: Any, sent: list[int], watch: Stopwatch) -> int:
    """Fetch and ack, until it has what was sent, or the time is up.

    Args:
        sent: how many there are, once that is known.
    """
    done = 0
    while not watch.is_over() and (not sent or done < sent[0]):
        wanted = min(BATCH_ROWS, sent[0] - done) if sent else BATCH_ROWS
        try:
            found = await group.fetch(wanted, timeout=FETCH_SECONDS if sent else SHORT_SECONDS)
        except nats.errors.TimeoutError:
            if sent:
                raise
            continue  # the next ones are still being sent
        for message in found[:-1]:
            await message.ack()
        await found[-1].ack_sync(timeout=ANSWER_SECONDS)
        done += len(found)
    return done
