"""The payload of a message as a stream, for the asynchronous client.

Room: client. The source of _sync/payload.py (scripts/generate_sync_client.py): change this one.
Holds: it is read once, from beginning to end; a few parts are held, however large it is.
See: client/streamed.py for what does not depend on how one waits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType

from dejaqueue.client._aio import waiting
from dejaqueue.client.streamed import Download


class AsyncPayload:
    """A payload that is read bit by bit; any payload can be.

    Args:
        download: of one that is streamed; None = it is here already.
        payload: that one.

    Attributes:
        byte_count: of all of it.

    Example:
        >>> async def save(message, path):                              # doctest: +SKIP
        ...     async with await message.open() as payload:
        ...         with open(path, "wb") as file:
        ...             async for piece in payload:
        ...                 file.write(piece)
    """

    def __init__(self, download: Download | None, payload: bytes = b"") -> None:
        self._download = download
        self._held = memoryview(payload)
        self.byte_count = len(payload) if download is None else download.byte_count

    async def __aenter__(self) -> AsyncPayload:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what was read ahead. Twice is fine."""
        if self._download is not None:
            self._download.close()
        self._download, self._held = None, memoryview(b"")

    async def _more(self) -> bool:
        """Have something held, if there is more."""
        if not self._held and self._download is not None:
            self._held = memoryview(await waiting.run(self._download.next_part))
        return bool(self._held)

    async def read(self, size: int = -1) -> bytes:
        """The next bytes; b"" = that was all.

        Args:
            size: at most so many; -1 = all that are left, in memory.

        Raises:
            JournalDamaged: it is not what was sent. BadRequest: it is not there any more, as its
                message is done. Unavailable.
        """
        taken: list[bytes] = []
        left = size
        while left and await self._more():
            piece = self._held if left < 0 else self._held[:left]
            self._held = self._held[len(piece) :]
            taken.append(_content_of(piece))
            left -= len(piece) if left > 0 else 0
        return taken[0] if len(taken) == 1 else b"".join(taken)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Its pieces, of a MiB."""
        while await self._more():
            piece, self._held = _content_of(self._held), memoryview(b"")
            yield piece


def _content_of(piece: memoryview) -> bytes:
    """The bytes of a piece; those of a whole part are given as they came, and not copied."""
    whole = piece.obj
    return whole if type(whole) is bytes and len(whole) == len(piece) else bytes(piece)
