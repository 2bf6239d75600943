"""How long somebody waits for one send, and for one delivery, while a cluster changes; and the load
that it changes under."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from dejaqueue import Client
from dejaqueue.errors import DejaQError
from tests.crash.load import Load
from tests.patience import PATIENCE_SECONDS, until

PAUSE_SECONDS = 0.02
LAST = b"the last one"


@dataclass
class Waits:
    """One message after the other, each sent when the one before was answered.

    Attributes:
        sends_ms: how long each send took.
        deliveries_ms: from the answer to a send, or its begin, to its delivery.
        answered, came: what was sent and answered; what was delivered.
        longest: for each name that `mark` was given, the longest of both since the mark before.
    """

    url: str
    topic: str
    sends_ms: list[float] = field(default_factory=list)
    deliveries_ms: list[float] = field(default_factory=list)
    longest: dict[str, tuple[float, float]] = field(default_factory=dict)
    answered: set[bytes] = field(default_factory=set)
    came: set[bytes] = field(default_factory=set)
    _marked: tuple[int, int] = (0, 0)

    def begin(self) -> None:
        """Make the topic, and begin; return when the first message has come: a program that starts
        on a busy machine takes seconds for it."""
        with Client(self.url) as client:
            client.create_topic(self.topic)
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=run, daemon=True) for run in (self._send, self._consume)
        ]
        for thread in self._threads:
            thread.start()
        until(lambda: self.came, "the first message has come")
        self._marked = len(self.sends_ms), len(self.deliveries_ms)

    def _send(self) -> None:
        with Client(self.url) as client:
            while not self._over.is_set():
                began = time.monotonic()
                with suppress(DejaQError):  # it has waited as long as clients do: that is seen
                    client.send(self.topic, str(began))
                    self.answered.add(str(began).encode())
                self.sends_ms.append((time.monotonic() - began) * 1_000)
                self._over.wait(PAUSE_SECONDS)

    def _consume(self) -> None:
        with Client(self.url) as client, client.consume(self.topic) as messages:
            for message in messages:
                message.ack()
                if message.payload == LAST:
                    return
                self.came.add(message.payload)
                waited = time.monotonic() - float(message.payload)
                self.deliveries_ms.append(waited * 1_000)

    def mark(self, name: str) -> None:
        """What was waited for until now belongs to this."""
        sends, deliveries = self._marked
        self._marked = len(self.sends_ms), len(self.deliveries_ms)
        found = (
            max(self.sends_ms[sends:], default=0.0),
            max(self.deliveries_ms[deliveries:], default=0.0),
        )
        self.longest[name] = found
        print(f"{name}: longest send {found[0]:.0f} ms, longest delivery {found[1]:.0f} ms")

    def end(self) -> None:
        """Stop, when all that was answered has come."""
        self._over.set()
        sending, consuming = self._threads
        sending.join(PATIENCE_SECONDS)
        try:
            until(lambda: self.answered <= self.came, "all that was sent has come")
        finally:
            with Client(self.url) as client:
                client.send(self.topic, LAST)
            consuming.join(PATIENCE_SECONDS)


@contextmanager
def under_load(url: str, topic: str) -> Iterator[Waits]:
    """Keep a topic in three shards busy, and measure waits on another one; at the end everything
    has to have come, once acked never again, and enough of it for that to mean something."""
    load, waits = Load(url, topic, partitions=3, spread=3, pause_s=0.05), Waits(url, "waits")
    load.begin()
    waits.begin()
    try:
        yield waits
    finally:
        waits.end()
        load.end()
    history = load.history
    print(f"sent={len(history.sent)} got={len(history.deliveries)} acked={len(history.acked_us)}")
    assert len(history.acked_us) > 100
    assert history.faults()[:10] == []
    assert len(waits.answered) > 20
