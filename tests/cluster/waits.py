"""How long somebody waits for one send, and for one delivery, while a cluster changes."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

from dejaqueue import Client
from dejaqueue.errors import DejaQError
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
        """Make the topic, and begin."""
        with Client(self.url) as client:
            client.create_topic(self.topic)
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=run, daemon=True) for run in (self._send, self._consume)
        ]
        for thread in self._threads:
            thread.start()

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
