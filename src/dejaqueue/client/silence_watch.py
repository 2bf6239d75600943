"""Notices a broker that is reachable and silent: paused, hung, or cut off by the network.

Such a connection does not break by itself for minutes, and a caller would wait as long for a reply.
A call that may be made again is watched as a stream is.

Room: client. One thread for each connection, which sleeps while no reply is waited for.
Holds: a broker that is merely slow is not given up: it is asked for its clock, and answers that;
who comes to one that was silent a moment ago waits for a short question alone.
See: flight_transport.py, whose write streams it ends; call_threads.py, whose calls it ends;
consuming/consume_core.py, which pings.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from dejaqueue.clock import Clock
from dejaqueue.errors import DejaQError, Unavailable

LOOK_SECONDS = 2.0
SILENT_SECONDS_MAX = 5.0
"""A stream that has waited this long for a reply asks the broker for a sign of life …"""
ANSWER_SECONDS_MAX = 5.0
"""… and gives it this long to answer."""
AGAIN_LOOK_SECONDS = 0.1
AGAIN_SECONDS_MAX = 2.0
"""A broker that gave no sign of life is asked at once when something waits for it again, and has
this long: whoever comes next does not wait anew. One that answers is waited for as before."""


class Waiting(Protocol):
    """A stream, or a call, that may wait for replies."""

    def waits_since_us(self) -> int | None:
        """Since when it waits for a reply, by the clock; None = it waits for none. Each reply that
        comes is a new beginning."""
        ...

    def ended(self, error: DejaQError | None) -> None:
        """No reply comes any more."""
        ...


class Consumer(Protocol):
    """A stream of deliveries."""

    heard_us: int
    end: DejaQError | None

    def break_off(self, error: DejaQError) -> None:
        """End it as if the connection broke."""
        ...


@dataclass(frozen=True, slots=True)
class WaitingConsumer:
    """A consumer, which waits all the time; what it hears of the broker is a sign of life."""

    channel: Consumer

    def waits_since_us(self) -> int | None:
        """See Waiting."""
        return None if self.channel.end is not None else self.channel.heard_us

    def ended(self, error: DejaQError | None) -> None:
        """See Waiting."""
        self.channel.break_off(error or Unavailable("the broker does not answer"))


class SilenceWatch:
    """Watches the streams of one connection.

    Args:
        streams: those that are open.
        ask: asks the broker for a sign of life, for this many seconds. Raises Unavailable if none
            comes.
        clock: elapsed time.
        where: whom errors name.
    """

    def __init__(
        self,
        streams: Callable[[], Iterable[Waiting]],
        ask: Callable[[float], object],
        clock: Clock,
        where: str = "the broker",
    ) -> None:
        self._streams, self._ask, self._clock, self._where = streams, ask, clock, where
        self._sent = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._mutex = threading.Lock()
        self._is_lost = False
        """Whether it gave no sign of life when it was asked last."""

    def sent(self) -> None:
        """Something was sent that is answered. Cheap."""
        if self._sent.is_set():
            return
        self._sent.set()
        with self._mutex:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="dejaq-silence", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            self._sent.wait()
            self._sent.clear()
            while not self._closed.wait(AGAIN_LOOK_SECONDS if self._is_lost else LOOK_SECONDS):
                if not self.look():
                    break
            if self._closed.is_set():
                return

    def look(self) -> bool:
        """End the streams of a broker that is silent; False if none waits for anything."""
        silent, waits = self._silent()
        if silent:
            try:
                self._ask(AGAIN_SECONDS_MAX if self._is_lost else ANSWER_SECONDS_MAX)
                self._is_lost = False
            except Unavailable as error:
                wrong = Unavailable(f"{self._where} does not answer: {error}")
                wrong.is_silent = True
                still, _ = self._silent()
                self._is_lost = True
                for stream, since_us in still.items():
                    if silent.get(stream) == since_us:  # else it was answered, and waits again
                        stream.ended(wrong)
            except DejaQError:
                self._is_lost = False  # it refuses, so it is there
        return waits

    def _silent(self) -> tuple[dict[Waiting, int], bool]:
        """Streams that have waited for too long, and since when; whether any waits at all."""
        since = [(stream, stream.waits_since_us()) for stream in self._streams()]
        patience_us = 0 if self._is_lost else int(SILENT_SECONDS_MAX * 1e6)
        before = self._clock.now_us() - patience_us
        silent = {stream: at for stream, at in since if at is not None and at <= before}
        return silent, any(at is not None for _, at in since)

    def close(self) -> None:
        """Watch no more; twice is fine."""
        self._closed.set()
        self._sent.set()
