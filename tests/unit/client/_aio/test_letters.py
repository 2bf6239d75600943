"""The calls about dead letters: what they ask the broker for.

Not covered: paging (test_letters.py), the broker (tests/integration/test_failures.py).
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

from dejaqueue.client import AsyncClient
from dejaqueue.client.results import Redriven
from tests.unit.client.fake_transport import FakeTransport, ok


class Transport(FakeTransport):
    """Answers every redrive with one page."""

    def action(
        self, name: str, body: dict[str, Any], *, repeats: bool = False
    ) -> Future[dict[str, Any]]:
        self.asked = {key: value for key, value in body.items() if value is not None}
        future: Future[dict[str, Any]] = Future()
        future.set_result({"moved": 3, "left": 1, "next": None})
        return future


def test_what_is_asked_for() -> None:
    transport = Transport(ok)

    async def main() -> None:
        async with AsyncClient(transport=transport) as client:
            moved = await client.redrive("t.dead", to="t", reason="r", group="g", ids=[1, 2])
            assert moved == Redriven(3, 1)
            expected = {"topic": "t.dead", "reason": "r", "group": "g", "ids": [1, 2]}
            assert transport.asked == expected | {"to": "t"}
            assert await client.purge_letters("t.dead", count=5) == 3
            assert transport.asked == {"topic": "t.dead", "drop": True, "limit": 5}

    asyncio.run(main())
