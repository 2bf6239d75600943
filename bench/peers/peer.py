"""What the load needs of a queue: make one, send, send for later, take and ack one by one.

Room: bench. The contract; one file per queue beside this one.
Holds: `send` and `send_later` return when the server has confirmed the message, by whatever its
client offers. `ack` acks the message that came last; whether it waits for an answer is as the
client does it, and `finish` waits for what is still open where the protocol can tell.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

PREFETCH = 100
"""Messages that a consumer has ahead, where its protocol sends ahead."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as `make` has made it.

    Attributes:
        name: new in its server; letters, digits and `_`.
        pattern: how it delays, where there is more than one way; else "".
        delays_ms: the delays that will be asked for, as some need a place for each.
        is_waited_on: True if a consumer waits for what is sent: then it must be woken.
    """

    name: str
    pattern: str = ""
    delays_ms: tuple[int, ...] = ()
    is_waited_on: bool = False


class Sender(ABC):
    """One connection that sends."""

    @abstractmethod
    def send(self, payload: bytes) -> None:
        """Send a message that is due at once."""

    def send_later(self, payload: bytes, due_ms: int, delay_ms: int) -> None:
        """Send a message that is due then, which is `delay_ms` from now: whichever it knows.

        Left out by a peer that has no delays, which is then not asked for them.
        """
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""


class Consumer(ABC):
    """One connection that takes."""

    @abstractmethod
    def messages(self, idle_seconds: float) -> Iterator[bytes]:
        """Payloads, one at a time, until none has come for so long."""

    @abstractmethod
    def ack(self) -> None:
        """Ack the message that came last."""

    def finish(self) -> None:  # noqa: B027  most acks are answered one by one
        """Take no more, and return when all acks have arrived, where that can be known."""

    def processor_seconds(self) -> float:
        """Processor time so far of programs of its own, which are not this one."""
        return 0.0

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""


class Peer(ABC):
    """A queue server, by a client that blocks: its connections are driven by threads."""

    @abstractmethod
    def make(self, queue: Queue) -> None:
        """Make a queue that nothing is in."""

    @abstractmethod
    def sender(self, queue: Queue) -> Sender:
        """Connect, to send."""

    @abstractmethod
    def consumer(self, queue: Queue) -> Consumer:
        """Connect, to take."""


class AsyncSender(ABC):
    """One connection that sends."""

    @abstractmethod
    async def send(self, payload: bytes) -> None:
        """Send a message that is due at once."""

    async def send_later(self, payload: bytes, due_ms: int, delay_ms: int) -> None:
        """Send a message that is due then, which is `delay_ms` from now: whichever it knows.

        Left out by a peer that has no delays, which is then not asked for them.
        """
        raise NotImplementedError

    @abstractmethod
    async def close(self) -> None:
        """Disconnect."""


class AsyncConsumer(ABC):
    """One connection that takes."""

    @abstractmethod
    def messages(self) -> AsyncIterator[bytes]:
        """Payloads, one at a time, for ever."""

    @abstractmethod
    async def ack(self) -> None:
        """Ack the message that came last."""

    async def finish(self) -> None:  # noqa: B027  most acks are answered one by one
        """Take no more, and return when all acks have arrived, where that can be known."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect."""


class AsyncPeer(ABC):
    """A queue server, by a client of asyncio: its connections share an event loop."""

    @abstractmethod
    async def make(self, queue: Queue) -> None:
        """Make a queue that nothing is in."""

    @abstractmethod
    async def sender(self, queue: Queue) -> AsyncSender:
        """Connect, to send."""

    @abstractmethod
    async def consumer(self, queue: Queue) -> AsyncConsumer:
        """Connect, to take."""
