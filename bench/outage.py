"""What a client notices while partitions change hands: sends that wait, messages that do not come.

Room: bench. Works on threads of its own, with the public client.
Holds: one batch of each lane is on its way at a time; what is sent is due at once; times are of the
monotonic clock, in seconds.

    with Probe(url, "reminders", lanes=[range(100)]) as probe:
        since = time.monotonic()
        ...                                  # a broker dies
        probe.wait_served(since, 60)
        probe.gaps(since)                    # seconds without an answer, without a message
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from bench.systems.servers import ServerFailed
from dejaqueue import Client
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.limits import SEQUENCE_BITS

PAUSE_SECONDS = 0.005
AWAY_MS_MAX = 120_000
CONSUMED_ROWS = 1_000


class Probe:
    """Sends to partitions and receives from them, until it is closed.

    Args:
        url: of all brokers.
        lanes: partitions that one batch goes to, a row for each; a lane waits for its own answers.
        pause_seconds: between an answer and the next batch of the lane.
    """

    def __init__(
        self,
        url: str,
        topic: str,
        lanes: Sequence[Iterable[int]],
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._topic, self._pause_seconds = topic, pause_seconds
        self._lanes = [sorted(lane) for lane in lanes]
        self._answered: list[list[float]] = [[] for _ in self._lanes]
        self._arrived: dict[int, list[float]] = {
            partition: [] for lane in self._lanes for partition in lane
        }
        self._newest: dict[int, float] = dict.fromkeys(self._arrived, 0.0)
        """By partition, when the newest message that has come was sent."""
        self._client = Client(url, retry_ms_max=AWAY_MS_MAX)
        self._consuming = Client(url, retry_ms_max=AWAY_MS_MAX)
        self._closing = threading.Event()
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._guarded, args=(self._send, number))
            for number in range(len(self._lanes))
        ]
        self._threads.append(threading.Thread(target=self._guarded, args=(self._receive,)))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        try:
            self.wait_served(time.monotonic(), 60)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the threads."""
        self._closing.set()
        *senders, receiver = self._threads
        for thread in senders:
            if thread.is_alive():
                thread.join(20)
        for client in (self._client, self._consuming):  # which ends the wait for a message, too
            with suppress(DejaQError):
                client.close()
        if receiver.is_alive():
            receiver.join(20)

    def wait_served(self, since: float, seconds_max: float) -> None:
        """Return when a message that was sent after `since` has come from every partition, and
        each lane has had an answer since.

        Raises:
            ServerFailed: that took too long.
        """
        deadline = time.monotonic() + seconds_max
        while min(self._newest.values()) < since or not self._all_answered(since):
            if self._failure is not None:
                raise self._failure
            if time.monotonic() > deadline:
                late = sorted(p for p, sent in self._newest.items() if sent < since)
                raise ServerFailed(
                    f"after {seconds_max:.0f} s nothing, or no answer, came from {len(late)} of "
                    f"{len(self._newest)} partitions: {late[:10]}"
                )
            time.sleep(0.02)

    def _all_answered(self, since: float) -> bool:
        return all(times and times[-1] > since for times in self._answered)

    def gaps(self, since: float) -> tuple[list[float], list[float]]:
        """The longest time after `since` in which each lane had no answer, and that in which no
        message came from each partition, in seconds."""
        sends = [longest_gap(times, since) for times in self._answered]
        return sends, [longest_gap(times, since) for times in self._arrived.values()]

    def _guarded(self, run: object, *arguments: object) -> None:
        assert callable(run)
        try:
            run(*arguments)
        except BaseException as failure:  # noqa: BLE001 - raised by who waits
            if not self._closing.is_set():
                self._failure = failure

    def _send(self, number: int) -> None:
        partitions = pa.array(self._lanes[number], pa.int32())
        answered = self._answered[number]
        with self._client.producer(self._topic) as producer:
            while not self._closing.is_set():
                mark = time.monotonic_ns().to_bytes(8, "little")
                rows = len(partitions)
                columns = {
                    "payload": pa.array([mark] * rows, pa.binary()),
                    "due": pa.array([0] * rows, pa.int64()),
                    "partition": partitions,
                }
                sent = producer.send_batch(pa.RecordBatch.from_pydict(columns))
                sent.result().raise_for_status()
                answered.append(time.monotonic())
                self._closing.wait(self._pause_seconds)

    def _receive(self) -> None:
        consumed = self._consuming.consume_batches(
            self._topic, batch_rows=CONSUMED_ROWS, prefetch=10 * CONSUMED_ROWS
        )
        for received in consumed:
            now = time.monotonic()
            ids = received.batch.column("id").to_numpy()
            marks = received.batch.column("payload").to_pylist()
            with suppress(Unavailable):  # its broker is gone: they come again, and count again
                received.ack(wait=False)
            for partition, mark in zip((ids >> SEQUENCE_BITS).tolist(), marks, strict=True):
                if partition not in self._arrived:
                    continue
                self._arrived[partition].append(now)
                sent = int.from_bytes(mark, "little") / 1e9
                self._newest[partition] = max(self._newest[partition], sent)
            if self._closing.is_set():
                return


def longest_gap(times: Sequence[float], since: float) -> float:
    """The longest of the times between one moment and the next that lie after `since`.

    >>> longest_gap([1.0, 2.0, 5.0, 6.0], 2.5)
    2.5
    """
    after = np.array([since, *(moment for moment in times if moment > since)])
    return float(np.diff(after).max()) if len(after) > 1 else float("inf")
