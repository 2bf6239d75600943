"""Covers: what is uploaded ahead of a message, where it is small; a name that is none.

Not covered: parts (tests/unit/client/test_streamed.py), brokers (tests/integration).
"""

from __future__ import annotations

import asyncio
import io

import pytest

import dejaqueue
from dejaqueue.errors import BadRequest


def test_what_is_small_is_the_payload_itself() -> None:
    async def story() -> bytes:
        async with dejaqueue.open_async("memory:") as client:
            told: list[int] = []
            found = await client.upload("t", io.BytesIO(b"small"), on_progress=told.append)
            assert told == [5]
            with pytest.raises(BadRequest, match="topic"):
                await client.upload("no topic", io.BytesIO(b"small"))
            return found

    assert asyncio.run(story()) == b"small"
