"""One write for an answer: its headers wait for its body.

Room: http. Stands between uvicorn's answer and the connection.
Holds: bytes come in the order they were written; nothing waits once the first part of the body is
there, or the connection is closed.

uvicorn writes headers and body apart, and the loop makes a system call of each: the second one is a
tenth of what a small request costs, on both sides.
"""

from __future__ import annotations

from asyncio import Transport

_CONTINUE = b"HTTP/1.1 100"


class OneWrite:
    """A connection for one answer that has a body, as uvicorn's RequestResponseCycle uses it."""

    __slots__ = ("_head", "_is_begun", "_transport")

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._head = b""
        self._is_begun = False

    def write(self, content: bytes) -> None:
        """Write; the first time only keep it."""
        if self._head:
            content, self._head = self._head + content, b""
        elif not self._is_begun and not content.startswith(_CONTINUE):
            self._is_begun = True
            self._head = content
            return
        self._transport.write(content)

    def close(self) -> None:
        """Write what is kept, then close."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""
        self._transport.close()

    def is_closing(self) -> bool:
        """True if it is closed, or will be."""
        return self._transport.is_closing()
