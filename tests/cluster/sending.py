"""A producer that goes on whatever happens, and what is left of what it sent."""

from __future__ import annotations

import threading

from dejaqueue import Client
from dejaqueue.errors import DejaQError
from tests.patience import PATIENCE_SECONDS


class Sending:
    """A producer's thread.

    Attributes:
        acknowledged: payloads, `topic/number/row`, of which it was said that they are durable.
    """

    def __init__(
        self,
        url: str,
        topics: list[str],
        rows: int = 20,
        filler: str = "",
        pause_s: float = 0.01,
    ) -> None:
        self.acknowledged: set[bytes] = set()
        self.failures: list[str] = []
        self._topics, self._rows, self._filler = topics, rows, filler
        self._pause_s = pause_s
        self._url, self._stop = url, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def follow(self, url: str) -> None:
        """Begin at these brokers from now on."""
        self._url = url

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            url = self._url
            with Client(url) as client:
                while url == self._url and not self._stop.is_set():
                    self._send(client, number)
                    number += 1
                    self._stop.wait(self._pause_s)

    def _send(self, client: Client, number: int) -> None:
        topic = self._topics[number % len(self._topics)]
        payloads = [f"{topic}/{number}/{row}{self._filler}".encode() for row in range(self._rows)]
        try:
            answer = client.send_batch(topic, [{"payload": one} for one in payloads])
            answer.raise_for_status()
        except DejaQError as error:  # not answered: it may be there or not
            self.failures.append(f"{type(error).__name__}: {error}")
        else:
            self.acknowledged |= set(payloads)

    def end(self) -> None:
        """Send no more, and return when the last answer came."""
        self._stop.set()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()


def drained(url: str, topics: list[str]) -> set[bytes]:
    """Everything that is in these topics, read out."""
    found: set[bytes] = set()
    with Client(url) as client:
        for topic in topics:
            while True:
                for batch in client.consume_batches(topic, idle_ms=1_000):
                    found.update(batch.batch["payload"].to_pylist())
                    batch.ack()
                counts = client.stats(topic)
                if not counts["scheduled"] + counts["leased"]:
                    break
    return found
