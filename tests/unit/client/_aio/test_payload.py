"""Covers: a payload that is read bit by bit: sizes, the rest, pieces, what is let go.

Not covered: parts on their way (tests/unit/client/test_streamed.py).
"""

from __future__ import annotations

import asyncio
from typing import Any

from dejaqueue.client._aio.payload import AsyncPayload


class Parts:
    """Stands for a download."""

    byte_count = 9

    def __init__(self) -> None:
        self._parts = [b"abcd", b"efgh", b"i", b""]
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    def next_part(self) -> bytes:
        return self._parts.pop(0) if self._parts else b""


def opened() -> AsyncPayload:
    parts: Any = Parts()
    return AsyncPayload(parts)


def test_it_is_read_in_any_sizes() -> None:
    async def story() -> list[bytes]:
        async with opened() as payload:
            assert payload.byte_count == 9
            return [await payload.read(size) for size in (2, 0, 5, -1, -1, 3)]

    assert asyncio.run(story()) == [b"ab", b"", b"cdefg", b"hi", b"", b""]


def test_closing_it_lets_go_of_what_is_on_its_way() -> None:
    parts: Any = Parts()
    payload = AsyncPayload(parts)
    for _ in range(2):
        payload.close()
    assert parts.closed == 1
    assert asyncio.run(payload.read()) == b""


def test_it_is_given_in_pieces__from_where_it_is() -> None:
    async def story() -> list[bytes]:
        payload = opened()
        await payload.read(1)
        return [piece async for piece in payload]

    assert asyncio.run(story()) == [b"bcd", b"efgh", b"i"]


def test_a_whole_part_is_given_as_it_came() -> None:
    async def story() -> list[bytes]:
        parts: Any = Parts()
        parts._parts = came
        return [piece async for piece in AsyncPayload(parts)]

    came = [b"abcd", b"efgh", b""]
    expected = list(came)
    assert [a is b for a, b in zip(asyncio.run(story()), expected, strict=False)] == [True, True]


def test_what_came_with_its_message_is_read_alike__and_let_go() -> None:
    async def story() -> tuple[bytes, bytes]:
        payload = AsyncPayload(None, b"whole")
        assert payload.byte_count == 5
        first = await payload.read(2)
        payload.close()
        return first, await payload.read()

    assert asyncio.run(story()) == (b"wh", b"")
