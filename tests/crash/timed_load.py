"""Load on a broker that is killed meanwhile: what was acknowledged, each with when."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from dejaqueue import Client, DejaQError

FAR = 3_600


def now_ms() -> int:
    return time.time_ns() // 1_000_000  # noqa: TID251 - the broker's is the machine's


class Load:
    """What was sent, acked, and committed, each with when its answer had come.

    Goes on over starts of the broker; what got no answer may be there or not.
    """

    def __init__(self, url: str) -> None:
        self.sent: list[tuple[int, bytes]] = []
        self.acked: list[tuple[int, bytes]] = []
        self.committed: list[tuple[int, bytes]] = []
        self.tried_acks: set[bytes] = set()
        self._url, self._ends = url, threading.Event()
        works = (self._send, self._consume, self._transact)
        self._threads = [threading.Thread(target=self._again, args=(one,)) for one in works]
        for thread in self._threads:
            thread.start()

    def _again(self, work: Callable[[Client], None]) -> None:
        while not self._ends.is_set():
            try:
                with Client(self._url) as client:
                    work(client)
            except DejaQError:
                self._ends.wait(0.05)

    def _send(self, client: Client) -> None:
        while not self._ends.is_set():
            payload = b"single-%d" % random.getrandbits(60)
            client.send("singles", payload, delay=FAR if random.random() < 0.5 else 0)
            self.sent.append((now_ms(), payload))

    def _consume(self, client: Client) -> None:
        while not self._ends.is_set():
            with client.consume("singles", idle_ms=200, prefetch=20) as messages:
                for message in messages:
                    self.tried_acks.add(message.payload)
                    message.ack(wait=True)
                    self.acked.append((now_ms(), message.payload))
                    if self._ends.is_set():
                        break

    def _transact(self, client: Client) -> None:
        while not self._ends.is_set():
            payload = b"pair-%d" % random.getrandbits(60)
            with client.transaction() as transaction:
                transaction.send("left", payload, delay=FAR)
                transaction.send("right", payload, delay=FAR)
            self.committed.append((now_ms(), payload))

    def end(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()


def payloads_of(client: Client, topic: str) -> list[bytes]:
    found: list[bytes] = client.peek(topic, limit=1_000_000).column("payload").to_pylist()
    return sorted(found)
