"""The load for a client that blocks: a thread for each connection that sends.

Room: bench. Answers what load.py prints.
Holds: connections are open and warm before a clock starts; a case ends with its last answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from bench.peers.message import WARM_US, payload_of, time_of
from bench.peers.peer import Consumer, Peer, Queue, Sender
from bench.peers.said import Said, Taken, pauses
from dejaqueue.clock import SystemClock


class ThreadLoad:
    """Senders and a consumer of one queue at a time."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._clock = SystemClock()
        self._senders: list[Sender] = []
        self._consumer: Consumer | None = None
        self._messages: Iterator[bytes] = iter(())

    def make(self, queue: Queue) -> None:
        """See Peer.make."""
        self._peer.make(queue)

    def open(self, queue: Queue, connections: int) -> None:
        """Connect so many senders, and send a message by each that counts for nothing."""
        self._senders = [self._peer.sender(queue) for _ in range(connections)]
        for sender in self._senders:
            sender.send(payload_of(WARM_US))

    def listen(self, queue: Queue, idle_seconds: float) -> None:
        """Connect a consumer, and take a message, which counts for nothing; then it is warm.

        From then on it ends when none has come for so long.
        """
        self._consumer = self._peer.consumer(queue)
        self._messages = self._consumer.messages(idle_seconds)
        next(self._messages)
        self._consumer.ack()

    def send(self, seconds: float) -> Said:
        """Each sender sends one message after the other for so long."""
        counts = [0] * len(self._senders)
        begin = threading.Barrier(len(self._senders) + 1)

        def run(index: int) -> None:
            send, sent = self._senders[index].send, 0
            begin.wait()
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                send(payload_of(1))
                sent += 1
            counts[index] = sent

        if len(self._senders) == 1:
            begin = threading.Barrier(1)
            return _timed(lambda: run(0), counts)
        return _timed_threads(run, begin, counts)

    def pace(self, per_second: int, delays_ms: list[int], rows: int) -> Said:
        """One sender sends so many at an even rate, each with its delay in turn; none = at once."""
        (sender,) = self._senders
        start, processor = time.perf_counter(), time.process_time()
        for number, pause in enumerate(pauses(start, per_second, rows)):
            if pause > 0:
                time.sleep(pause)
            if delays_ms:
                delay_ms = delays_ms[number % len(delays_ms)]
                due_ms = self._clock.now_ms() + delay_ms
                sender.send_later(payload_of(1_000 * due_ms), due_ms, delay_ms)
            else:
                sender.send(payload_of(self._clock.now_us()))
        return Said(rows, time.perf_counter() - start, time.process_time() - processor)

    def take(self, rows: int, seconds: float) -> Taken:
        """Take and ack so many, one by one, for so long at most, or until none comes any more."""
        consumer, now_us = self._consumer, self._clock.now_us
        assert consumer is not None
        late_us: list[int] = []
        start = last = time.perf_counter()
        processor = time.process_time() + consumer.processor_seconds()
        for payload in self._messages:
            received_us = now_us()
            consumer.ack()
            at_us = time_of(payload)
            if at_us == WARM_US:
                continue
            late_us.append(received_us - at_us)
            last = time.perf_counter()
            if len(late_us) == rows or last - start > seconds:
                consumer.finish()
                last = time.perf_counter()
                break
        spent = time.process_time() + consumer.processor_seconds() - processor
        return Taken(len(late_us), last - start, spent, late_us)

    def close(self) -> None:
        """Disconnect all."""
        for sender in self._senders:
            sender.close()
        self._senders = []
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _timed(run: Callable[[], None], counts: list[int]) -> Said:
    start, processor = time.perf_counter(), time.process_time()
    run()
    took, spent = time.perf_counter() - start, time.process_time() - processor
    return Said(sum(counts), took, spent)


def _timed_threads(run: Callable[[int], None], begin: threading.Barrier, counts: list[int]) -> Said:
    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(counts))]
    for thread in threads:
        thread.start()

    def rest() -> None:
        begin.wait()
        for thread in threads:
            thread.join()

    return _timed(rest, counts)
