"""Redis streams: one log, and as many groups of consumers as wanted, each with every entry once.

Room: bench.
Holds: `appendonly yes, appendfsync always`, as in redis.py: a reply is on disk. An entry that a
group has taken is pending until it is acked, so that a crash of the consumer loses nothing.

A batch is 1,000 XADD in one MULTI, four batches in flight; a group reads 1,000 entries with one
XREADGROUP and acks them with one XACK, which travels together with its next read. What keeps up
reads each batch in the same write in which it is sent, with the ack of the one before.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

from bench.load import BATCH_ROWS, Load
from bench.systems.redis import ENQUEUE_IN_FLIGHT, RedisSystem
from bench.systems.system import Measured, Stopwatch, batches

STREAM = "stream"


class RedisStreams(RedisSystem):
    """One server with one stream."""

    name = "redis"

    def start(self, folder: Path) -> None:
        """Start a server on a free port and connect."""
        super().start(folder)
        self._groups: list[str] = []

    def make(self, group_count: int) -> None:
        """A stream that nothing is in, with so many groups."""
        self._client.flushall()
        self._groups = [f"group-{number}" for number in range(group_count)]
        for group in self._groups:
            self._client.xgroup_create(STREAM, group, id="0", mkstream=True)

    def fill(self, load: Load, seconds_max: float) -> Measured:
        """Send a load in batches of 1,000 until it is sent or the time is up."""
        payloads = load.payloads()
        watch = Stopwatch(seconds_max)
        in_flight = sent = 0
        replies: list[int] = []
        for part in batches(load):
            if watch.is_over():
                break
            adds = [("XADD", STREAM, "*", "p", payload) for payload in payloads[part]]
            self._write([("MULTI",), *adds, ("EXEC",)])
            replies.append(len(adds) + 2)
            sent += len(adds)
            in_flight += 1
            if in_flight == ENQUEUE_IN_FLIGHT:
                self._read(replies.pop(0))
                in_flight -= 1
        self._read(sum(replies))
        return Measured(sent, watch.seconds())

    def drain(self, rows: int, seconds_max: float) -> Measured:
        """Have every group read and ack so many entries, in turns, a batch each; entries in all."""
        done = dict.fromkeys(self._groups, 0)
        watch = Stopwatch(seconds_max)
        # What is on its way: which group's read, after how many acks; "" = acks alone.
        on_the_way: deque[tuple[str, int]] = deque()
        for group in self._groups:
            self._write([self._read_command(group)])
            on_the_way.append((group, 0))
        while on_the_way:
            group, acks = on_the_way.popleft()
            self._read(acks)
            if not group:
                continue
            entries = self._read_entries()
            if not entries:
                continue
            done[group] += len(entries)
            ack = ("XACK", STREAM, group, *(entry[0] for entry in entries))
            if watch.is_over() or done[group] >= rows:
                self._write([ack])
                on_the_way.append(("", 1))
            else:
                self._write([ack, self._read_command(group)])
                on_the_way.append((group, 1))
        return Measured(sum(done.values()), watch.seconds())

    def through(self, load: Load, seconds_max: float) -> Measured:
        """Send for half of the time, read and ack beside it with one group: what was acked."""
        self.make(1)
        (group,) = self._groups
        payloads, parts = load.payloads(), iter(batches(load))
        acked = 0
        acks: list[tuple[Any, ...]] = []
        on_the_way: deque[tuple[int, int]] = deque()  # replies before that of each read, entries
        watch, half = Stopwatch(seconds_max), Stopwatch(seconds_max / 2)
        while True:
            part = None if half.is_over() else next(parts, None)
            if part is not None:
                adds = [("XADD", STREAM, "*", "p", payload) for payload in payloads[part]]
                commands = [("MULTI",), *adds, ("EXEC",), *acks, self._read_command(group)]
                self._write(commands)
                on_the_way.append((len(commands) - 1, len(adds)))
                acks = []
            if part is None and not on_the_way:
                break
            if part is None or len(on_the_way) == ENQUEUE_IN_FLIGHT:
                replies, count = on_the_way.popleft()
                self._read(replies)
                entries = self._read_entries()
                if len(entries) != count:
                    raise AssertionError(f"redis: {len(entries)} of {count} entries came")
                acks.append(("XACK", STREAM, group, *(entry[0] for entry in entries)))
                acked += count
        self._write(acks)
        self._read(len(acks))
        return Measured(acked, watch.seconds())

    def _read_entries(self) -> list[Any]:
        """What came of the one stream: a list of pairs, or in the newer protocol an object."""
        found = self._wire.read_response()
        streams = dict(found or ())
        return list(streams.get(STREAM.encode(), ()))

    def _read_command(self, group: str) -> tuple[Any, ...]:
        return ("XREADGROUP", "GROUP", group, "one", "COUNT", BATCH_ROWS, "STREAMS", STREAM, ">")
