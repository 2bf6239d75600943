"""Calls to one other broker, which may be made twice; they are left when it gives no sign of life.

A broker that passes a call on waits for the owner as a client waits for it: five seconds, then it
asks for the owner's clock, five seconds more, and two when it gave none the last time.

Room: flight. Knows no topic; who calls gives a function that waits.
Holds: a call that is slow at a broker that is well goes on; one that was left ends with
Unavailable, which names the owner; nothing here is waited for when the broker stops.
See: forwarding.py; client/silence_watch.py; docs/adr/0107-the-owner-of-a-call-is-asked-too.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pyarrow import flight

from dejaqueue.client.call_threads import CallThreads
from dejaqueue.client.read_stream import ReadStream, ReadStreams
from dejaqueue.client.replies import CLOCK
from dejaqueue.client.silence_watch import SilenceWatch, Waiting
from dejaqueue.errors import DejaQError, Unavailable

AT_ONCE_MAX = 256
"""Calls to one owner that wait for it at the same time; others wait for these."""

Answer = TypeVar("Answer")


class OwnerCalls:
    """Calls to one broker.

    Args:
        url: its address, for errors.
        ask: asks it for a sign of life, for this many seconds, with this key. Raises Unavailable
            if none comes.
    """

    def __init__(self, url: str, ask: Callable[[float, str | None], object]) -> None:
        self._ask = ask
        self._bearer: str | None = None
        self._calls = CallThreads(AT_ONCE_MAX)
        self._silence = SilenceWatch(self._waiting, self._asked, CLOCK, f"the broker at {url}")
        self._reads = ReadStreams(self._silence.sent)

    def _waiting(self) -> list[Waiting]:
        return [*self._calls.may_be_left(), *self._reads.are_open()]

    def _asked(self, seconds: float) -> None:
        self._ask(seconds, self._bearer)

    def make(self, call: Callable[[], Answer], bearer: str | None) -> Answer:
        """Make a call, and wait for its answer.

        Args:
            bearer: the caller's key; the question goes with that of the last one.

        Raises:
            What the call raises. Unavailable: the broker gave no sign of life.
        """
        self._bearer = bearer
        answer = self._calls.submit(call, may_be_left=True)
        self._silence.sent()
        return answer.result()

    def read(
        self,
        get: Callable[[], flight.FlightStreamReader],
        shape: Callable[[Any], Answer],
        bearer: str | None,
    ) -> ReadStream[Answer]:
        """Open a stream of rows; see ReadStream. Raises as `make`."""
        return self._reads.open(get, shape, lambda make: self.make(make, bearer))

    def drop(self, error: DejaQError) -> None:
        """Nothing comes from it any more: whoever waits for it gets this error."""
        for one in self._waiting():
            if one.waits_since_us() is not None:
                one.ended(error)

    def close(self) -> None:
        """Make no more calls. Twice is fine."""
        self.drop(Unavailable("the broker is stopping", 1_000))
        self._calls.close()
        self._silence.close()
