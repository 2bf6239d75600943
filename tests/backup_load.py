"""Load on a broker, or on the brokers of a cluster, while a backup is taken of it."""

from __future__ import annotations

import threading

from dejaqueue import Client

FAR = 3_600


class Load:
    """Threads that send, ack, and move messages between two topics by transactions."""

    def __init__(self, url: str) -> None:
        self.acknowledged: list[bytes] = []
        """Payloads of singles, in the order of their replies."""
        self.acked: set[bytes] = set()
        self.committed: list[int] = []
        self._url, self._ends = url, threading.Event()
        works = (self._send, self._consume, self._transact)
        self._threads = [threading.Thread(target=one) for one in works]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        with Client(self._url) as client:
            number = 0
            while not self._ends.is_set():
                payload = b"single-%d" % number
                client.send("singles", payload, delay=FAR if number % 2 else 0)
                self.acknowledged.append(payload)
                number += 1

    def _consume(self) -> None:
        with Client(self._url) as client:
            while not self._ends.is_set():
                with client.consume("singles", idle_ms=200, prefetch=20) as messages:
                    for message in messages:
                        self.acked.add(message.payload)
                        message.ack()
                        if self._ends.is_set():
                            break

    def _transact(self) -> None:
        with Client(self._url) as client:
            number = 0
            while not self._ends.is_set():
                with client.transaction() as transaction:
                    transaction.send("left", b"pair-%d" % number, delay=FAR)
                    transaction.send("right", b"pair-%d" % number, delay=FAR)
                self.committed.append(number)
                number += 1

    def end(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()
